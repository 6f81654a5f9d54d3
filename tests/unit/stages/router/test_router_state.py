"""A router's saved loads are restored after a restart, also with another number of workers."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from helpers.batches import FORMAT, ROW_FORMAT, encode_tuples, tuples_in, upstream, written
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms import grouping
from skewless.algorithms.grouping import Grouping, GroupingOptions
from skewless.algorithms.grouping.shuffle import ShuffleGrouping
from skewless.stages.router import state as router_state
from skewless.stages.router.step import RouterStep
from skewless.wire.record import OutputRecord
from skewless.wire.tuples import TUPLES

KEYS = np.random.default_rng(3).zipf(1.4, 3_000) % 50
INTERVAL_MS = 1_000
Records = list[tuple[bytes, bytes]]
Routed = tuple[int | None, list[tuple[str, int, int]]]


@pytest.fixture(autouse=True)
def no_held_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send tuples at once, because a flush also saves the loads."""
    monkeypatch.setattr("skewless.stages.router.step.HELD_BYTES", 0)


def build(
    name: str = "partial_key", workers: int = 3, warnings: list[str] | None = None, **options: object
) -> RouterStep:
    choice = grouping.create(name, workers, GroupingOptions.model_validate(options))
    return RouterStep(
        choice,
        FORMAT,
        ROW_FORMAT,
        max_workers=5,
        encoding="batch",
        topic="p.tuples",
        snapshot_ms=INTERVAL_MS,
        new_upstream=upstream,
        warn=(warnings if warnings is not None else list[str]()).append,
    )


def router(name: str = "partial_key", workers: int = 3, state: Records | None = None) -> RouterStep:
    step = build(name, workers)
    step.assign(2, None, state or [])
    return step


def route(
    step: RouterStep, keys: NDArray[np.int64], now: int = 0
) -> list[tuple[int | None, list[tuple[str, int, int]]]]:
    """Route tuples of these keys; returns partition and tuples of each output record."""
    column = pa.array([f"k{key}" for key in keys]).dictionary_encode()
    ones = np.ones(len(keys), dtype=np.int64)
    record = OutputRecord(
        "tuples", encode_tuples(column, ones, np.arange(len(keys))), headers=internal_headers(TUPLES, {2: 5})
    )
    return [(output.partition, tuples_in([output])) for output in step.process(InMemoryBatch(2, [record]), 0)]


def saved(step: RouterStep, now: int = 0) -> list[OutputRecord]:
    return written(step.flush(now), "router-state")


def state_of(step: RouterStep, now: int = 0) -> Records:
    return [(output.key or b"", output.value or b"") for output in saved(step, now)]


@pytest.mark.parametrize("name", sorted(grouping.GROUPINGS))
def test_router_restarted_with_its_saved_loads_chooses_identically(name: str) -> None:
    whole = router(name)
    route(whole, KEYS[:1_000])
    restarted = router(name, state=state_of(whole))
    assert route(restarted, KEYS[1_000:]) == route(whole, KEYS[1_000:])


def test_router_restarted_without_saved_loads_chooses_differently() -> None:
    whole = router()
    route(whole, KEYS[:1_000])
    assert route(router(), KEYS[1_000:]) != route(whole, KEYS[1_000:])


def test_router_loads_are_saved_with_the_first_tuples_and_once_per_interval() -> None:
    step = router()
    assert saved(step, 0) == []
    times = []
    for now in range(100, 5_000, 100):
        route(step, KEYS[:10])
        times += [now] * len(saved(step, now))
    assert times == [100, 1_100, 2_100, 3_100, 4_100]


def test_router_unchanged_loads_are_not_saved_again() -> None:
    step = router()
    route(step, KEYS[:10])
    assert [len(saved(step, now)) for now in (0, 1_000, 2_000)] == [1, 0, 0]


def test_router_clock_set_back_keeps_saving_loads() -> None:
    step = router()
    route(step, KEYS[:10])
    assert saved(step, 10**9)
    route(step, KEYS[:10])
    assert saved(step, 5)


def test_router_loads_are_saved_to_the_lowest_assigned_partition_by_grouping_name() -> None:
    step = router()
    step.assign(4, None, ())
    step.assign(1, None, ())
    route(step, KEYS[:10])
    (first,) = saved(step, 0)
    step.revoke(1)
    route(step, KEYS[:10])
    (second,) = saved(step, INTERVAL_MS)
    assert [(each.key, each.partition) for each in (first, second)] == [
        (b"loads/partial_key", 1),
        (b"loads/partial_key", 2),
    ]


def test_router_without_partitions_saves_no_loads() -> None:
    step = router()
    route(step, KEYS[:10])
    step.revoke(2)
    assert saved(step) == []


def test_router_with_loads_ignores_saved_ones_of_a_new_partition() -> None:
    other = router()
    route(other, KEYS[:10])
    step, same = router(), router()
    for each in (step, same):
        route(each, KEYS[:1_000])
    assert not step.is_cold
    step.revoke(2)
    assert step.assign(2, None, state_of(other)) is None
    assert route(step, KEYS[1_000:]) == route(same, KEYS[1_000:])


def test_router_saved_loads_in_several_partitions_uses_the_first() -> None:
    first, second = router(), router()
    route(first, KEYS[:1_000])
    route(second, KEYS[1_000:])
    step = router(state=state_of(first))
    assert not step.is_cold
    assert step.assign(3, None, state_of(second)) is None
    assert route(step, KEYS[:500]) == route(first, KEYS[:500])


def encoded(**state: object) -> bytes:
    return msgspec.msgpack.encode(router_state.RouterState(router_state.SCHEMA, dict(state)))


BROKEN = {
    "no bytes": b"",
    "no MessagePack": b"\xc1\xff",
    "another thing": msgspec.msgpack.encode([1, 2]),
    "a later version": msgspec.msgpack.encode(
        router_state.RouterState("skewless.loads.v2", {"workers": 3, "sent": bytes(24)})
    ),
    "no number of workers": encoded(sent=bytes(24)),
    "no worker": encoded(workers=0, sent=b""),
    "more workers than there are": encoded(workers=10**9, sent=bytes(24)),
    "loads of other workers than it says": encoded(workers=4, sent=bytes(24)),
    "no loads": encoded(workers=4),
}


@pytest.mark.parametrize("name", BROKEN)
def test_router_unreadable_saved_loads_are_reported_and_ignored(name: str) -> None:
    step = build()
    warning = step.assign(2, None, [(b"loads/partial_key", BROKEN[name])])
    assert warning is not None
    assert warning.startswith("ignored the loads in topic router-state, they start at zero: ")
    assert route(step, KEYS) == route(router(), KEYS)


def test_router_state_restore_that_fails_leaves_the_grouping_unchanged() -> None:
    class Fails(ShuffleGrouping):
        def restore(self, snapshot: object) -> None:
            self._next = 1
            if snapshot != {"workers": 3, "next": 0}:
                raise ZeroDivisionError
            self._next = 0

    choice: Grouping = Fails(3, grouping.DEFAULTS)
    warning = router_state.restore(choice, [(b"loads/shuffle", encoded(workers=3, next=2))], 5)
    assert warning is not None
    assert choice.snapshot() == {"workers": 3, "next": 0}


def test_router_saved_loads_of_another_grouping_are_ignored() -> None:
    shuffle = router("shuffle")
    route(shuffle, KEYS[:10])
    step = build()
    assert step.assign(2, None, state_of(shuffle)) is None
    assert step.is_cold


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2)])
def test_router_saved_loads_of_another_number_of_workers_are_restored_and_resized(before: int, after: int) -> None:
    live = router(workers=before)
    route(live, KEYS[:1_000])
    step = build(workers=after)
    assert step.assign(2, None, state_of(live)) == f"restored the loads of {before} workers from topic router-state"
    live.set_workers(after)
    assert route(step, KEYS[1_000:]) == route(live, KEYS[1_000:])


@pytest.mark.parametrize("name", sorted(grouping.GROUPINGS))
@pytest.mark.parametrize(("before", "after"), [(1, 5), (5, 1), (2, 3)])
def test_router_changed_number_of_workers_sends_all_tuples_to_the_new_ones(name: str, before: int, after: int) -> None:
    step = router(name, workers=before)
    route(step, KEYS)
    step.set_workers(after)
    found = route(step, KEYS)
    assert {worker for worker, _ in found} == set(range(after))
    assert sum(len(rows) for _, rows in found) == len(KEYS)
    assert step.workers == after


def test_router_unchanged_number_of_workers_keeps_its_loads() -> None:
    step, same = router(), router()
    for each in (step, same):
        route(each, KEYS[:1_000])
    step.set_workers(3)
    assert route(step, KEYS[1_000:]) == route(same, KEYS[1_000:])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("partial_key", "measured loads"),
        ("d_choices", "measured loads: lower router.choices.sketch_size"),
        ("dynamic_key", "measured loads: lower router.dynamic_key.distinct_keys"),
    ],
)
def test_router_loads_too_large_for_a_record_are_not_saved_with_one_warning(
    name: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_state, "RECORD_BYTES", 20)
    warnings: list[str] = []
    step = build(name, warnings=warnings)
    step.assign(2, None, [])
    for turn in range(3):
        route(step, KEYS[:10])
        assert saved(step, turn * INTERVAL_MS) == []
    (warning,) = warnings
    assert warning == (
        f"the loads of {name} are not saved, because they are larger than a record (20 bytes). "
        f"After a restart the router starts without {remedy}"
    )


def test_router_dynamic_key_loads_too_large_for_a_record_are_saved_without_baby_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router_state, "RECORD_BYTES", 4_000)
    choice = grouping.create("dynamic_key", 4)
    keys, codes = [f"k{number}" for number in range(3_000)], np.zeros(100, dtype=np.int32)
    choice.assign(grouping.KeyBatch(keys, codes, codes.astype(np.int64)), 0)
    choice.assign(grouping.KeyBatch(keys, np.arange(3_000, dtype=np.int32), np.zeros(3_000, dtype=np.int64)), 45_000)
    record, restored = router_state.write(choice, 2), grouping.create("dynamic_key", 4)
    assert record is not None
    router_state.restore(restored, [(record.key or b"", record.value or b"")], 4)
    assert restored.hot_keys(5) == choice.hot_keys(5) != []
    assert restored.snapshot()["sent"] == choice.snapshot()["sent"]


def test_router_even_loads_of_the_most_buckets_are_saved_with_the_heaviest_ones() -> None:
    options = GroupingOptions.model_validate({"even": {"hash_buckets": 1_048_576}})
    choice, restored = grouping.create("even", 1_024, options), grouping.create("even", 1_024, options)
    keys = [f"k{number}" for number in range(600_000)]
    codes = np.concatenate([np.arange(600_000), np.zeros(10_000), np.full(5_000, 7)]).astype(np.int32)
    choice.assign(grouping.KeyBatch(keys, codes, np.zeros(len(codes), dtype=np.int64)), 0)
    record = router_state.write(choice, 2)
    assert record is not None
    router_state.restore(restored, [(record.key or b"", record.value or b"")], 1_024)
    assert restored.top_key_shares(190_000).tolist() == choice.top_key_shares(190_000).tolist()
    assert restored.snapshot()["loads"] == choice.snapshot()["loads"]
