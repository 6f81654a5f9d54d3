"""The content of the page, a card per pipeline. Pure: figures come in as text, loads as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["even", "high", "overloaded"]

OVERLOAD = 1.5
"""Load relative to the average from which a worker is shown as overloaded, as in the alert."""
HIGH = (1 + OVERLOAD) / 2
"""Load relative to the average from which it is shown as high."""


@dataclass(frozen=True)
class Bar:
    """Load of one worker."""

    worker: int
    rows: int
    share: float
    relative: float
    """Load divided by the average of all workers."""
    level: Level


@dataclass(frozen=True)
class CardTable:
    """A table of texts. The first column is aligned to the left, the others to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Card:
    """One pipeline on the page."""

    name: str
    state: str
    """`running`, `finished`, `failing`, or another word."""
    figures: Sequence[tuple[str, str]] = ()
    """Labels with their values."""
    bars: Sequence[Bar] = ()
    tables: Sequence[CardTable] = ()
    notes: Sequence[tuple[str, str]] = ()
    """Lines, each with its kind: `info`, `waiting`, `warning`, `problem` or `error`."""


def level(relative: float) -> Level:
    """Return how a load relative to the average is shown."""
    return "overloaded" if relative >= OVERLOAD else "high" if relative >= HIGH else "even"


def bars(loads: Sequence[int]) -> list[Bar]:
    """Return the bar of each worker, worker 0 first."""
    total = sum(loads)
    relatives = [rows * len(loads) / total if total else 0.0 for rows in loads]
    return [
        Bar(worker, rows, rows / max(1, total), round(relative, 3), level(relative))
        for worker, (rows, relative) in enumerate(zip(loads, relatives, strict=True))
    ]
