"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.secured import Secured, secured_broker
from skewless.lab import progress


@pytest.fixture(autouse=True)
def hidden_progress() -> Iterator[None]:
    """Report no progress: a slow machine would add lines to the output of commands that run in this process."""
    show = progress.hide()
    yield
    show()


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Run a broker with authentication and ACLs. Files that share it use names of their own for users and topics."""
    with secured_broker(tmp_path_factory.mktemp("keys")) as running:
        yield running
