"""Tables of HTML for notebooks, with bars for numbers. They need no script and no package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

BAR_PX = 160


def table(head: Sequence[str], rows: Iterable[Sequence[str]], bars: Mapping[int, Sequence[float]] | None = None) -> str:
    """Return a table. `bars` has numbers by column, which are shown next to its texts, the largest the longest."""
    longest = {column: max(numbers, default=0.0) or 1.0 for column, numbers in (bars or {}).items()}
    lines = []
    for index, row in enumerate(rows):
        cells = []
        for column, text in enumerate(row):
            bar = _bar((bars or {})[column][index] / longest[column]) if column in longest else ""
            cells.append(f"<td style='text-align:left'>{escape(text)}{bar}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    names = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(text)}</p>"


def _bar(share: float) -> str:
    width = round(BAR_PX * share)
    return f"<div style='width:{width}px;height:6px;background:#3b6ea5'></div>"
