"""Guarantees of SpaceSaving, compared with exact counts."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.algorithms.sketch import SpaceSaving

collisions = st.integers(-20, 20).map(lambda number: number * 64)
"""Hashes that collide in a small table."""
streams = st.lists(collisions | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), max_size=300)
capacities = st.integers(1, 24)


def count(sketch: SpaceSaving, keys: list[int]) -> NDArray[np.int64]:
    """Count `keys`, which are hashes, with a dictionary as in a batch."""
    distinct = list(dict.fromkeys(keys))
    codes = np.array([distinct.index(key) for key in keys], dtype=np.int32)
    return sketch.update(codes, np.array(distinct, dtype=np.int64))


def entries(sketch: SpaceSaving) -> dict[int, tuple[int, int]]:
    keys, estimates, errors = (column.tolist() for column in sketch.entries())
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(estimates, errors, strict=True), strict=True))


@given(keys=streams, capacity=capacities)
def test_sketch_true_counts_lie_between_estimate_minus_error_and_estimate(keys: list[int], capacity: int) -> None:
    sketch, true = SpaceSaving(capacity), Counter(keys)
    count(sketch, keys)
    for key, (estimate, error) in entries(sketch).items():
        assert estimate - error <= true[key] <= estimate
        assert 0 <= error <= len(keys) / capacity


@given(keys=streams, capacity=capacities)
def test_sketch_key_above_the_fair_share_of_a_counter_is_monitored(keys: list[int], capacity: int) -> None:
    sketch = SpaceSaving(capacity)
    count(sketch, keys)
    assert {key for key, number in Counter(keys).items() if number > len(keys) / capacity} <= set(entries(sketch))


@given(keys=streams, capacity=capacities)
def test_sketch_counters_sum_up_to_the_tuples_and_are_sorted(keys: list[int], capacity: int) -> None:
    sketch = SpaceSaving(capacity)
    count(sketch, keys)
    estimates = sketch.entries()[1]
    assert sketch.total == estimates.sum() == len(keys)
    assert (np.diff(estimates) >= 0).all()
    assert len(estimates) == min(capacity, len(set(keys)))


@given(keys=streams)
def test_sketch_with_a_counter_for_each_key_is_exact(keys: list[int]) -> None:
    sketch = SpaceSaving(max(1, len(set(keys))))
    so_far: Counter[int] = Counter()
    for key, estimate in zip(keys, count(sketch, keys).tolist(), strict=True):
        so_far[key] += 1
        assert estimate == so_far[key]
    assert entries(sketch) == {key: (number, 0) for key, number in so_far.items()}


@given(keys=streams, capacity=capacities, bound=st.integers(-1, 20))
def test_sketch_counts_above_a_bound_are_in_descending_order(keys: list[int], capacity: int, bound: int) -> None:
    sketch = SpaceSaving(capacity)
    count(sketch, keys)
    expected = sorted((estimate for estimate, _ in entries(sketch).values() if estimate > max(bound, 0)), reverse=True)
    assert sketch.above(max(bound, 0)).tolist() == expected


@given(before=streams, after=streams, capacity=capacities, cut=st.integers(0, 300))
def test_sketch_split_batches_and_a_restore_change_no_later_result(
    before: list[int], after: list[int], capacity: int, cut: int
) -> None:
    sketch, restored = SpaceSaving(capacity), SpaceSaving(capacity)
    count(sketch, before)
    restored.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(sketch.snapshot())))
    assert restored.snapshot() == sketch.snapshot()
    pieces = np.concatenate([count(restored, after[:cut]), count(restored, after[cut:])])
    assert pieces.tolist() == count(sketch, after).tolist()
    assert restored.snapshot() == sketch.snapshot()
