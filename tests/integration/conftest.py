"""Fixtures of the integration tests."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from helpers.waiting import WAIT_S
from integration.secured import Secured, secured_broker
from skewless.kafka import reachability
from skewless.lab import progress
from skewless.schema_registry import client


@pytest.fixture(autouse=True)
def quiet_commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Report no progress and no wait for a broker or a registry.

    A slow machine would add lines to the output of commands that run in this process.
    """
    for module in (reachability, client):
        monkeypatch.setattr(module, "REPORTED_S", math.inf)
    show = progress.hide()
    yield
    show()


@pytest.fixture
def patient_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands without a pipeline file wait as long for a busy broker as the tests."""
    monkeypatch.setenv("SKEWLESS__KAFKA__CONNECT_TIMEOUT_S", str(WAIT_S))


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Run a broker with authentication and ACLs. Files that share it use names of their own for users and topics."""
    with secured_broker(tmp_path_factory.mktemp("keys")) as running:
        yield running
