from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.sketch import SpaceSaving


def sketch_of(capacity: int, *hashes: int) -> SpaceSaving:
    sketch = SpaceSaving(capacity)
    sketch.update(np.arange(len(hashes), dtype=np.int32), np.array(hashes, dtype=np.int64))
    return sketch


def test_sketch_new_key_replaces_the_lowest_counter_with_its_count_as_error() -> None:
    sketch = sketch_of(2, 7, 7, 8, 9)
    assert [column.tolist() for column in sketch.entries()] == [[9, 7], [2, 2], [1, 0]]


def test_sketch_counters_with_equal_count_replaces_the_oldest() -> None:
    sketch = sketch_of(3, 1, 2, 3, 4)
    assert set(sketch.entries()[0].tolist()) == {2, 3, 4}


def test_sketch_update_returns_the_estimate_after_each_tuple() -> None:
    sketch = SpaceSaving(1)
    estimates = sketch.update(np.array([0, 0, 1, 0], dtype=np.int32), np.array([5, 6], dtype=np.int64))
    assert estimates.tolist() == [1, 2, 3, 4]


def test_sketch_counts_above_a_bound_exclude_the_bound() -> None:
    sketch = sketch_of(4, 1, 1, 1, 2, 2, 3)
    assert sketch.above(2).tolist() == [3]
    assert sketch.above(1.9).tolist() == [3, 2]


def counter_bytes(sketch: SpaceSaving) -> int:
    return sum(array.nbytes for array in sketch._counters)


def test_sketch_any_number_of_keys_keeps_its_memory() -> None:
    sketch = SpaceSaving(1_000)
    empty = counter_bytes(sketch)
    sketch.update(np.arange(100_000, dtype=np.int32), np.arange(100_000, dtype=np.int64) * 0x9E3779B97F4A7C1)
    assert counter_bytes(sketch) == empty < 60_000
    assert sum(map(len, sketch.snapshot())) == 24_000


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        [],
        [b"", b""],
        [b"1", b"1", b"1"],
        [b"", b"", bytes(8)],
        [bytes(8)] * 3,
        [np.array([2, 1]).tobytes()] * 3,
        [np.ones(3, dtype=np.int64).tobytes()] * 3,
    ],
)
def test_sketch_invalid_snapshot_is_refused(snapshot: object) -> None:
    with pytest.raises(TypeError, match=r"snapshot is .* not the bytes of at most 2 counters"):
        SpaceSaving(2).restore(snapshot)
