"""What every test may ask for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from skewless.errors import SkewlessError
from skewless.lab.local.broker import Broker

# Laws run on examples that Hypothesis draws: new ones each time on a desk, the same ones each time in CI. How long one
# takes says nothing where tests run side by side.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C, and so would the processes that tests stop by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


BROKER_TIMEOUT_S = 900
"""A test with a broker waits for many facts one after another; each wait has a deadline of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker("broker")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(BROKER_TIMEOUT_S))


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap servers of a real Kafka: $KAFKA_BOOTSTRAP_SERVERS, else the embedded broker. Never skips."""
    if external := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield external
        return
    try:
        embedded = Broker().start()
    except SkewlessError as error:
        pytest.fail(f"tests need a Kafka broker: {error}", pytrace=False)
    yield embedded.bootstrap
    embedded.stop()
