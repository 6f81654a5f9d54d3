"""Runs a function in the process of this machine that holds the state for it.

Spark runs a task in any of its Python processes. A partition whose windows another process holds would have to be read
from its changelog in most micro-batches. Instead, the task sends its input to that process and waits for the result.
Nothing depends on it: if the process has ended, the task runs the function itself.
"""

from __future__ import annotations

import logging
import pickle
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
Result = TypeVar("Result")


class Address(msgspec.Struct, frozen=True):
    """Where a process listens."""

    host: str
    """Name of its machine."""
    port: int


_addresses: dict[bytes, Address] = {}
"""Addresses of this process by secret."""


def own_address(secret: bytes) -> Address:
    """Return the address of this process, at which it serves callers that know the secret."""
    if secret not in _addresses:
        listener = Listener((LOOPBACK, 0))
        threading.Thread(target=_serve, args=(listener, secret), name="state", daemon=True).start()
        _addresses[secret] = Address(socket.gethostname(), listener.address[1])
    return _addresses[secret]


def call(
    holder: Address | None, secret: bytes, limit_s: float, function: Callable[..., Result], *arguments: object
) -> Result:
    """Call a function in the process that holds its state, or here if there is none.

    Raises what the function raises. A holder that does not answer within `limit_s` counts as ended.
    """
    own = own_address(secret)
    if holder is not None and holder != own and holder.host == own.host:
        answers: SimpleQueue[tuple[Exception | None, Result]] = SimpleQueue()
        # In a thread, because a holder that is suspended does not answer the authentication either.
        asked = (holder, secret, (function, arguments), answers)
        threading.Thread(target=_ask, args=asked, name="state call", daemon=True).start()
        try:
            failure, result = answers.get(timeout=limit_s)
        except Empty:
            log.warning("the process at port %d does not answer", holder.port)
            return function(*arguments)
        if failure is None:
            return result
        if not isinstance(failure, _EndedError):
            raise failure
        log.info("the process at port %d has ended: %s", holder.port, failure)
    return function(*arguments)


class _EndedError(Exception):
    """The holder has ended."""


def _ask(holder: Address, secret: bytes, request: object, answers: SimpleQueue[Any]) -> None:
    try:
        with Client((LOOPBACK, holder.port), authkey=secret) as connection:
            # Without a copy of the whole request in memory, which `send` and `recv` make.
            with open(connection.fileno(), "wb", closefd=False) as stream:
                pickle.dump(request, stream)
            answers.put(connection.recv())
    except (OSError, EOFError, AuthenticationError) as error:
        answers.put((_EndedError(repr(error)), None))
    except Exception as error:  # noqa: BLE001 - the caller raises it
        answers.put((error, None))


def _serve(listener: Listener, secret: bytes) -> None:
    while True:
        with suppress(OSError):  # the caller has ended
            threading.Thread(target=_answer, args=(listener.accept(), secret), name="state call", daemon=True).start()


def _answer(connection: Connection, secret: bytes) -> None:
    # The caller has ended or has another secret.
    with connection, suppress(OSError, EOFError, pickle.UnpicklingError, AuthenticationError):
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
        with open(connection.fileno(), "rb", closefd=False) as stream:
            function, arguments = pickle.load(stream)  # noqa: S301 - the caller knows the secret
        failure, result = None, None
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            # With its traceback, it would keep this frame and the clients of the others until Python looks for cycles.
            failure = error.with_traceback(None)
        connection.send((failure, result))
