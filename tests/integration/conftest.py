"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.secured import Secured, secured_broker


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Run a broker with authentication and ACLs. Files that share it use names of their own for users and topics."""
    with secured_broker(tmp_path_factory.mktemp("keys")) as running:
        yield running
