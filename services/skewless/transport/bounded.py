"""Calls into librdkafka that may never come back, whatever time limit they were given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def returns_in_time(call: Callable[[], None], limit_s: float) -> bool:
    """Make a call, and tell whether it returned within `limit_s`; its error is raised here.

    A call that did not is left behind on its thread, which does not keep the process alive. Seen of
    `send_offsets_to_transaction` when a broker comes back (librdkafka issues 5511 and 5512).
    """
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            call()
            outcome.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised where the call was asked for
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="bounded call", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        return False
    outcome.result()
    return True
