from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec import UNSET

from helpers.batches import json_values_in, reasons_in, repeated, written
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.window import COMPACTION_THRESHOLD
from skewless.engine.step import Sample
from skewless.stages.observer.restore import unsaved_state
from skewless.stages.observer.run_statistics import RunStatistics
from skewless.stages.observer.step import RUN_KEY, ObserverRules, ObserverStep
from skewless.wire.changelog import decode_checkpoint
from skewless.wire.columns import read_table, write_table
from skewless.wire.distribution import TickDistribution
from skewless.wire.headers import WATERMARK
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord

Row = tuple[int, str, int, int]
"""pane, key, worker, count"""
ROWS = [
    (0, "a", 0, 50), (0, "a", 1, 30), (15, "a", 0, 5), (0, "b", 1, 10), (30, "c/1", 2, 4), (45, "d", 2, 10),
]  # fmt: skip


def deltas(*rows: Row) -> OutputRecord:
    panes, keys, workers, counts = zip(*rows, strict=True)
    table = pa.table({
        "pane": pa.array(panes, pa.int64()), "key": pa.array(keys, pa.string()), "count": pa.array(counts, pa.int64()),
        "worker": pa.array(workers, pa.int32()),
    })  # fmt: skip
    return OutputRecord("partials", write_table(table), headers=internal_headers(PARTIALS, {}))


def progress(watermark: int) -> OutputRecord:
    return OutputRecord("partials", None, headers=internal_headers(WATERMARK, {0: watermark}))


State = dict[int, list[tuple[bytes, bytes]]]


def observer(
    positions: Sequence[str | None] = (None, None), state: State | None = None, save_interval_ms: int = 0
) -> ObserverStep:
    rules = ObserverRules(tick_ms=60, workers=4, top_keys=2, grouping="key")
    step = ObserverStep(rules, worker_partitions=1, aggregator_partitions=len(positions), topic="p.partials")
    step.save_interval_ms = save_interval_ms
    for partition, position in enumerate(positions):
        step.assign(partition, position, (state or {}).get(partition, ()))
    return step


def observe(step: ObserverStep, partition: int, *records: OutputRecord, now: int = 1_000) -> list[OutputRecord]:
    return list(step.process(InMemoryBatch(partition, records), now))


def ticks(outputs: Iterable[OutputRecord]) -> list[dict[str, Any]]:
    return json_values_in(written(outputs, "distribution"))


def state_of(outputs: Iterable[OutputRecord]) -> State:
    latest: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
    for output in written(outputs, "observer-changelog"):
        assert output.key is not None
        assert output.partition is not None
        latest[output.partition].pop(output.key, None)
        if output.value is not None:
            latest[output.partition][output.key] = output.value
    return {partition: list(records.items()) for partition, records in latest.items()}


def test_observer_tick_over_all_partitions_reports_the_reference_measures() -> None:
    step = observer()
    observe(step, 0, deltas(*ROWS[:3]), progress(60))
    observe(step, 1, deltas(*ROWS[3:]), progress(60))
    (output,) = written(step.flush(3_000), "distribution")
    (tick,) = json_values_in([output])
    loads = [55, 40, 14, 0]
    shares = [load * 100 / 109 for load in loads]
    assert (output.key, output.timestamp, output.partition) == (b"0", 0, 0)
    assert (tick["tick_start"], tick["tick_end"], tick["grouping"], tick["workers"]) == (0, 60, "key", 4)
    assert (tick["tuples"], tick["tuples_by_worker"], tick["keys"]) == (109, loads, 4)
    assert tick["load_stddev_percent"] == pytest.approx(statistics.pstdev(shares))
    assert tick["imbalance"] == pytest.approx((55 - 109 / 4) / 109)
    assert tick["max_over_avg"] == pytest.approx(55 / (109 / 4))
    assert tick["replication_factor"] == pytest.approx(5 / 4)


def test_observer_hottest_keys_are_sorted_by_tuples_then_name_and_count_their_workers() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), progress(60))
    assert ticks(step.flush(0))[0]["top_keys"] == [
        {"key": "a", "tuples": 85, "workers": 2},
        {"key": "b", "tuples": 10, "workers": 1},
    ]


def test_observer_ticks_that_begin_and_end_at_once_equal_those_that_were_stored() -> None:
    rows = [(60 * tick, key, worker, tick + worker + 1) for tick in range(5) for key in "ab" for worker in range(2)]
    stored, at_once = observer(), observer()
    found: list[list[dict[str, Any]]] = []
    for step, flushed in ((stored, True), (at_once, False)):
        observe(step, 0, deltas(*rows[::2]))
        observe(step, 1, deltas(*rows[1::2]))
        outputs = list(step.flush(0)) if flushed else []
        observe(step, 0, progress(240))
        observe(step, 1, progress(240))
        outputs += step.flush(0)
        found.append(ticks(outputs))
        changed = {output.key for output in written(outputs, "observer-changelog")} - {b"run"}
        assert changed == {f"{60 * tick}/0/changes".encode() for tick in (range(5) if flushed else [4])}
    assert [tick["tick_start"] for tick in found[0]] == [0, 60, 120, 180]
    assert found[0] == found[1]


def hot_keys(outputs: Iterable[OutputRecord]) -> list[tuple[str, bool, float, int, int, int]]:
    names = ("key", "hot", "share", "workers", "hot_since", "tick_start")
    return [tuple(change[name] for name in names) for change in json_values_in(written(outputs, "hot-keys"))]


def test_observer_key_that_crosses_the_share_of_a_worker_is_reported_once_each_way_over_a_restart() -> None:
    step = observer([None])
    observe(step, 0, deltas((0, "a", 0, 150), (0, "a", 1, 150), (0, "b", 1, 100)), progress(60))
    observe(step, 0, deltas((60, "a", 0, 300), (60, "b", 1, 100)), progress(120))
    outputs = list(step.flush(0))
    assert hot_keys(outputs) == [("a", True, 0.75, 2, 0, 0)]
    (change,) = written(outputs, "hot-keys")
    assert (change.key, change.timestamp, change.partition) == (b"a", 0, 0)
    assert metric(step, "skewless_observer_hot_keys") == 1

    restored = observer([step.checkpoint(0)], state_of(outputs))
    observe(restored, 0, deltas((120, "a", 0, 10), (120, "b", 1, 390)), progress(180))
    observe(restored, 0, deltas((180, "a", 0, 399)), progress(240))  # too few tuples to judge
    assert hot_keys(restored.flush(0)) == [("b", True, 0.975, 1, 120, 120), ("a", False, 0.025, 1, 0, 120)]
    assert metric(restored, "skewless_observer_hot_keys") == 1


def metric(step: ObserverStep, name: str) -> float:
    (sample,) = (sample for sample in step.collect_metrics() if sample.name == name)
    assert isinstance(sample, Sample)
    return sample.value


def test_observer_with_enough_tuples_reports_the_worst_tick() -> None:
    step = observer([None])
    observe(step, 0, deltas((0, "a", 0, 300), (0, "b", 1, 100)), progress(60))
    observe(step, 0, deltas((60, "a", 0, 250), (60, "b", 1, 150)), progress(120))
    observe(step, 0, deltas((120, "a", 0, 99)), progress(180))
    outputs = list(step.flush(0))
    assert [tick["run"]["worst_tick_max_over_avg"] for tick in ticks(outputs)] == [3.0, 3.0, 3.0]
    restored = observer([step.checkpoint(0)], state_of(outputs))
    observe(restored, 0, deltas((180, "a", 0, 1)), progress(240))
    assert [tick["run"]["worst_tick_max_over_avg"] for tick in ticks(restored.flush(0))] == [3.0]


def test_observer_worst_tick_that_ends_after_its_partials_were_saved_survives_a_restart() -> None:
    step = observer([None])
    observe(step, 0, deltas((0, "a", 0, 300), (0, "b", 1, 100)))
    outputs = list(step.flush(0))
    observe(step, 0, progress(60))
    outputs += step.flush(0)
    restored = observer([step.checkpoint(0)], state_of(outputs))
    observe(restored, 0, deltas((60, "a", 0, 1)), progress(120))
    assert [tick["run"]["worst_tick_max_over_avg"] for tick in ticks(restored.flush(0))] == [3.0]


def test_observer_run_statistics_accumulate_over_ticks() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), now=1_000)
    observe(step, 0, deltas((60, "a", 3, 11)), progress(120), now=2_000)
    first, second = ticks(step.flush(5_000))
    assert first["run"] == second["run"]
    run = second["run"]
    assert (run["tuples"], run["duration_ms"], run["tuples_per_s"]) == (120, 4_000, 30)
    assert run["tuples_by_worker"] == [55, 40, 14, 11]
    assert run["replication_factor"] == pytest.approx(6 / 4)


def test_observer_tick_waits_for_all_partitions() -> None:
    step = observer()
    observe(step, 0, deltas(*ROWS), progress(60))
    assert ticks(step.flush(0)) == []
    observe(step, 1, progress(59))
    assert ticks(step.flush(0)) == []
    observe(step, 1, progress(60))
    assert len(ticks(step.flush(0))) == 1


def test_observer_partition_not_assigned_emits_nothing() -> None:
    step = observer()
    step.revoke(1)
    observe(step, 0, deltas(*ROWS), progress(60))
    assert ticks(step.flush(0)) == []


def test_observer_late_partials_after_a_tick_count_for_the_run_only() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), progress(60))
    outputs = list(step.flush(0))
    observe(step, 0, deltas((45, "a", 0, 1), (60, "a", 0, 1)), progress(120))
    outputs += step.flush(0)
    assert repeated(tick["tick_start"] for tick in ticks(outputs)) == []
    assert [(tick["tick_start"], tick["tuples"]) for tick in ticks(outputs)] == [(0, 109), (60, 1)]
    assert ticks(outputs)[-1]["run"]["tuples"] == 111


def test_observer_restarted_at_any_flush_gives_the_same_ticks() -> None:
    whole, restored = observer(), observer()
    written_so_far: list[OutputRecord] = []
    emitted: list[dict[str, Any]] = []
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
        emitted += ticks(outputs[1])
        positions = [restored.checkpoint(partition) for partition in (0, 1)]
        restored = observer(positions, state_of(written_so_far))
    assert [tick["tick_start"] for tick in emitted] == [0, 60]
    assert emitted[-1]["run"]["tuples"] == 6 * sum(range(1, 10))


def test_observer_max_watermark_emits_the_last_tick_and_newer_ticks_follow() -> None:
    step = observer()
    observe(step, 0, deltas(*ROWS), progress(MAX_WATERMARK))
    observe(step, 1, deltas((60, "z", 0, 1)), progress(MAX_WATERMARK))
    outputs = list(step.flush(0))
    assert [tick["tick_start"] for tick in ticks(outputs)] == [0, 60]
    assert step.finished(0)
    assert step.finished(1)
    again = observer([step.checkpoint(0), step.checkpoint(1)], state_of(outputs))
    observe(again, 0, deltas((60, "a", 0, 1), (120, "a", 0, 7)), progress(180))
    observe(again, 1, progress(180))
    assert [(tick["tick_start"], tick["tuples"]) for tick in ticks(again.flush(0))] == [(120, 7)]


def test_observer_many_ended_ticks_are_emitted_over_several_commits_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    step, emitted = observer(), []
    step.ticks_per_commit = 2
    observe(step, 0, deltas(*[(60 * tick, "a", 0, 1) for tick in range(5)]), progress(MAX_WATERMARK))
    observe(step, 1, deltas((180, "b", 1, 2)), progress(MAX_WATERMARK))
    while True:
        outputs = list(step.flush(2_000))
        emitted.append([tick["tick_start"] for tick in ticks(outputs)])
        if step.finished(0):
            break
        assert not step.finished(1)
        assert len(emitted) < 10
    assert emitted == [[0, 60], [120, 180], [240]]
    assert step.finished(1)


def test_observer_many_ticks_between_stored_ones_are_emitted_once_and_in_order() -> None:
    step, emitted = observer([None]), []
    step.ticks_per_commit = 5
    observe(step, 0, deltas((0, "a", 0, 1), (600, "a", 0, 1)))
    list(step.flush(0))
    observe(step, 0, deltas(*[(60 * tick, "a", 0, 1) for tick in (*range(1, 10), 11)]), progress(720))
    for _ in range(4):
        emitted += [tick["tick_start"] for tick in ticks(step.flush(0))]
    assert emitted == [60 * tick for tick in range(12)]


def test_observer_emitted_ticks_are_tombstoned() -> None:
    step = observer([None])
    outputs: list[OutputRecord] = []
    for tick in range(5):
        observe(step, 0, deltas((tick * 60, "a", 0, 1)), progress(tick * 60))
        outputs += step.flush(0)
    assert {key for key, _ in state_of(outputs)[0]} == {b"run", b"180/0/changes", b"240/0/changes"}


INVALID = {
    "no Arrow IPC stream": OutputRecord("partials", b"junk", headers=internal_headers(PARTIALS, {})),
    "columns missing": OutputRecord(
        "partials", write_table(pa.table({"pane": [1]})), headers=internal_headers(PARTIALS, {})
    ),
    "no schema": OutputRecord("partials", b"junk"),
    "an unknown origin": OutputRecord("partials", deltas(*ROWS).value, headers=internal_headers(PARTIALS, {3: 1})),
}


@pytest.mark.parametrize("name", INVALID)
def test_observer_invalid_records_become_dead_letters_and_are_not_counted(name: str) -> None:
    step = observer([None])
    outputs = observe(step, 0, deltas(*ROWS[:1]), INVALID[name], deltas(*ROWS[1:]), progress(60))
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    (tick,) = ticks(step.flush(0))
    assert (tick["tuples"], tick["run"]["tuples"]) == (109, 109)


def add_pairs(run: RunStatistics, keys: int, workers: int, *sums: Sequence[int]) -> None:
    """Add `keys` keys, each with `workers` workers, and tuples and rows by worker."""
    tuples, rows = (np.array(numbers, dtype=np.int64) for numbers in sums or ((), ()))
    texts = [f"k{number}" for number in range(keys)]
    pairs = [f"{worker}/{key}" for worker in range(workers) for key in texts]
    run.add(pa.chunked_array([texts]), pa.chunked_array([pairs]), tuples, rows, 77)


@pytest.mark.parametrize(("keys", "error"), [(1, 0), (80, 0), (20_000, 0.02), (300_000, 0.02)])
def test_run_statistics_sketches_are_exact_for_few_keys_and_close_for_many(keys: int, error: float) -> None:
    run = RunStatistics()
    for _ in range(2):
        add_pairs(run, keys, 3)
    assert run.replication_factor() == pytest.approx(3, rel=error)


def test_run_statistics_saved_and_loaded_are_equal_and_of_bounded_size() -> None:
    run = RunStatistics()
    add_pairs(run, 20_000, 2, [6667, 5, 6], [100, 2])
    saved = run.save()
    restored = RunStatistics.load(saved)
    assert len(saved) < 20_000
    assert (restored.tuples.tolist(), restored.rows.tolist()) == ([6667, 5, 6], [100, 2])
    assert restored.first_ms == 77
    assert restored.replication_factor() == run.replication_factor()
    add_pairs(restored, 20_000, 4)
    assert restored.replication_factor() == pytest.approx(4, rel=0.02)
    assert RunStatistics.load(RunStatistics().save()).first_ms is None


SAVED_BY_0_2 = bytes.fromhex(
    "85a67475706c6573920507a866697273745f6d734da46b657973c4100201070e030802082f823b040aff8004a57061697273c4180201070e0308"
    "0408245ab006e08c47142aa01b0567c8290ab7776f7273745f7469636b5f6d61785f6f7665725f617667cb3ff8000000000000"
)
"""Five and seven tuples of the keys a and b, with the sketches of 0.2.0."""


def test_run_statistics_of_0_2_are_loaded_and_replication_counts_from_then_on() -> None:
    run = RunStatistics.load(SAVED_BY_0_2)
    assert (run.tuples.tolist(), run.rows.tolist()) == ([5, 7], [5, 7])
    assert (run.first_ms, run.worst_tick_max_over_avg) == (77, 1.5)
    assert run.replication_factor() == 0.0
    add_pairs(run, 10, 3, [0, 1], [0, 1])
    assert run.tuples.tolist() == [5, 8]
    assert run.replication_factor() == 3


def test_observer_changed_number_of_workers_compares_present_and_used_workers() -> None:
    step = observer([None])
    step.set_workers(6)
    observe(step, 0, deltas(*ROWS), progress(60))
    (grown,) = ticks(step.flush(0))
    assert (grown["workers"], grown["tuples_by_worker"]) == (6, [55, 40, 14, 0, 0, 0])
    step.set_workers(2)
    observe(step, 0, deltas((60, "a", 2, 5)), progress(120))
    observe(step, 0, deltas((120, "a", 1, 5)), progress(180))
    spanning, shrunk = ticks(step.flush(0))
    assert (spanning["workers"], spanning["tuples_by_worker"]) == (3, [0, 0, 5])
    assert (shrunk["workers"], shrunk["tuples_by_worker"]) == (2, [0, 5])


def deltas_with_rows(*rows: tuple[int, str, int, int, int]) -> OutputRecord:
    """Return partials, each given as pane, key, worker, count and number of rows."""
    plain = deltas(*(row[:4] for row in rows))
    table = read_table(plain.value).append_column("rows", pa.array([row[4] for row in rows]))
    return OutputRecord("partials", write_table(table), headers=plain.headers)


def test_observer_load_is_that_of_rows_and_keys_count_by_tuples() -> None:
    step = observer([None])
    observe(step, 0, deltas_with_rows((0, "a", 0, 1000, 2), (15, "b", 1, 6, 6)), deltas((30, "c", 2, 4)), progress(60))
    (tick,) = ticks(step.flush(0))
    assert (tick["tuples"], tick["tuples_by_worker"]) == (1010, [1000, 6, 4, 0])
    assert (tick["rows"], tick["rows_by_worker"]) == (12, [2, 6, 4, 0])
    assert (tick["max_over_avg"], tick["imbalance"]) == (2.0, 0.25)
    assert [(top["key"], top["tuples"]) for top in tick["top_keys"]] == [("a", 1000), ("b", 6)]
    assert (tick["run"]["rows"], tick["run"]["rows_by_worker"]) == (12, [2, 6, 4, 0])
    assert tick["run"]["max_over_avg"] == 2.0
    found = [sample for sample in step.collect_metrics() if isinstance(sample, Sample)]
    samples = {(sample.name, *sample.labels): sample.value for sample in found}
    assert samples["skewless_observer_tick_rows",] == 12
    assert samples["skewless_observer_worker_load_share_ratio", "1"] == 0.5


@pytest.mark.parametrize("with_rows", [True, False])
def test_observer_restart_keeps_the_rows_of_open_ticks(*, with_rows: bool) -> None:
    step = observer([None])
    given = deltas_with_rows((0, "a", 0, 100, 3)) if with_rows else deltas((0, "a", 0, 100))
    observe(step, 0, given)
    state = state_of(step.flush(0))
    restarted = observer([step.checkpoint(0)], state)
    observe(restarted, 0, deltas_with_rows((0, "a", 0, 50, 1)), progress(60))
    (tick,) = ticks(restarted.flush(0))
    expected = 4 if with_rows else 101
    assert (tick["tuples"], tick["rows"], tick["run"]["rows"]) == (150, expected, expected)


def test_distribution_of_an_earlier_version_has_a_row_per_tuple() -> None:
    step = observer([None])
    observe(step, 0, deltas(*ROWS), progress(60))
    (record,) = ticks(step.flush(0))
    del record["rows"], record["rows_by_worker"], record["run"]["rows"], record["run"]["rows_by_worker"]
    tick = msgspec.convert(record, TickDistribution)
    assert (tick.rows, tick.rows_by_worker) == (tick.tuples, tick.tuples_by_worker)
    assert (tick.run.rows, tick.run.rows_by_worker) == (tick.run.tuples, tick.run.tuples_by_worker)


def positions_of(step: ObserverStep, partitions: int = 2) -> list[str | None]:
    return [step.checkpoint(partition) for partition in range(partitions)]


@pytest.mark.parametrize("pane", [60, -120])
def test_observer_restarted_before_the_first_watermark_keeps_ticks_of_any_time(pane: int) -> None:
    step = observer([None])
    observe(step, 0, deltas((pane, "a", 0, 5)))
    outputs = list(step.flush(1_000))
    restarted = observer([step.checkpoint(0)], state_of(outputs))
    observe(restarted, 0, progress(pane + 60))
    assert [tick["tuples"] for tick in ticks(restarted.flush(2_000))] == [5]


def test_observer_commit_within_the_save_interval_writes_no_changelog_and_a_restart_reads_its_partials_again() -> None:
    step = observer(save_interval_ms=60_000)
    observe(step, 0, deltas((0, "a", 0, 50)))
    saved = list(step.flush(0))
    assert {output.key for output in saved} == {b"0/0/changes", b"run"}
    assert [decode_checkpoint(position).unsaved for position in positions_of(step)] == [UNSET, UNSET]
    parts = [(0, deltas((0, "a", 1, 30), (60, "b", 0, 7))), (1, deltas((0, "c", 1, 20)))]
    for partition, records in parts:
        observe(step, partition, records)
    assert list(step.flush(59_999)) == []
    positions = positions_of(step)
    assert [decode_checkpoint(position).unsaved for position in positions] == [(0, 1), (0, 1)]

    state = state_of(saved)
    for partition, records in parts:
        again = unsaved_state([InMemoryBatch(partition, [records])])
        state[partition] = [*state.get(partition, []), *again]
    restarted = observer(positions, state, save_interval_ms=60_000)
    found = []
    for each in (step, restarted):
        observe(each, 0, progress(60), now=1_000)
        observe(each, 1, progress(60), now=1_000)
        found.append([*each.flush(59_999)])
    assert ticks(found[0])[0]["tuples_by_worker"][:2] == [50, 50]
    assert ticks(found[0]) == ticks(found[1])
    # The restarted process has the changelog of the first one, and the tick that is open.
    changed = [{output.key for output in written(outputs, "observer-changelog")} for outputs in found]
    assert changed == [{b"60/0/changes", b"run"}] * 2
    assert positions_of(step) == positions_of(restarted)


def test_observer_changelog_is_written_after_the_save_interval_many_bytes_or_a_clock_that_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = observer([None], save_interval_ms=60_000)
    keys = []
    for now in (0, 30_000, 60_000, 60_001, 0):
        observe(step, 0, deltas((0, "a", 0, 1)))
        keys.append({output.key for output in step.flush(now)} - {b"run"})
    assert keys == [{b"0/0/changes"}, set(), {b"0/1/changes"}, set(), {b"0/2/changes"}]
    monkeypatch.setattr("skewless.stages.observer.step.UNSAVED_BYTES", 100)
    observe(step, 0, deltas((0, "b", 0, 1)))
    assert {output.key for output in step.flush(1)} == {b"0/3/changes", b"run"}


def test_observer_tick_that_ends_before_it_is_saved_writes_no_chunk() -> None:
    step = observer([None], save_interval_ms=60_000)
    observe(step, 0, deltas((60, "a", 0, 1)))
    assert {output.key for output in step.flush(0)} == {b"60/0/changes", b"run"}
    observe(step, 0, deltas((60, "b", 0, 1)))
    assert list(step.flush(1)) == []
    observe(step, 0, progress(120))
    outputs = list(step.flush(2))
    assert [tick["tuples"] for tick in ticks(outputs)] == [2]
    assert {output.key for output in written(outputs, "observer-changelog")} == {b"run"}
    # The next write of the changelog deletes the chunk that was saved.
    observe(step, 0, deltas((120, "a", 0, 1)), progress(180))
    changes = [(output.key, output.value) for output in written(step.flush(3), "observer-changelog")]
    assert [change for change in changes if change[0] != b"run"] == [(b"60/0/changes", None)]


def test_observer_tick_that_ends_with_a_compaction_replaces_its_chunks_before_it_deletes_them() -> None:
    def changes(now: int) -> list[tuple[bytes | None, bool]]:
        outputs = written(step.flush(now), "observer-changelog")
        return [(output.key, output.value is None) for output in outputs if output.key != RUN_KEY]

    step = observer([None], save_interval_ms=0)
    for number in range(COMPACTION_THRESHOLD):
        observe(step, 0, deltas((60, "a", 0, 1)))
        assert changes(0) == [(b"60/%d/changes" % number, False)]
    observe(step, 0, deltas((60, "a", 0, 1)), progress(120))
    numbers = range(COMPACTION_THRESHOLD - 1, -1, -1)
    assert changes(0) == [(b"60/33/compacted", False), *((b"60/%d/changes" % number, True) for number in numbers)]
    observe(step, 0, deltas((120, "a", 0, 1)), progress(180))
    assert changes(0) == [(b"60/33/compacted", True)]


def test_observer_partition_of_another_process_counts_in_the_run() -> None:
    owner, other = observer(), observer()
    owner.revoke(1)
    other.revoke(0)
    first, second = deltas((0, "a", 0, 10)), deltas((0, "b", 1, 5))
    observe(owner, 0, first)
    observe(other, 1, second)
    state = state_of([*owner.flush(0), *other.flush(0)])
    positions = [owner.checkpoint(0), other.checkpoint(1)]
    assert decode_checkpoint(positions[1]).unsaved == (0, 1)
    state[1] = [*state.get(1, []), *unsaved_state([InMemoryBatch(1, [second])])]
    restarted = observer(positions, state)
    observe(restarted, 0, progress(60))
    observe(restarted, 1, progress(60))
    (tick,) = ticks(restarted.flush(1))
    assert (tick["tuples"], tick["run"]["tuples"]) == (15, 15)
