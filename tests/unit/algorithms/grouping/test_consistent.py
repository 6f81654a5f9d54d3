from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create

UNBOUNDED = GroupingOptions.model_validate({"consistent": {"slack": 10}})


def stream(numbers: NDArray[np.int64]) -> KeyBatch:
    codes = numbers.astype(np.int32)
    return KeyBatch([f"key {number}" for number in range(codes.max() + 1)], codes, np.zeros(len(codes), dtype=np.int64))


@pytest.mark.parametrize("slack", [0.001, 0.25, 1.0])
@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_consistent_grouping_any_stream_keeps_each_worker_within_its_capacity(slack: float, workers: int) -> None:
    options = GroupingOptions.model_validate({"consistent": {"slack": slack}})
    turns = np.arange(3_000)
    chosen = create("consistent", workers, options).assign(stream(np.where(turns % 3, 0, turns % 50)), 0)
    sent = [0] * workers
    for total, worker in enumerate(chosen.tolist(), start=1):
        sent[worker] += 1
        assert sent[worker] <= ceil((1 + slack) * total / workers)


def test_consistent_grouping_hot_key_fills_the_ring_from_its_home() -> None:
    grouping = create("consistent", 10)
    chosen = grouping.assign(stream(np.zeros(1_000, dtype=np.int64)), 0)
    assert sorted(np.bincount(chosen, minlength=10).tolist(), reverse=True) == [125] * 8 + [0] * 2


def test_consistent_grouping_without_full_workers_keeps_keys_on_one_worker() -> None:
    numbers = np.arange(5_000) % 500
    chosen = create("consistent", 10, UNBOUNDED).assign(stream(numbers), 0)
    assert len({*zip(numbers.tolist(), chosen.tolist(), strict=True)}) <= 505


def homes(workers: int, keys: int = 5_000) -> NDArray[np.int32]:
    """Workers of keys while no worker is full: late in the stream, each key once."""
    grouping = create("consistent", workers, UNBOUNDED)
    grouping.assign(stream(np.arange(keys)), 0)
    return grouping.assign(stream(np.arange(keys)), 0)


def test_consistent_grouping_added_worker_gets_its_share_and_no_other_key_moves() -> None:
    before, after = homes(10), homes(11)
    moved = before != after
    assert (after[moved] == 10).all()
    assert 0.5 / 11 < moved.mean() < 2 / 11


def test_consistent_grouping_workers_have_similar_shares_of_the_ring() -> None:
    shares = np.bincount(homes(20), minlength=20) / 5_000
    assert shares.min() > 0.5 / 20
    assert shares.max() < 1.6 / 20


def test_consistent_grouping_resized_resets_loads() -> None:
    grouping = create("consistent", 4)
    grouping.assign(stream(np.arange(500)), 0)
    grouping.resize(6)
    assert grouping.snapshot() == create("consistent", 6).snapshot()
    assert (
        grouping.assign(stream(np.arange(500)), 0).tolist()
        == create("consistent", 6).assign(stream(np.arange(500)), 0).tolist()
    )


def test_consistent_grouping_invalid_snapshot_is_refused() -> None:
    with pytest.raises(TypeError, match="snapshot"):
        create("consistent", 2).restore({"workers": 2, "sent": None})
