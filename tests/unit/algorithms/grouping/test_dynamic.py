from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from helpers.hashing import hash64, worker_of
from skewless.algorithms.grouping import Grouping, GroupingOptions, KeyBatch, create
from skewless.algorithms.grouping.dynamic import DynamicKeyGrouping


def grouping(workers: int, **options: object) -> DynamicKeyGrouping:
    made = create("dynamic_key", workers, GroupingOptions.model_validate({"clock": "event", "dynamic_key": options}))
    assert isinstance(made, DynamicKeyGrouping)
    return made


def send(to: Grouping, *keys: str, at: float = 0, now: int = 0) -> list[int]:
    """Assign all keys at the same time, `at` seconds."""
    index = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    codes = np.array([index[key] for key in keys], dtype=np.int32)
    times = np.full(len(keys), int(at * 1_000), dtype=np.int64)
    return [int(worker) for worker in to.assign(KeyBatch(list(index), codes, times), now)]


def home(key: str, workers: int) -> int:
    return worker_of(hash64(key, 13), workers)


def key_at(worker: int, workers: int) -> str:
    return next(str(number) for number in range(10_000) if home(str(number), workers) == worker)


def width(of: DynamicKeyGrouping, key: str, at: float) -> int:
    """Return the number of workers of a key after a tuple of it; then equalise the loads of its workers."""
    send(of, key, at=at)
    size = pool_of(of, key)
    send(of, *[key] * 200, at=at)
    return size


def pool_of(of: DynamicKeyGrouping, key: str) -> int:
    state: dict[str, Any] = of.snapshot()
    return int(np.frombuffer(state["pool"], dtype=np.int32)[state["keys"].index(key)])


def promotions_of(of: DynamicKeyGrouping) -> int:
    return msgspec.convert(of.snapshot()["promotions"], int)


def hot_keys(workers: int, *, minutes: int, **options: object) -> DynamicKeyGrouping:
    """Assign only tuples of "hot", which gets one more worker per minute."""
    made = grouping(workers, **options)
    for minute in range(minutes + 1):
        send(made, *["hot"] * 20, at=minute * 61)
    return made


def test_dynamic_key_new_key_alternates_between_its_home_and_the_next_worker() -> None:
    first = home("hot", 10)
    assert send(grouping(10), *["hot"] * 4) == [first, (first + 1) % 10] * 2


@pytest.mark.parametrize("initial", [1, 2, 4])
def test_dynamic_key_initial_workers_set_gives_a_new_key_that_many(initial: int) -> None:
    first, new = home("hot", 10), grouping(10, initial_workers=initial)
    assert send(new, *["hot"] * 2 * initial) == [(first + step) % 10 for step in range(initial)] * 2
    widths = new.widths()
    assert widths.usual == initial


def test_dynamic_key_more_initial_workers_than_workers_uses_all() -> None:
    new = grouping(3, initial_workers=5)
    assert sorted(set(send(new, *["hot"] * 6))) == [0, 1, 2]
    assert new.widths().usual == 3


@pytest.mark.parametrize(("initial", "expected"), [(2, 3), (3, 3), (4, 4)])
def test_dynamic_key_shrinking_pool_keeps_the_initial_workers(initial: int, expected: int) -> None:
    made = grouping(4, rules="reference", check_interval_s=0, initial_workers=initial)
    send(made, "hot")
    state: dict[str, Any] = made.snapshot()
    loads = np.array([30, 30, 20, 20], dtype=np.int64)
    made.restore(state | {"sent": loads.tobytes(), "pool": np.array([4], dtype=np.int32).tobytes()})
    send(made, "hot", at=1)
    assert pool_of(made, "hot") == expected


def test_dynamic_key_hot_key_once_old_gains_a_worker_per_minute() -> None:
    hot = grouping(10)
    send(hot, *["hot"] * 100)
    assert width(hot, "hot", 45) == 2
    assert width(hot, "hot", 60) == 2
    assert width(hot, "hot", 60.001) == 3
    assert width(hot, "hot", 120.001) == 3
    assert width(hot, "hot", 120.002) == 4


def test_dynamic_key_pool_at_the_end_of_the_ring_continues_at_its_start() -> None:
    key, hot = key_at(9, 10), grouping(10)
    send(hot, *[key] * 100)
    send(hot, key, at=45)
    assert send(hot, key, at=61) == [1]
    assert set(send(hot, *[key] * 500, at=61)) == {9, 0, 1}


def test_dynamic_key_pool_never_exceeds_the_number_of_workers() -> None:
    for workers in (1, 2, 3):
        assert set(send(hot_keys(workers, minutes=2), *["hot"] * 100, at=600)) == set(range(workers))


def test_dynamic_key_during_the_warm_up_grows_no_pool() -> None:
    hot = grouping(10, warm_up_s=300)
    for at in range(0, 301, 10):
        assert width(hot, "hot", at) == 2
    assert width(hot, "hot", 350) == 3


def test_dynamic_key_next_worker_equally_loaded_grows_no_pool() -> None:
    first, second = (key_at(worker, 4) for worker in (0, 2))
    full = grouping(4, rules="reference")
    for minute in range(5):
        send(full, *[first, second] * 500, at=minute * 61)
    assert full.snapshot()["pool"] == np.array([2, 2], dtype=np.int32).tobytes()


@pytest.mark.parametrize(("rules", "expected"), [("published", 4), ("reference", 3)])
def test_dynamic_key_reference_rules_shrink_below_upper_and_published_below_lower_threshold(
    rules: str, expected: int
) -> None:
    made = grouping(4, rules=rules, check_interval_s=0)
    send(made, "hot")
    state: dict[str, Any] = made.snapshot()
    loads = np.array([30, 30, 20, 20], dtype=np.int64)
    made.restore(state | {"sent": loads.tobytes(), "pool": np.array([4], dtype=np.int32).tobytes()})
    send(made, "hot", at=1)
    assert made.snapshot()["pool"] == np.array([expected], dtype=np.int32).tobytes()


def test_dynamic_key_processing_time_domain_promotes_by_the_clock() -> None:
    made = create("dynamic_key", 10)
    assert isinstance(made, DynamicKeyGrouping)
    send(made, "hot", now=1_000)
    send(made, "hot", at=1_000_000, now=45_999)
    assert made.hot_keys(10) == []
    send(made, "hot", now=46_000)
    assert [hot.key for hot in made.hot_keys(10)] == ["hot"]


def test_dynamic_key_hottest_keys_report_tuples_and_workers() -> None:
    made = grouping(10)
    send(made, *["hot"] * 10, "cold")
    send(made, "hot", at=45)
    assert [(hot.key, hot.tuples, hot.workers) for hot in made.hot_keys(10)] == [("hot", 11, 2), ("cold", 1, 1)]


def test_dynamic_key_resized_clips_pools_and_resets_loads_and_keeps_the_key_space() -> None:
    made = hot_keys(20, minutes=10)
    before = made.hot_keys(10)
    made.resize(3)
    assert made.snapshot()["sent"] == np.zeros(3, dtype=np.int64).tobytes()
    assert [(hot.key, hot.tuples) for hot in made.hot_keys(10)] == [(hot.key, hot.tuples) for hot in before]
    assert pool_of(made, "hot") == 3
    assert set(send(made, *["hot"] * 100, at=660)) == {0, 1, 2}
    made.resize(200)
    assert pool_of(made, "hot") == 3


def test_dynamic_key_keys_beyond_the_overfill_are_routed_without_being_counted() -> None:
    made = grouping(10, max_baby_keys=5)
    assert len(send(made, *(f"key {number}" for number in range(100)))) == 100
    assert made.snapshot()["keys"] == [f"key {number}" for number in range(5)]
    send(made, *(f"other {number}" for number in range(100)), at=15)
    assert len(msgspec.convert(made.snapshot()["keys"], list[str])) == 10


def test_dynamic_key_changing_keys_keep_its_state_bounded() -> None:
    made = grouping(10)
    for turn in range(50):
        send(made, *(f"{turn} {number}" for number in range(500)), at=turn * 15)
    assert len(made._table.names) <= 2_000
    assert len(msgspec.convert(made.snapshot()["keys"], list[str])) <= 600


@pytest.mark.parametrize(
    ("rules", "at", "size"), [("published", 3_720, 4), ("published", 3_740, 2), ("reference", 3_740, 4)]
)
def test_dynamic_key_pool_of_an_evicted_key_expires_by_the_published_rules_only(rules: str, at: int, size: int) -> None:
    made = hot_keys(5, minutes=2, rules=rules)
    assert pool_of(made, "hot") == 4
    for turn in range(20):
        send(made, *(f"other {number}" for number in range(100) for _ in range(200)), at=200 + turn * 15)
    send(made, "", at=at)
    assert "hot" not in {hot.key for hot in made.hot_keys(10)}
    assert width(made, "hot", at) == size


def without(snapshot: dict[str, object], *names: str) -> dict[str, object]:
    """Return the snapshot without values that version 0.3 did not store."""
    return {name: value for name, value in snapshot.items() if name not in names}


@pytest.mark.parametrize("new", [(), ("promoted", "by_event_time", "sent_before_resize")])
@pytest.mark.parametrize("interval", [10, 60])
def test_dynamic_key_restored_with_another_interval_promotes_once_per_interval(
    interval: int, new: tuple[str, ...]
) -> None:
    month = 30 * 86_400
    made, restored = grouping(10), grouping(10, promotion_interval_s=interval)
    send(made, "hot")
    send(made, "hot", at=month)
    restored.restore(without(made.snapshot(), *new))
    send(restored, "hot", at=month + interval)
    before = promotions_of(restored)
    for turn in range(1, 4):
        send(restored, "hot", at=month + (turn + 1) * interval)
        assert promotions_of(restored) == before + turn


def test_dynamic_key_restored_with_another_interval_counts_it_from_the_last_promotion() -> None:
    made, restored = grouping(10, promotion_interval_s=60), grouping(10, promotion_interval_s=15)
    send(made, "hot")
    send(made, "hot", at=120)
    restored.restore(made.snapshot())
    send(restored, "hot", at=134)
    assert promotions_of(restored) == 3
    send(restored, "hot", at=135)
    assert promotions_of(restored) == 4


def test_dynamic_key_restored_with_another_clock_continues_from_its_first_time() -> None:
    made, restored = create("dynamic_key", 10), hot_keys(10, minutes=0)
    for second in range(0, 91, 15):
        send(made, *["hot"] * 20, now=1_800_000_000_000 + second * 1_000)
    restored.restore(made.snapshot())
    send(restored, *["hot"] * 20, at=100)
    assert [hot.key for hot in restored.hot_keys(10)] == ["hot"]
    send(restored, *["new"] * 20, at=101)
    before = pool_of(restored, "hot")
    send(restored, *["hot"] * 400, *["new"] * 20, at=170)
    assert pool_of(restored, "hot") > before
    send(restored, "other", at=3_800)
    assert restored.hot_keys(10) == []


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restored"])
def test_dynamic_key_clock_set_back_keeps_adapting(*, restarts: bool) -> None:
    set_back = 1_800_000_000
    made = create("dynamic_key", 10)
    for second in range(0, 181, 15):
        send(made, *["first"] * 20, now=(set_back + 3_600 + second) * 1_000)
    if restarts:
        saved, made = made.snapshot(), create("dynamic_key", 10)
        made.restore(saved)
    for second in range(0, 181, 15):
        send(made, *["first"] * 20, *["second"] * 400, now=(set_back + second) * 1_000)
    assert made.hot_keys(1)[0].key == "second"
    assert made.hot_keys(1)[0].workers > 2


def test_dynamic_key_restored_after_a_resize_reports_shares_of_all_tuples() -> None:
    made, restored = hot_keys(20, minutes=2), grouping(3)
    made.resize(3)
    send(made, *["other"] * 60, at=183)
    restored.restore(made.snapshot())
    assert restored.top_key_shares(1).tolist() == made.top_key_shares(1).tolist() == [0.5]


@pytest.mark.parametrize(
    "broken",
    [
        {"sent": b""},
        {"start": None},
        {"promotions": "4"},
        {"promoted": None},
        {"sent_before_resize": None},
        {"keys": None},
        {"keys": ["hot", "hot"]},
        {"keys": []},
        {"used": b""},
        {"pool": np.array([9], dtype=np.int32).tobytes()},
    ],
)
def test_dynamic_key_invalid_snapshot_is_refused(broken: dict[str, object]) -> None:
    made = grouping(4)
    send(made, "hot")
    with pytest.raises(TypeError, match="snapshot has"):
        made.restore(made.snapshot() | broken)


def test_dynamic_key_default_options_are_those_of_the_paper() -> None:
    options = GroupingOptions.model_validate({}).dynamic_key
    assert (options.rules, options.warm_up_s, options.check_interval_s) == ("published", 15, 60)
    assert (options.distinct_keys, options.promotion_interval_s, options.evict_after_s) == (100, 15, 3_600)
