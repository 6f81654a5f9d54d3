"""What every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from skewless.errors import SkewlessError
from skewless.local.broker import Broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker("broker")


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
