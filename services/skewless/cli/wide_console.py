"""A console for tables, and their form."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 160
"""Columns of output that is not a terminal, so that no table is cut."""


def wide_console() -> Console:
    """Return a console on stdout, which does not highlight numbers."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def plain_table(columns: Sequence[str], *, left: Sequence[int] = (0,), gap: int = 2) -> Table:
    """Return a table without lines. The columns at the positions `left` have texts, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index in left else "right", no_wrap=True)
    return table
