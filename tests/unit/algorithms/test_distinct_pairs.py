"""Distinct pairs of a group and a number: counts of any numbers, and the time for few distinct ones."""

from __future__ import annotations

from collections import Counter
from time import process_time

import numpy as np
import pytest
from numpy.typing import NDArray

from skewless.algorithms.aggregates.distinct_pairs import merged_pairs, sorted_pairs

SPANS = [1, 100, 10**9, 2**63]
"""Numbers are from -span to span - 1."""


def numbers_of(random: np.random.Generator, span: int, distinct: int, rows: int) -> NDArray[np.int64]:
    """Return numbers of which at most `distinct` differ."""
    return random.choice(random.integers(-span, span - 1, distinct, endpoint=True), rows)


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("distinct", [2, 50, 10_000])
@pytest.mark.parametrize("groups", [1, 40, 10**6])
def test_pairs_of_any_numbers_are_counted_and_summed_in_order(span: int, distinct: int, groups: int) -> None:
    random = np.random.default_rng(span % 1000 + distinct + groups)
    for rows in (1, 17, 3_000):
        group_of, numbers = random.integers(groups, size=rows), numbers_of(random, span, distinct, rows)
        counts = random.integers(1, 9, rows)
        pairs, sums = list(zip(group_of.tolist(), numbers.tolist(), strict=True)), Counter[tuple[int, int]]()
        for pair, count in zip(pairs, counts.tolist(), strict=True):
            sums[pair] += count
        for found, expected in (
            (sorted_pairs(group_of, numbers), Counter(pairs)),
            (merged_pairs(group_of, numbers, counts), sums),
        ):
            assert {column.dtype for column in found} == {np.dtype(np.int64)}
            rows_found = list(zip(*(column.tolist() for column in found), strict=True))
            assert rows_found == [(*pair, expected[pair]) for pair in sorted(expected)]


def test_pairs_without_rows_are_empty() -> None:
    none = np.empty(0, dtype=np.int64)
    assert [len(column) for column in (*sorted_pairs(none, none), *merged_pairs(none, none, none))] == [0] * 6


@pytest.mark.parametrize("span", SPANS[1:])
def test_sorted_pairs_few_distinct_numbers_take_less_time_than_to_sort_all_of_them(span: int) -> None:
    # The tuples of a hot key often have few distinct values.
    random = np.random.default_rng(3)
    group_of, numbers = random.integers(3, size=100_000), numbers_of(random, span, 100, 100_000)

    def pairs_s() -> float:
        started = process_time()
        sorted_pairs(group_of, numbers)
        return process_time() - started

    def sort_s() -> float:
        started = process_time()
        np.argsort(numbers)
        return process_time() - started

    turns = [(pairs_s(), sort_s()) for _ in range(7)]
    assert min(pairs for pairs, _ in turns) < 0.7 * min(sort for _, sort in turns)
