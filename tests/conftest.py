"""Fixtures of all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from skewless.errors import SkewlessError
from skewless.lab.local.broker import Broker

# Hypothesis draws the examples of the laws: new ones in each local run, the same ones in CI. Deadlines per example are
# off, because the time of one example is not reliable when tests run in parallel.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore SIGINT, and so would the processes that tests stop with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


BROKER_TIMEOUT_S = 900
"""Timeout of tests with a broker. They wait for many conditions in turn, each with its own deadline."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker("broker")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(BROKER_TIMEOUT_S))


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap servers of a real Kafka: $KAFKA_BOOTSTRAP_SERVERS or the embedded broker. Never skips."""
    if external := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield external
        return
    try:
        embedded = Broker().start()
    except SkewlessError as error:
        pytest.fail(f"tests need a Kafka broker: {error}", pytrace=False)
    yield embedded.bootstrap
    embedded.stop()
