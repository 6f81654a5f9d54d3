"""A function runs in the process that holds its state, and in the caller's if that one has ended."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import weakref
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest

from helpers.waiting import until
from skewless.errors import FencedError
from skewless.spark import state_process
from skewless.spark.state_process import Address

SECRET = secrets.token_bytes(32)
LIMIT_S = 30.0
SPAWN = get_context("spawn")


_clients: list[weakref.ref[set[str]]] = []


def failing_with_a_client() -> None:
    client = {"connection"}
    _clients.append(weakref.ref(client))
    raise FencedError("its transaction is over")


def clients() -> int:
    """Return how many clients of failed calls this process has not freed."""
    return sum(client() is not None for client in _clients)


def failing() -> None:
    raise FencedError(f"in process {os.getpid()}")


def hold(secret: bytes, addresses: Connection) -> None:
    addresses.send(state_process.own_address(secret))
    signal.pause()


@pytest.fixture
def holder() -> Iterator[tuple[BaseProcess, Address]]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=hold, args=(SECRET, there), daemon=True)
    process.start()
    yield process, here.recv()
    process.kill()
    process.join()


def test_call_runs_in_the_process_that_holds_the_state(holder: tuple[BaseProcess, Address]) -> None:
    process, address = holder
    assert state_process.call(address, SECRET, LIMIT_S, os.getpid) == process.pid
    with pytest.raises(FencedError, match=f"in process {process.pid}"):
        state_process.call(address, SECRET, LIMIT_S, failing)


def test_call_that_fails_leaves_nothing_in_the_process_of_the_state(
    holder: tuple[BaseProcess, Address],
) -> None:
    _, address = holder
    state_process.call(address, SECRET, LIMIT_S, gc.disable)
    for _ in range(3):
        with pytest.raises(FencedError):
            state_process.call(address, SECRET, LIMIT_S, failing_with_a_client)
    until(lambda: state_process.call(address, SECRET, LIMIT_S, clients) == 0, limit_s=LIMIT_S)


def test_call_without_an_answer_runs_in_the_process_of_the_caller(holder: tuple[BaseProcess, Address]) -> None:
    process, address = holder
    assert state_process.call(None, SECRET, LIMIT_S, os.getpid) == os.getpid()
    assert state_process.call(Address("elsewhere", address.port), SECRET, LIMIT_S, os.getpid) == os.getpid()
    assert state_process.call(address, secrets.token_bytes(32), LIMIT_S, os.getpid) == os.getpid()
    os.kill(process.pid or 0, signal.SIGSTOP)
    assert state_process.call(address, SECRET, 0.1, os.getpid) == os.getpid()
    process.kill()
    process.join()
    assert state_process.call(address, SECRET, LIMIT_S, os.getpid) == os.getpid()
