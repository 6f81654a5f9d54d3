"""A router's loads outlive its process, and another number of workers is no reason to begin anew."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from skewless.algorithms import grouping
from skewless.algorithms.grouping import Grouping
from skewless.algorithms.grouping.shuffle import ShuffleGrouping
from skewless.asyncapi.written import WrittenBatch
from skewless.records import TUPLES, Output, headers_of
from skewless.router import loads
from skewless.router.step import RouterStep
from support import encode_tuples, tuples_in, written

KEYS = np.random.default_rng(3).zipf(1.4, 3_000) % 50
INTERVAL_MS = 1_000
Records = list[tuple[bytes, bytes]]
Routed = tuple[int | None, list[tuple[str, int, int]]]


def build(name: str = "partial_key", workers: int = 3) -> RouterStep:
    choice = grouping.create(name, workers)
    return RouterStep(choice, max_workers=5, encoding="batch", topic="p.tuples", snapshot_ms=INTERVAL_MS)


def router(name: str = "partial_key", workers: int = 3, state: Records | None = None) -> RouterStep:
    step = build(name, workers)
    step.assign(2, None, state or [])
    return step


def route(
    step: RouterStep, keys: NDArray[np.int64], now: int = 0
) -> list[tuple[int | None, list[tuple[str, int, int]]]]:
    """Tuples by worker."""
    column = pa.array([f"k{key}" for key in keys]).dictionary_encode()
    ones = np.ones(len(keys), dtype=np.int64)
    record = Output("tuples", encode_tuples(column, ones, np.arange(len(keys))), headers=headers_of(TUPLES, {2: 5}))
    return [(output.partition, tuples_in([output])) for output in step.process(WrittenBatch(2, [record]), 0)]


def saved(step: RouterStep, now: int = 0) -> list[Output]:
    return written(step.flush(now), "control")


def state_of(step: RouterStep, now: int = 0) -> Records:
    return [(output.key or b"", output.value or b"") for output in saved(step, now)]


@pytest.mark.parametrize("name", sorted(grouping.GROUPINGS))
def test_a_restarted_router_chooses_as_if_it_had_never_stopped(name: str) -> None:
    whole = router(name)
    route(whole, KEYS[:1_000])
    restarted = router(name, state=state_of(whole))
    assert route(restarted, KEYS[1_000:]) == route(whole, KEYS[1_000:])


def test_without_loads_it_chooses_differently_so_the_test_above_shows_something() -> None:
    whole = router()
    route(whole, KEYS[:1_000])
    assert route(router(), KEYS[1_000:]) != route(whole, KEYS[1_000:])


def test_loads_are_saved_with_the_first_tuples_and_then_once_per_interval() -> None:
    step = router()
    assert saved(step, 0) == []
    times = []
    for now in range(100, 5_000, 100):
        route(step, KEYS[:10])
        times += [now] * len(saved(step, now))
    assert times == [100, 1_100, 2_100, 3_100, 4_100]


def test_loads_that_have_not_changed_are_not_saved_again() -> None:
    step = router()
    route(step, KEYS[:10])
    assert [len(saved(step, now)) for now in (0, 1_000, 2_000)] == [1, 0, 0]


def test_a_clock_that_is_set_back_does_not_stop_the_saving() -> None:
    step = router()
    route(step, KEYS[:10])
    assert saved(step, 10**9)
    route(step, KEYS[:10])
    assert saved(step, 5)


def test_loads_go_to_the_lowest_partition_that_is_owned_under_the_name_of_the_grouping() -> None:
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


def test_a_router_that_owns_nothing_saves_nothing() -> None:
    step = router()
    route(step, KEYS[:10])
    step.revoke(2)
    assert saved(step) == []


def test_a_router_that_has_loads_keeps_them_whatever_it_is_given() -> None:
    other = router()
    route(other, KEYS[:10])
    step, same = router(), router()
    for each in (step, same):
        route(each, KEYS[:1_000])
    assert not step.fresh
    step.revoke(2)
    assert step.assign(2, None, state_of(other)) is None
    assert route(step, KEYS[1_000:]) == route(same, KEYS[1_000:])


def test_the_first_loads_that_are_found_count() -> None:
    first, second = router(), router()
    route(first, KEYS[:1_000])
    route(second, KEYS[1_000:])
    step = router(state=state_of(first))
    assert not step.fresh
    assert step.assign(3, None, state_of(second)) is None
    assert route(step, KEYS[:500]) == route(first, KEYS[:500])


def encoded(**state: object) -> bytes:
    return msgspec.msgpack.encode(loads.Loads(loads.SCHEMA, dict(state)))


BROKEN = {
    "no bytes": b"",
    "no MessagePack": b"\xc1\xff",
    "another thing": msgspec.msgpack.encode([1, 2]),
    "a later version": msgspec.msgpack.encode(loads.Loads("skewless.loads.v2", {"workers": 3, "sent": bytes(24)})),
    "no number of workers": encoded(sent=bytes(24)),
    "no worker": encoded(workers=0, sent=b""),
    "more workers than there are": encoded(workers=10**9, sent=bytes(24)),
    "loads of other workers than it says": encoded(workers=4, sent=bytes(24)),
    "no loads": encoded(workers=4),
}


@pytest.mark.parametrize("name", BROKEN)
def test_loads_that_cannot_be_read_are_told_and_leave_no_trace(name: str) -> None:
    step = build()
    told = step.assign(2, None, [(b"loads/partial_key", BROKEN[name])])
    assert told is not None
    assert told.startswith("loads in topic control are ignored and begin at zero: ")
    assert route(step, KEYS) == route(router(), KEYS)


def test_a_grouping_that_fails_of_foreign_loads_is_as_before() -> None:
    class Fails(ShuffleGrouping):
        def restore(self, snapshot: object) -> None:
            self._next = 1
            if snapshot != {"workers": 3, "next": 0}:
                raise ZeroDivisionError
            self._next = 0

    choice: Grouping = Fails(3, grouping.DEFAULTS)
    told = loads.restore(choice, [(b"loads/shuffle", encoded(workers=3, next=2))], 5)
    assert told is not None
    assert choice.snapshot() == {"workers": 3, "next": 0}


def test_loads_of_another_grouping_are_left_alone() -> None:
    shuffle = router("shuffle")
    route(shuffle, KEYS[:10])
    step = build()
    assert step.assign(2, None, state_of(shuffle)) is None
    assert step.fresh


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2)])
def test_loads_of_another_w_are_taken_over_and_then_resized_as_if_live(before: int, after: int) -> None:
    live = router(workers=before)
    route(live, KEYS[:1_000])
    step = build(workers=after)
    assert step.assign(2, None, state_of(live)) == f"goes on with the loads in topic control, of {before} workers"
    live.resize(after)
    assert route(step, KEYS[1_000:]) == route(live, KEYS[1_000:])


@pytest.mark.parametrize("name", sorted(grouping.GROUPINGS))
@pytest.mark.parametrize(("before", "after"), [(1, 5), (5, 1), (2, 3)])
def test_from_a_change_of_w_on_the_new_workers_get_all_tuples(name: str, before: int, after: int) -> None:
    step = router(name, workers=before)
    route(step, KEYS)
    step.resize(after)
    found = route(step, KEYS)
    assert {worker for worker, _ in found} == set(range(after))
    assert sum(len(rows) for _, rows in found) == len(KEYS)
    assert step.workers == after


def test_w_as_it_was_changes_no_loads() -> None:
    step, same = router(), router()
    for each in (step, same):
        route(each, KEYS[:1_000])
    step.resize(3)
    assert route(step, KEYS[1_000:]) == route(same, KEYS[1_000:])


def test_loads_too_large_for_a_record_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "RECORD_BYTES", 20)
    step = router()
    route(step, KEYS[:10])
    assert saved(step) == []
