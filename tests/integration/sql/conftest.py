"""Closes the connections of the sinks that a test has opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.sql.sql_sink import Sink


@pytest.fixture(autouse=True)
def _close_sinks() -> Iterator[None]:
    yield
    for sink in Sink.opened:
        sink.output.close()
    Sink.opened.clear()
