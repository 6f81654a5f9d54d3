"""Handles Ctrl-C and SIGTERM: ends the process while it imports modules, or lets a command finish its work."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
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
def handled(number: int, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle a signal until the end of the block. Must be called from the main thread."""
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


@contextlib.contextmanager
def received_signals(*, once: bool = False) -> Iterator[list[int]]:
    """Yield a list that gets the numbers of SIGINT and SIGTERM as they arrive, until the end of the block.

    With `once`, the second signal has its previous handler again. Must be called from the main thread.
    """
    received: list[int] = []  # no threading.Event: the code that a signal interrupts may hold its lock
    with contextlib.ExitStack() as handlers:

        def receive(number: int, _frame: FrameType | None) -> None:
            received.append(number)
            if once:
                handlers.close()

        for number in (signal.SIGINT, signal.SIGTERM):
            handlers.enter_context(handled(number, receive))
        yield received
