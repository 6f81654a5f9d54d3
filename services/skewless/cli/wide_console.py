"""A console for tables."""

from __future__ import annotations

import sys

from rich.console import Console

PIPED_WIDTH = 160
"""Columns of output that is not a terminal, so that no table is cut."""


def wide_console() -> Console:
    """Return a console on stdout, which does not highlight numbers."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
