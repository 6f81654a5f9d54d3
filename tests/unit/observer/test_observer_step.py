from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.watermark import END_OF_TIME
from skewless.asyncapi.written import WrittenBatch
from skewless.observer.run import Run
from skewless.observer.step import ObserverRules, ObserverStep
from skewless.records import PARTIALS, PROGRESS, Output, headers_of, write_table
from support import facts_in, reasons_in, repeated, written

Row = tuple[int, str, int, int]
"""pane, key, worker, count"""
ROWS = [
    (0, "a", 0, 50), (0, "a", 1, 30), (15, "a", 0, 5), (0, "b", 1, 10), (30, "c/1", 2, 4), (45, "d", 2, 10),
]  # fmt: skip


def deltas(*rows: Row) -> Output:
    panes, keys, workers, counts = zip(*rows, strict=True)
    table = pa.table({
        "pane": pa.array(panes, pa.int64()), "key": pa.array(keys, pa.string()), "count": pa.array(counts, pa.int64()),
        "worker": pa.array(workers, pa.int32()),
    })  # fmt: skip
    return Output("partials", write_table(table), headers=headers_of(PARTIALS, {}))


def progress(mark: int) -> Output:
    return Output("partials", None, headers=headers_of(PROGRESS, {0: mark}))


State = dict[int, list[tuple[bytes, bytes]]]


def observer(positions: Sequence[str | None] = (None, None), state: State | None = None) -> ObserverStep:
    rules = ObserverRules(tick_ms=60, workers=4, hottest=2, grouping="key")
    step = ObserverStep(rules, origins=1, partitions=len(positions), topic="p.partials")
    for partition, position in enumerate(positions):
        step.assign(partition, position, (state or {}).get(partition, ()))
    return step


def observe(step: ObserverStep, partition: int, *records: Output, now: int = 1_000) -> list[Output]:
    return list(step.process(WrittenBatch(partition, records), now))


def ticks(outputs: Iterable[Output]) -> list[dict[str, Any]]:
    return facts_in(written(outputs, "distribution"))


def state_of(outputs: Iterable[Output]) -> State:
    latest: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
    for output in written(outputs, "ticks"):
        assert output.key is not None
        assert output.partition is not None
        latest[output.partition].pop(output.key, None)
        if output.value is not None:
            latest[output.partition][output.key] = output.value
    return {partition: list(records.items()) for partition, records in latest.items()}


def test_a_tick_tells_the_naive_measures_over_all_partitions() -> None:
    step = observer()
    observe(step, 0, deltas(*ROWS[:3]), progress(60))
    observe(step, 1, deltas(*ROWS[3:]), progress(60))
    (output,) = written(step.flush(3_000), "distribution")
    (tick,) = facts_in([output])
    loads = [55, 40, 14, 0]
    shares = [load * 100 / 109 for load in loads]
    assert (output.key, output.timestamp, output.partition) == (b"0", 0, 0)
    assert (tick["tick_start"], tick["tick_end"], tick["grouping"], tick["workers"]) == (0, 60, "key", 4)
    assert (tick["tuples"], tick["tuples_by_worker"], tick["keys"]) == (109, loads, 4)
    assert tick["std_dev"] == pytest.approx(statistics.pstdev(shares))
    assert tick["imbalance"] == pytest.approx((55 - 109 / 4) / 109)
    assert tick["max_over_avg"] == pytest.approx(55 / (109 / 4))
    assert tick["dist_cost"] == pytest.approx(5 / 4)


def test_the_hottest_keys_come_by_tuples_then_by_name_with_the_workers_that_held_them() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), progress(60))
    assert ticks(step.flush(0))[0]["hottest_keys"] == [
        {"key": "a", "tuples": 85, "workers": 2},
        {"key": "b", "tuples": 10, "workers": 1},
    ]


def test_observer_with_enough_tuples_remembers_the_worst_tick() -> None:
    step = observer([None])
    observe(step, 0, deltas((0, "a", 0, 300), (0, "b", 1, 100)), progress(60))
    observe(step, 0, deltas((60, "a", 0, 250), (60, "b", 1, 150)), progress(120))
    observe(step, 0, deltas((120, "a", 0, 99)), progress(180))
    outputs = list(step.flush(0))
    assert [tick["run"]["worst_tick_max_over_avg"] for tick in ticks(outputs)] == [3.0, 3.0, 3.0]
    restored = observer([step.position(0)], state_of(outputs))
    observe(restored, 0, deltas((180, "a", 0, 1)), progress(240))
    assert [tick["run"]["worst_tick_max_over_avg"] for tick in ticks(restored.flush(0))] == [3.0]


def test_the_run_goes_on_over_ticks() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), now=1_000)
    observe(step, 0, deltas((60, "a", 3, 11)), progress(120), now=2_000)
    first, second = ticks(step.flush(5_000))
    assert first["run"] == second["run"]
    run = second["run"]
    assert (run["total_count"], run["duration"], run["throughput_ratio"]) == (120, 4_000, 30)
    assert run["tuples_by_worker"] == [55, 40, 14, 11]
    assert run["dist_cost"] == pytest.approx(6 / 4)


def test_a_tick_waits_for_all_partitions() -> None:
    step = observer()
    observe(step, 0, deltas(*ROWS), progress(60))
    assert ticks(step.flush(0)) == []
    observe(step, 1, progress(59))
    assert ticks(step.flush(0)) == []
    observe(step, 1, progress(60))
    assert len(ticks(step.flush(0))) == 1


def test_nothing_is_told_while_a_partition_is_not_here() -> None:
    step = observer()
    step.revoke(1)
    observe(step, 0, deltas(*ROWS), progress(60))
    assert ticks(step.flush(0)) == []


def test_a_tick_is_told_once_and_what_comes_later_counts_for_the_run_alone() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), progress(60))
    outputs = list(step.flush(0))
    observe(step, 0, deltas((45, "a", 0, 1), (60, "a", 0, 1)), progress(120))
    outputs += step.flush(0)
    assert repeated(tick["tick_start"] for tick in ticks(outputs)) == []
    assert [(tick["tick_start"], tick["tuples"]) for tick in ticks(outputs)] == [(0, 109), (60, 1)]
    assert ticks(outputs)[-1]["run"]["total_count"] == 111


def test_restarts_change_nothing() -> None:
    whole, restored = observer(), observer()
    written_so_far: list[Output] = []
    told: list[dict[str, Any]] = []
    positions = ["", ""]
    for moment in range(12):
        outputs = []
        for step in (whole, restored):
            for partition in (0, 1):
                rows = [(moment * 15, f"k{partition}{moment % 3}", worker, moment + 1) for worker in range(3)]
                observe(step, partition, deltas(*rows), progress(moment * 15), now=moment + 1)
            outputs.append(list(step.flush(moment + 10)))
        assert ticks(outputs[0]) == ticks(outputs[1])
        written_so_far += outputs[1]
        told += ticks(outputs[1])
        positions = [restored.position(partition) for partition in (0, 1)]
        restored = observer(positions, state_of(written_so_far))
    assert [tick["tick_start"] for tick in told] == [0, 60]
    assert told[-1]["run"]["total_count"] == 6 * sum(range(1, 10))


def test_the_end_of_time_tells_the_last_tick_and_newer_ticks_follow() -> None:
    step = observer()
    observe(step, 0, deltas(*ROWS), progress(END_OF_TIME))
    observe(step, 1, deltas((60, "z", 0, 1)), progress(END_OF_TIME))
    outputs = list(step.flush(0))
    assert [tick["tick_start"] for tick in ticks(outputs)] == [0, 60]
    assert step.finished(0)
    assert step.finished(1)
    again = observer([step.position(0), step.position(1)], state_of(outputs))
    observe(again, 0, deltas((60, "a", 0, 1), (120, "a", 0, 7)), progress(180))
    observe(again, 1, progress(180))
    assert [(tick["tick_start"], tick["tuples"]) for tick in ticks(again.flush(0))] == [(120, 7)]


def test_told_ticks_leave_the_changelog() -> None:
    step = observer([None])
    outputs: list[Output] = []
    for tick in range(5):
        observe(step, 0, deltas((tick * 60, "a", 0, 1)), progress(tick * 60))
        outputs += step.flush(0)
    assert {key for key, _ in state_of(outputs)[0]} == {b"run", b"240/0"}


BAD = {
    "no Arrow IPC stream": Output("partials", b"junk", headers=headers_of(PARTIALS, {})),
    "columns missing": Output("partials", write_table(pa.table({"pane": [1]})), headers=headers_of(PARTIALS, {})),
    "no schema": Output("partials", b"junk"),
    "an unknown origin": Output("partials", deltas(*ROWS).value, headers=headers_of(PARTIALS, {3: 1})),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_dead_letters_and_count_for_nothing(name: str) -> None:
    step = observer([None])
    outputs = observe(step, 0, deltas(*ROWS[:1]), BAD[name], deltas(*ROWS[1:]), progress(60))
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    (tick,) = ticks(step.flush(0))
    assert (tick["tuples"], tick["run"]["total_count"]) == (109, 109)


def test_sketches_are_exact_for_few_keys_and_near_for_many() -> None:
    for keys, error in ((100, 1e-3), (20_000, 0.04)):
        run = Run()
        for worker in (0, 1, 2):
            run.add([f"k{number}" for number in range(keys)], np.full(keys, worker), np.zeros(3, np.int64), 0)
        assert run.dist_cost() == pytest.approx(3, rel=error)


def test_a_saved_run_comes_back_in_bounded_size() -> None:
    run = Run()
    counts: Counter[int] = Counter()
    for number in range(20_000):
        counts[number % 3] += 1
    run.add([f"k{number}" for number in range(20_000)], np.zeros(20_000, np.int64), np.array([counts[0], 5, 6]), 77)
    saved = run.save()
    restored = Run.load(saved)
    assert len(saved) < 40_000
    assert (restored.tuples.tolist(), restored.first_ms) == ([6667, 5, 6], 77)
    assert restored.dist_cost() == run.dist_cost()
    assert Run.load(Run().save()).first_ms is None


def test_workers_that_w_has_now_and_workers_that_had_tuples_are_compared() -> None:
    step = observer([None])
    step.resize(6)
    observe(step, 0, deltas(*ROWS), progress(60))
    (grown,) = ticks(step.flush(0))
    assert (grown["workers"], grown["tuples_by_worker"]) == (6, [55, 40, 14, 0, 0, 0])
    step.resize(2)
    observe(step, 0, deltas((60, "a", 2, 5)), progress(120))
    observe(step, 0, deltas((120, "a", 1, 5)), progress(180))
    spanning, shrunk = ticks(step.flush(0))
    assert (spanning["workers"], spanning["tuples_by_worker"]) == (3, [0, 0, 5])
    assert (shrunk["workers"], shrunk["tuples_by_worker"]) == (2, [0, 5])
