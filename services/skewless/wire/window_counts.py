"""Counts of the tuples of each window and key, as they are in results."""

from __future__ import annotations

from collections import Counter

import msgspec

from skewless.algorithms.aggregates import TUPLE_COUNT

MAX_DIFFERENCES = 5

WindowCounts = Counter[tuple[int, str]]
"""Tuples by (start of the window in ms, key)."""


class CountRecord(msgspec.Struct):
    """Fields of a record of the topic `aggregates` that give a count."""

    key: str
    window_start: int
    tuples: int = msgspec.field(name=TUPLE_COUNT.name)


def differences(expected: WindowCounts, actual: WindowCounts) -> list[str]:
    """Return a line for each of the first MAX_DIFFERENCES windows and keys whose counts differ."""
    differing = sorted(cell for cell in expected.keys() | actual.keys() if expected[cell] != actual[cell])
    lines = [
        f"window {window}, key {key!r}: {actual[window, key]:,} instead of {expected[window, key]:,}"
        for window, key in differing[:MAX_DIFFERENCES]
    ]
    remaining = len(differing) - len(lines)
    return [*lines, f"and {remaining:,} more"] if remaining else lines
