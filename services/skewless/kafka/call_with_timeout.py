"""Runs calls in other threads: calls that may never return, and calls during which the consumer is polled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")

Calls = SimpleQueue[tuple[Callable[[], None], Future[None]] | None]


class TimedCalls:
    """Makes calls with a timeout, one after another, in a thread that is used again. Not for several threads.

    A call that does not return is abandoned with its thread, and the next call gets a new thread. So a hung call does
    not block the next one. No thread keeps the process alive.
    """

    # Needed because librdkafka's `send_offsets_to_transaction` did not return after a broker came back, whatever
    # timeout it was given (librdkafka issues 5511 and 5512).

    def __init__(self) -> None:
        self._calls: Calls | None = None

    def call(self, call: Callable[[], None], timeout_s: float) -> bool:
        """Make a call and return whether it returned within `timeout_s`. Raises the error of the call."""
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_make_calls, args=(self._calls,), name="timed calls", daemon=True).start()
        outcome: Future[None] = Future()
        returned = threading.Event()
        outcome.add_done_callback(lambda _outcome: returned.set())
        self._calls.put((call, outcome))
        # Not by the timeout of `result`: a call may raise a TimeoutError of its own.
        if not returned.wait(timeout_s):
            self.close()
            return False
        outcome.result()
        return True

    def close(self) -> None:
        """End the thread, once its call has returned. The next call starts another one."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _make_calls(calls: Calls) -> None:
    while (item := calls.get()) is not None:
        _make_call(*item)
        del item  # it would keep the last call alive until the next one


def _make_call(call: Callable[[], Result], outcome: Future[Result]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised where the call was made
        outcome.set_exception(error)


def in_background(call: Callable[[], Result]) -> Future[Result]:
    """Make a call in a thread of its own. The thread does not keep the process alive."""
    outcome: Future[Result] = Future()
    threading.Thread(target=_make_call, args=(call, outcome), name="background call", daemon=True).start()
    return outcome


def while_serving(call: Callable[[], Result], serve: Callable[[], None]) -> Result:
    """Make a call in a thread of its own, call `serve` until the call has returned, and return its result.

    `serve` must wait a little each time. If `serve` raises an error, the call is abandoned with its thread.
    """
    outcome = in_background(call)
    while not outcome.done():
        serve()
    return outcome.result()
