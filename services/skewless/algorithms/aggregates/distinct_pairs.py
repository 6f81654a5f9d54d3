"""Counts the distinct pairs of a group and a number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

EXACT_LIMIT = 256
"""Maximum distinct values of a group that a sketch stores exactly."""


def sorted_pairs(
    group_of: NDArray[np.int64], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct pairs in ascending order as groups and numbers, and how often each occurs."""
    # numpy sorts one number per pair several times as fast as pairs.
    values, rank_of = np.unique(numbers, return_inverse=True)
    pairs, totals = np.unique(group_of * len(values) + rank_of, return_counts=True)
    groups, ranks = np.divmod(pairs, len(values))
    return groups, values[ranks], totals


def segments(groups: NDArray[np.int64], count: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each group from 0 to `count` - 1 in an ascending array of groups."""
    return pairwise([0, *np.cumsum(np.bincount(groups, minlength=count)).tolist()])
