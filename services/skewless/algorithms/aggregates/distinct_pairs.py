"""Counts the distinct pairs of a group and a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

EXACT_LIMIT = 256
"""Maximum distinct values of a group that a sketch stores exactly."""

Integers: TypeAlias = NDArray[np.int64]
_LARGEST = np.iinfo(np.int64).max


def sorted_pairs(group_of: Integers, numbers: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the distinct pairs in ascending order as groups and numbers, and how often each occurs."""
    codes, pairs_of = _codes(group_of, numbers)
    distinct, totals = _counted(codes)
    return *pairs_of(distinct), totals


def merged_pairs(group_of: Integers, numbers: Integers, counts: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the distinct pairs in ascending order as groups and numbers, and the sum of the counts of each.

    This is fast if the pairs are a few ascending runs.
    """
    codes, pairs_of = _codes(group_of, numbers)
    order = np.argsort(codes, kind="stable")  # merges runs
    codes = codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return *pairs_of(codes[starts]), np.add.reduceat(counts[order], starts)


def segments(groups: Integers, count: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each group from 0 to `count` - 1 in an ascending array of groups."""
    return pairwise([0, *np.cumsum(np.bincount(groups, minlength=count)).tolist()])


def _codes(group_of: Integers, numbers: Integers) -> tuple[Integers, Callable[[Integers], tuple[Integers, Integers]]]:
    """Return a number from 0 for each pair, in the order of the pairs, and a function from these numbers to pairs.

    numpy sorts one number per pair several times as fast as pairs.
    """
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    span = highest - lowest + 1

    def pairs_of(codes: Integers) -> tuple[Integers, Integers]:
        groups = codes // span
        return groups, codes - groups * span + lowest

    if span * (int(group_of.max(initial=0)) + 1) <= _LARGEST:
        return group_of * span + (numbers - lowest), pairs_of
    values, ranks = _ranked(numbers)
    codes, ranks_of = _codes(group_of, ranks)

    def ranked_pairs_of(codes: Integers) -> tuple[Integers, Integers]:
        groups, ranks = ranks_of(codes)
        return groups, values[ranks]

    return codes, ranked_pairs_of


def _counted(codes: Integers) -> tuple[Integers, Integers]:
    """Return the distinct numbers in ascending order, and how often each occurs. None is negative."""
    if int(codes.max(initial=0)) < 8 * len(codes):  # memory stays bounded
        by_code = np.bincount(codes)
        distinct = np.flatnonzero(by_code)
        return distinct, by_code[distinct]
    if not _repeat(codes):
        return np.unique(codes, return_counts=True)
    distinct, totals = (column.to_numpy() for column in pa.array(codes).value_counts().flatten())
    order = np.argsort(distinct)
    return distinct[order], totals[order]


def _ranked(numbers: Integers) -> tuple[Integers, Integers]:
    """Return the distinct numbers in ascending order, and the index of each number among them."""
    if not _repeat(numbers):
        return np.unique(numbers, return_inverse=True)
    encoded = pa.array(numbers).dictionary_encode()
    values = encoded.dictionary.to_numpy()
    order = np.argsort(values)
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values))
    return values[order], ranks[encoded.indices.to_numpy()]


def _repeat(numbers: Integers) -> bool:
    """Return whether numbers seem to repeat so often that to hash all and to sort the distinct ones is faster."""
    sample = numbers[::16]
    return 8 * len(np.unique(sample)) < 7 * len(sample)
