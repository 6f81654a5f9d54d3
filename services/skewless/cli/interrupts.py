"""Ends the process at Ctrl-C while it imports modules, before a command has begun."""

from __future__ import annotations

import os
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


def end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process. An import can print KeyboardInterrupt with a traceback, or ignore it."""
    os._exit(INTERRUPTED)
