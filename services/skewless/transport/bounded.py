"""Runs calls in threads of their own: calls that may never return, and calls during which the consumer is polled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def returns_in_time(call: Callable[[], None], limit_s: float) -> bool:
    """Make a call and return whether it returned within `limit_s`; an error of the call is raised here.

    A call that does not return is left behind on its thread. The thread does not keep the process alive. librdkafka's
    `send_offsets_to_transaction` did not return after a broker came back (librdkafka issues 5511 and 5512).
    """
    outcome, thread = _started(call)
    thread.join(limit_s)
    if thread.is_alive():
        return False
    outcome.result()
    return True


def while_serving(call: Callable[[], Result], serve: Callable[[], None]) -> Result:
    """Make a call in a thread, call `serve` until the call has returned, and return its result.

    `serve` must wait a little each time. An error that `serve` raises leaves the call behind on its thread.
    """
    outcome, thread = _started(call)
    while thread.is_alive():
        serve()
    return outcome.result()


def _started(call: Callable[[], Result]) -> tuple[Future[Result], threading.Thread]:
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the call was made
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="bounded call", daemon=True)
    thread.start()
    return outcome, thread
