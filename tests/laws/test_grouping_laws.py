"""Laws of every grouping in the registry."""

from __future__ import annotations

from itertools import chain

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms.grouping import GROUPINGS, Grouping, KeyBatch, create

every_grouping = pytest.mark.parametrize("name", GROUPINGS)
worker_counts = st.integers(1, 100)
key_lists = st.lists(st.sampled_from(["", "Germany", "日本", *"abcdefgh"]) | st.text(max_size=20), max_size=200)


def assign(grouping: Grouping, keys: list[str], start: int = 0) -> list[int]:
    """Make tuples from `start` on, one second apart, with equal router and event times; a dictionary per batch."""
    distinct = list(dict.fromkeys(keys))
    codes = np.array([distinct.index(key) for key in keys], dtype=np.int32)
    times = np.arange(start, start + len(keys), dtype=np.int64) * 1_000
    return [int(worker) for worker in grouping.assign(KeyBatch(distinct, codes, times), (start + len(keys)) * 1_000)]


@every_grouping
@given(keys=key_lists, workers=worker_counts)
def test_grouping_any_tuple_is_assigned_an_existing_worker(name: str, keys: list[str], workers: int) -> None:
    chosen = assign(create(name, workers), keys)
    assert len(chosen) == len(keys)
    assert all(0 <= worker < workers for worker in chosen)


@every_grouping
@given(keys=key_lists, workers=worker_counts, data=st.data())
def test_grouping_stream_split_into_batches_is_assigned_equally(
    name: str, keys: list[str], workers: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=5)))
    grouping = create(name, workers)
    pieces = [
        assign(grouping, keys[start:end], start) for start, end in zip([0, *cuts], [*cuts, len(keys)], strict=True)
    ]
    assert [*chain.from_iterable(pieces)] == assign(create(name, workers), keys)


@every_grouping
@given(before=key_lists, after=key_lists, workers=worker_counts, other=worker_counts)
def test_grouping_restored_from_a_snapshot_continues_identically(
    name: str, before: list[str], after: list[str], workers: int, other: int
) -> None:
    grouping, restored = create(name, workers), create(name, other)
    assign(grouping, before)
    snapshot = msgspec.msgpack.encode(grouping.snapshot())
    restored.restore(msgspec.msgpack.decode(snapshot))
    assert msgspec.msgpack.encode(restored.snapshot()) == snapshot
    assert assign(restored, after, len(before)) == assign(grouping, after, len(before))
    assert restored.snapshot() == grouping.snapshot()


@every_grouping
@given(keys=key_lists, workers=worker_counts)
def test_grouping_snapshot_is_unchanged_by_later_tuples(name: str, keys: list[str], workers: int) -> None:
    grouping = create(name, workers)
    snapshot = grouping.snapshot()
    as_taken = msgspec.msgpack.encode(snapshot)
    assign(grouping, keys)
    assert msgspec.msgpack.encode(snapshot) == as_taken


@every_grouping
@given(keys=key_lists, sizes=st.lists(worker_counts, min_size=1, max_size=4))
def test_grouping_after_a_resize_assigns_to_present_workers_only(name: str, keys: list[str], sizes: list[int]) -> None:
    grouping = create(name, 10)
    for step, workers in enumerate(sizes):
        grouping.resize(workers)
        assert grouping.workers == workers
        chosen = assign(grouping, keys, step * len(keys))
        assert all(0 <= worker < workers for worker in chosen)


@given(keys=key_lists, workers=worker_counts)
def test_key_grouping_any_stream_keeps_each_key_on_one_worker(keys: list[str], workers: int) -> None:
    pairs = set(zip(keys, assign(create("key", workers), keys), strict=True))
    assert len(pairs) == len(set(keys))


@given(keys=key_lists, workers=worker_counts)
def test_partial_key_grouping_any_stream_keeps_each_key_on_at_most_two_workers(keys: list[str], workers: int) -> None:
    pairs = set(zip(keys, assign(create("partial_key", workers), keys), strict=True))
    assert all(sum(key == one for one, _ in pairs) <= 2 for key in set(keys))


@given(keys=key_lists, workers=worker_counts)
def test_shuffle_grouping_any_stream_keeps_loads_within_one_tuple(keys: list[str], workers: int) -> None:
    loads = np.bincount(np.array(assign(create("shuffle", workers), keys), dtype=np.int64), minlength=workers)
    assert loads.max() - loads.min() <= 1
