"""Counts the distinct pairs of a group and a number, before anything is sorted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit

EXACT_LIMIT = 256
"""Maximum distinct values of a group that a sketch stores exactly."""


def sorted_pairs(
    group_of: NDArray[np.int64], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct pairs in ascending order as groups and numbers, and how often each occurs."""
    slots = 1 << max(4, (2 * len(numbers)).bit_length())
    rows, totals = _distinct_pairs(group_of, numbers, slots)
    groups, distinct = group_of[rows], numbers[rows]
    order = np.lexsort((distinct, groups))
    return groups[order], distinct[order], totals[order]


def segments(groups: NDArray[np.int64], count: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each group from 0 to `count` - 1 in an ascending array of groups."""
    return pairwise([0, *np.cumsum(np.bincount(groups, minlength=count)).tolist()])


@jit
def _distinct_pairs(
    group_of: NDArray[np.int64], numbers: NDArray[np.int64], slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct pair, and how often it occurs. `slots` is a power of two."""
    table = np.full(slots, -1, dtype=np.int64)
    rows = np.empty(len(numbers), dtype=np.int64)
    totals = np.zeros(len(numbers), dtype=np.int64)
    found = 0
    for row in range(len(numbers)):
        mixed = np.uint64(numbers[row]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(group_of[row])
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(slots - 1))
        while table[slot] >= 0:
            first = rows[table[slot]]
            if numbers[first] == numbers[row] and group_of[first] == group_of[row]:
                break
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            table[slot] = found
            rows[found] = row
            found += 1
        totals[table[slot]] += 1
    return rows[:found], totals[:found]
