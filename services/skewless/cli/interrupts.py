"""Handles Ctrl-C and SIGTERM: ends the process while it imports modules, or lets a command finish its work."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""
TERMINATED = 143
"""Exit code of a command that SIGTERM ended before it had finished."""


def end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process. An import can print KeyboardInterrupt with a traceback, or ignore it."""
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def received_signals(*, once: bool = False) -> Iterator[list[int]]:
    """Yield a list that gets the numbers of SIGINT and SIGTERM as they arrive, until the end of the block.

    With `once`, the second signal has its previous handler again. Must be called from the main thread.
    """
    received: list[int] = []  # no threading.Event: the code that a signal interrupts may hold its lock
    previous_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

    def receive(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if once:
            restore()

    for number in previous_handlers:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        restore()
