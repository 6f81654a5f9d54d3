from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.batches import json_values_in, reasons_in, rows_in, written
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.aggregate_registry import results_of
from skewless.algorithms.aggregates import ResultCondition, columns_of
from skewless.algorithms.ranking import Ranking
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing import window as window_module
from skewless.algorithms.windowing.assigner import CalendarWindows, HoppingWindows, tumbling
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.algorithms.windowing.window import COMPACTION_THRESHOLD
from skewless.algorithms.windowing.window_store import KEPT_FLUSHES
from skewless.engine.step import Sample
from skewless.stages.aggregator.ranking_step import RankingStep
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep, SessionStep
from skewless.time_zone import TimeZone
from skewless.wire.changelog import window_of
from skewless.wire.columns import read_table, write_table
from skewless.wire.dead_letters import WINDOW_EXPIRED
from skewless.wire.headers import WATERMARK
from skewless.wire.partials import PARTIALS, write_partials
from skewless.wire.record import OutputRecord

Row = tuple[int, str, int, int]
"""pane, key, count, sum"""


def deltas(*rows: Row, watermark: int | None = None, source_partition: int = 0) -> OutputRecord:
    panes, keys, counts, sums = zip(*rows, strict=True)
    table = pa.table({
        "pane": pa.array(panes, pa.int64()), "key": pa.array(keys, pa.string()),
        "count": pa.array(counts, pa.int64()), "sum": pa.array(sums, pa.int64()),
        "worker": pa.array(np.zeros(len(rows), np.int32)),
    })  # fmt: skip
    return OutputRecord(
        "partials",
        write_table(table),
        headers=internal_headers(PARTIALS, {} if watermark is None else {source_partition: watermark}),
    )


def progress(watermark: int, source_partition: int = 0, *, idle: bool = False) -> OutputRecord:
    return OutputRecord(
        "partials",
        None,
        headers=internal_headers(WATERMARK, {source_partition: watermark}, [source_partition] if idle else []),
    )


class Changelog:
    """Records of the topic `aggregator-changelog` after compaction."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.chunks: list[OutputRecord] = []

    def take(self, outputs: Iterable[OutputRecord]) -> list[OutputRecord]:
        """Store the changelog records, return the others."""
        others = []
        for output in outputs:
            if output.topic != "aggregator-changelog":
                others.append(output)
                continue
            self.chunks.append(output)
            assert output.key is not None
            if output.value is None:
                del self.records[output.key]
            else:
                self.records[output.key] = output.value
        return others

    def of(self, windows: Iterable[int]) -> list[tuple[bytes, bytes]]:
        return [(key, value) for key, value in self.records.items() if window_of(key) in set(windows)]


def aggregator(
    checkpoint: str | None = None,
    state: Sequence[tuple[bytes, bytes]] = (),
    *,
    source_partitions: int = 1,
    **rules: Any,
) -> AggregatorStep:
    value = ValueType(decimals=rules.pop("decimals", 0))
    expected = results_of(rules.pop("aggregates", ("count", "sum")), [value])
    chosen: dict[str, Any] = {"windows": tumbling(60), "closed_window_retention_ms": 1000, "updates": True} | rules
    tested_rules = AggregatorRules(expected, columns_of(expected), **chosen)
    step = AggregatorStep(tested_rules, worker_partitions=source_partitions, topic="p.partials")
    step.assign(1, checkpoint, state)
    return step


def merge(step: AggregatorStep, *records: OutputRecord) -> list[OutputRecord]:
    return list(step.process(InMemoryBatch(1, records), 0))


def emitted(outputs: Iterable[OutputRecord]) -> list[tuple[int, str, int, int, int]]:
    entries = json_values_in(written(outputs, "aggregates"))
    return [(entry["window_start"], entry["key"], entry["count"], entry["sum"], entry["revision"]) for entry in entries]


def test_aggregator_partials_of_a_window_become_one_record_per_key_with_the_window_start() -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5), (15, "a", 2, 7), (60, "a", 1, 1)))
    first, second = written(step.flush(0), "aggregates")
    assert json_values_in([first]) == [
        {"key": "a", "window_start": 0, "window_end": 60, "count": 3, "sum": 12, "revision": 0}
    ]
    assert (first.key, first.partition, first.timestamp) == (b"0/a", 1, 0)
    assert (second.key, second.timestamp) == (b"60/a", 60)


def test_aggregator_window_before_1970_has_no_kafka_timestamp() -> None:
    step = aggregator()
    merge(step, deltas((-15, "a", 1, 5)))
    (output,) = written(step.flush(0), "aggregates")
    assert (output.key, output.timestamp) == (b"-60/a", None)


def test_aggregator_window_whose_results_the_topic_deletes_at_once_is_reported_once() -> None:
    reported: list[int] = []
    step = aggregator(results_retention_ms=1_000, report_expired=reported.append)
    merge(step, deltas((0, "a", 1, 5), (60, "a", 1, 1)))
    list(step.flush(1_000))
    merge(step, deltas((-60, "a", 1, 5), (60, "b", 1, 1)))
    list(step.flush(1_060))
    assert not reported
    merge(step, deltas((0, "b", 1, 5), (60, "c", 1, 1)))
    list(step.flush(1_061))
    merge(step, deltas((0, "c", 1, 5)))
    list(step.flush(9_000))
    assert reported == [0]


SESSIONS = SessionWindows(60, 100_000)


def session_step(**rules: Any) -> SessionStep:
    expected = results_of(("count", "sum"), [ValueType()])
    columns = [*columns_of(expected), *SESSIONS.columns]
    chosen: dict[str, Any] = {"closed_window_retention_ms": 1000, "updates": True} | rules
    step = SessionStep(AggregatorRules(expected, columns, SESSIONS, **chosen), worker_partitions=1, topic="p.partials")
    step.assign(1, None, ())
    return step


def session_deltas(start: int) -> OutputRecord:
    table = read_table(deltas((start, "a", 1, 5)).value)
    for column in SESSIONS.columns:
        table = table.append_column(column.name, pa.array([start]))
    return OutputRecord("partials", write_table(table), headers=internal_headers(PARTIALS, {}))


def test_aggregator_session_is_reported_as_deleted_by_its_own_start_and_not_by_that_of_its_span() -> None:
    reported: list[int] = []
    step = session_step(results_retention_ms=1_000, report_expired=reported.append)
    for start, now in ((50_000, 50_500), (50_200, 51_500)):
        assert merge(step, session_deltas(start)) == []
        assert json_values_in(written(step.flush(now), "aggregates"))[0]["window_start"] == start
    assert reported == [50_200]


def test_aggregator_updates_emit_changed_keys_with_the_next_revision() -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5), (0, "b", 1, 1)))
    assert emitted(step.flush(0)) == [(0, "a", 1, 5, 0), (0, "b", 1, 1, 0)]
    merge(step, deltas((15, "a", 1, 2)))
    merge(step, deltas((30, "a", 1, 2)))
    assert emitted(step.flush(0)) == [(0, "a", 3, 9, 1)]
    assert emitted(step.flush(0)) == []


def test_aggregator_keys_change_in_another_order_keep_their_own_values() -> None:
    step = aggregator()
    merge(step, deltas((0, "b", 1, 10)))
    list(step.flush(0))
    merge(step, deltas((0, "a", 5, 50), (0, "b", 1, 10)))
    assert sorted(emitted(step.flush(0))) == [(0, "a", 5, 50, 0), (0, "b", 2, 20, 1)]


def test_aggregator_final_results_are_emitted_once_when_every_worker_partition_passed_the_end() -> None:
    step = aggregator(updates=False, source_partitions=2)
    merge(step, deltas((0, "a", 1, 5), watermark=60), deltas((30, "a", 1, 1), (60, "a", 1, 1)))
    assert emitted(step.flush(0)) == []
    merge(step, progress(59, source_partition=1))
    assert emitted(step.flush(0)) == []
    merge(step, progress(60, source_partition=1))
    assert emitted(step.flush(0)) == [(0, "a", 2, 6, 0)]
    assert emitted(step.flush(0)) == []


def test_aggregator_decimals_scale_values_and_not_counts() -> None:
    step = aggregator(decimals=2)
    merge(step, deltas((0, "a", 3, 125)))
    assert emitted(step.flush(0)) == [(0, "a", 3, 1.25, 0)]


@pytest.mark.parametrize("updates", [True, False])
def test_aggregator_restored_from_its_changelog_continues_identically(updates: bool) -> None:  # noqa: FBT001
    """Changelog records and checkpoints of every flush, with compaction and closings, are the whole state."""
    whole, log, restored_log = aggregator(updates=updates), Changelog(), Changelog()
    checkpoint: str | None = None
    for flush in range(3 * COMPACTION_THRESHOLD):
        restored = aggregator(checkpoint, list(restored_log.records.items()), updates=updates)
        records = [deltas((flush // 2, f"k{flush % 5}", 1, flush), watermark=flush // 2), deltas((60, "z", 1, 1))]
        assert merge(whole, *records) == merge(restored, *records) == []
        outputs = restored_log.take(restored.flush(0))
        assert log.take(whole.flush(0)) == outputs
        assert log.records == restored_log.records
        checkpoint = restored.checkpoint(1)
        assert checkpoint == whole.checkpoint(1)


def test_aggregator_many_changelog_records_are_compacted_and_tombstoned() -> None:
    step, log = aggregator(), Changelog()
    for _ in range(COMPACTION_THRESHOLD):
        merge(step, deltas((0, "a", 1, 2)))
        log.take(step.flush(0))
    assert sorted(log.records) == sorted(f"0/{number}/changes".encode() for number in range(COMPACTION_THRESHOLD))
    log.chunks.clear()
    merge(step, deltas((0, "a", 1, 2)))
    log.take(step.flush(0))
    assert [(chunk.partition, chunk.value is None) for chunk in log.chunks] == [(1, False)] + [
        (1, True)
    ] * COMPACTION_THRESHOLD
    assert list(log.records) == [b"0/33/compacted"]
    merge(step, deltas((0, "a", 1, 2)))
    assert emitted(log.take(step.flush(0))) == [
        (0, "a", COMPACTION_THRESHOLD + 2, 2 * COMPACTION_THRESHOLD + 4, COMPACTION_THRESHOLD + 1)
    ]
    assert list(log.records) == [b"0/33/compacted", b"0/34/changes"]


@pytest.mark.parametrize("updates", [True, False])
def test_aggregator_partition_active_again_corrects_a_closed_window_with_the_next_revision(updates: bool) -> None:  # noqa: FBT001
    step, log = aggregator(updates=updates), Changelog()
    merge(step, deltas((0, "a", 1, 5), (0, "b", 1, 1), watermark=100))
    assert emitted(log.take(step.flush(0))) == [(0, "a", 1, 5, 0), (0, "b", 1, 1, 0)]
    late = deltas((45, "a", 1, 1))
    assert step.windows_to_reopen(InMemoryBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    assert step.windows_to_reopen(InMemoryBatch(1, [late])) == set()
    merge(step, late)
    assert emitted(log.take(step.flush(0))) == [(0, "a", 2, 6, 1)]


def reopened(log: Changelog, closed_window_retention_ms: int = 1000, *, updates: bool = True) -> AggregatorStep:
    """Build a step with a closed window that was opened again, without new partials."""
    step = aggregator(updates=updates, closed_window_retention_ms=closed_window_retention_ms)
    merge(step, deltas((0, "a", 1, 5), (0, "b", 1, 1), watermark=100))
    log.take(step.flush(0))
    step.reopen(1, log.of({0}))
    return step


@pytest.mark.parametrize("updates", [True, False])
def test_aggregator_reopened_window_is_held_for_some_flushes_with_the_same_results(updates: bool) -> None:  # noqa: FBT001
    held_log, fetched_log = Changelog(), Changelog()
    held, fetched = reopened(held_log, updates=updates), reopened(fetched_log, updates=updates)
    for round_ in range(3):
        for _ in range(round_ * KEPT_FLUSHES // 2):
            assert list(held.flush(0)) == []
        late = deltas((45, "a", 1, 1), (45, "c", 1, 1))
        assert held.windows_to_reopen(InMemoryBatch(1, [late])) == set()
        again = aggregator(fetched.checkpoint(1), [(key, b"") for key in fetched_log.records], updates=updates)
        again.reopen(1, fetched_log.of({0}))
        for step in (held, again):
            merge(step, late)
        assert held_log.take(held.flush(0)) == fetched_log.take(again.flush(0)) != []
        assert held_log.records == fetched_log.records
    for _ in range(KEPT_FLUSHES + 1):
        assert held.windows_to_reopen(InMemoryBatch(1, [late])) == set()
        assert list(held.flush(0)) == []
    assert held.windows_to_reopen(InMemoryBatch(1, [late])) == {0}


@pytest.mark.parametrize("updates", [True, False])
def test_aggregator_reopened_window_that_expires_is_corrected_once_and_tombstoned(updates: bool) -> None:  # noqa: FBT001
    log = Changelog()
    step = reopened(log, closed_window_retention_ms=120, updates=updates)
    merge(step, deltas((45, "a", 1, 1), watermark=180))
    assert emitted(log.take(step.flush(0))) == [(0, "a", 2, 6, 1)]
    assert emitted(log.take(step.flush(0))) == []
    assert log.records == {}
    assert list(step.flush(0)) == []


@pytest.mark.parametrize("updates", [True, False])
def test_aggregator_window_that_expires_during_its_fetch_is_not_emitted_again(updates: bool) -> None:  # noqa: FBT001
    step, log = aggregator(updates=updates, closed_window_retention_ms=120), Changelog()
    merge(step, deltas((0, "a", 1, 5), watermark=100))
    log.take(step.flush(0))
    fetched = log.of({0})
    merge(step, progress(180))
    log.take(step.flush(0))
    step.reopen(1, fetched)
    late = merge(step, deltas((0, "a", 1, 9)))
    assert reasons_in(written(late, "dead-letters")) == [(0, WINDOW_EXPIRED)]
    assert emitted(log.take(step.flush(0))) == []
    assert list(step.flush(0)) == []
    samples = {sample.name: sample.value for sample in step.collect_metrics() if isinstance(sample, Sample)}
    assert samples["skewless_aggregator_reopened_windows_total"] == 0


def test_aggregator_restarted_knows_a_closed_window_without_its_rows() -> None:
    before, log = aggregator(), Changelog()
    merge(before, deltas((0, "a", 1, 5), watermark=100))
    log.take(before.flush(0))
    step = aggregator(before.checkpoint(1), [(key, b"") for key in log.records])
    late = deltas((45, "a", 1, 1))
    assert step.windows_to_reopen(InMemoryBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    merge(step, late)
    assert emitted(step.flush(0)) == [(0, "a", 2, 6, 1)]


def test_aggregator_expired_window_is_tombstoned_and_its_partials_are_dead_letters() -> None:
    step, log = aggregator(closed_window_retention_ms=120), Changelog()
    for watermark in (10, 100):
        merge(step, deltas((0, "a", 1, 5), watermark=watermark))
        log.take(step.flush(0))
    merge(step, deltas((240, "a", 1, 5), watermark=179))
    log.take(step.flush(0))
    assert {window_of(key) for key in log.records} == {0, 240}
    merge(step, progress(180))
    log.take(step.flush(0))
    log.take(step.flush(0))
    assert [window_of(key) for key in log.records] == [240]
    outputs = merge(step, deltas((0, "a", 1, 9), (240, "a", 1, 1)))
    (dead_letter,) = written(outputs, "dead-letters")
    assert reasons_in([dead_letter]) == [(0, "window has expired")]
    assert [(row["pane"], row["key"], row["sum"]) for row in rows_in([dead_letter])] == [(0, "a", 9)]
    assert emitted(step.flush(0)) == [(240, "a", 2, 6, 1)]


def test_aggregator_window_longer_than_the_retention_is_kept_after_its_end() -> None:
    step, log = aggregator(closed_window_retention_ms=30), Changelog()
    merge(step, deltas((0, "a", 1, 5), (60, "a", 1, 1), watermark=60))
    log.take(step.flush(0))
    late = deltas((45, "a", 1, 1))
    assert step.windows_to_reopen(InMemoryBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    assert merge(step, late) == []
    assert emitted(log.take(step.flush(0))) == [(0, "a", 2, 6, 1)]
    merge(step, progress(90))
    log.take(step.flush(0))
    log.take(step.flush(0))
    assert {window_of(key) for key in log.records} == {60}


def test_aggregator_record_far_ahead_keeps_closed_windows_for_other_partitions() -> None:
    step, log = aggregator(source_partitions=2), Changelog()
    merge(step, deltas((0, "a", 1, 5), watermark=100), progress(100, source_partition=1))
    log.take(step.flush(0))
    merge(step, deltas((500_000, "z", 1, 1)))
    log.take(step.flush(0))
    late = deltas((45, "a", 1, 1), watermark=45, source_partition=1)
    assert step.windows_to_reopen(InMemoryBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    assert merge(step, late) == []
    assert emitted(step.flush(0)) == [(0, "a", 2, 6, 1)]


@pytest.mark.parametrize("updates", [True, False])
def test_aggregator_key_first_seen_in_a_closed_window_starts_with_revision_0(updates: bool) -> None:  # noqa: FBT001
    step, log = aggregator(updates=updates), Changelog()
    merge(step, deltas((0, "a", 1, 5), watermark=100))
    log.take(step.flush(0))
    for revisions in ({"a": 1, "b": 0}, {"a": 2, "b": 1}):
        step.reopen(1, log.of({0}))
        merge(step, deltas((45, "a", 1, 1), (45, "b", 1, 1)))
        assert {key: revision for _, key, _, _, revision in emitted(log.take(step.flush(0)))} == revisions


def test_aggregator_all_worker_partitions_idle_closes_windows_at_their_watermark() -> None:
    step = aggregator(updates=False)
    merge(step, deltas((0, "a", 1, 5), (60, "a", 1, 5)), progress(119, idle=True))
    assert emitted(step.flush(0)) == [(0, "a", 1, 5, 0)]
    assert (step.watermark(1), step.idle(1)) == (119, True)
    assert aggregator(step.checkpoint(1), updates=False).idle(1)


def test_aggregator_idle_partition_with_a_lower_watermark_holds_windows_open() -> None:
    step = aggregator(updates=False, source_partitions=2)
    merge(step, deltas((0, "a", 1, 5)), progress(59, idle=True), progress(59, source_partition=1, idle=True))
    merge(step, progress(120, source_partition=1))
    assert emitted(step.flush(0)) == []
    assert not step.idle(1)
    merge(step, deltas((0, "a", 1, 5)), progress(120))
    assert emitted(step.flush(0)) == [(0, "a", 2, 10, 0)]


def test_aggregator_max_watermark_closes_all_windows_and_ends_a_bounded_run() -> None:
    step = aggregator(updates=False)
    merge(step, deltas((0, "a", 1, 5), (600, "a", 1, 5), watermark=MAX_WATERMARK))
    assert not step.finished(1)
    assert [(start, count) for start, _, count, _, _ in emitted(step.flush(0))] == [(0, 1), (600, 1)]
    assert step.finished(1)


def test_aggregator_restarted_after_a_bounded_run_opens_newer_windows() -> None:
    before, log = aggregator(updates=False), Changelog()
    merge(before, deltas((0, "a", 1, 5), watermark=MAX_WATERMARK))
    log.take(before.flush(0))
    step = aggregator(before.checkpoint(1), list(log.records.items()), updates=False)
    merge(step, deltas((60, "a", 1, 1), watermark=100))
    assert emitted(step.flush(0)) == []
    merge(step, progress(120))
    assert emitted(step.flush(0)) == [(60, "a", 1, 1, 0)]


def test_aggregator_after_a_bounded_run_counts_tuples_that_are_in_time_for_an_older_window() -> None:
    """The retention is shorter than the lateness, as in a pipeline for devices that send hours later."""
    rules: dict[str, Any] = {"closed_window_retention_ms": 60, "lateness_ms": 500}
    step, log = aggregator(**rules), Changelog()
    merge(step, deltas((0, "a", 1, 5), (60, "a", 1, 5), (600, "a", 1, 5), watermark=MAX_WATERMARK))
    log.take(step.flush(0))
    for watermark, is_counted in ((100, True), (179, True), (180, False)):  # beyond the end of the window and retention
        step = aggregator(step.checkpoint(1), [(key, b"") for key in log.records], **rules)
        late = deltas((60, "a", 1, 1), watermark=watermark)
        step.reopen(1, log.of(step.windows_to_reopen(InMemoryBatch(1, [late]))))
        assert [window for window, *_ in emitted([*merge(step, late), *log.take(step.flush(0))])] == [60]
        log.take(step.flush(0))
        assert (60 in {window_of(key) for key in log.records}) == is_counted
    assert reasons_in(written(merge(step, deltas((60, "a", 1, 1))), "dead-letters")) == [(0, "window has expired")]


@pytest.mark.parametrize("source_partitions", [64, 1005, 1024, 1507, 3000])
def test_aggregator_checkpoint_of_many_partitions_fits_and_is_restored(source_partitions: int) -> None:
    step = aggregator(source_partitions=source_partitions)
    for source_partition in range(source_partitions):
        merge(
            step,
            progress(
                1_700_000_000_000 + 7_919_001 * source_partition, source_partition, idle=source_partition % 2 == 1
            ),
        )
    list(step.flush(0))
    checkpoint = step.checkpoint(1)
    assert len(checkpoint) <= 3_850
    restored = aggregator(checkpoint, source_partitions=source_partitions)
    assert restored.watermark(1) == 1_700_000_000_000
    assert restored.checkpoint(1) == checkpoint


INVALID = {
    "no Arrow IPC stream": OutputRecord("partials", b"junk", headers=internal_headers(PARTIALS, {})),
    "no value": OutputRecord("partials", None, headers=internal_headers(PARTIALS, {})),
    "no schema": OutputRecord("partials", b"junk"),
    "columns missing": OutputRecord(
        "partials", write_table(pa.table({"pane": [1]})), headers=internal_headers(PARTIALS, {})
    ),
    "columns of other types": OutputRecord(
        "partials",
        write_table(pa.table({"pane": [1], "key": ["a"], "count": [1.5], "sum": [1]})),
        headers=internal_headers(PARTIALS, {}),
    ),
    "an unknown origin": deltas((0, "x", 1, 1), watermark=5, source_partition=7),
}


@pytest.mark.parametrize("name", INVALID)
def test_aggregator_invalid_records_become_dead_letters_and_are_not_counted(name: str) -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5), watermark=100))
    list(step.flush(0))
    records = [deltas((60, "a", 1, 1)), INVALID[name], deltas((60, "a", 1, 1))]
    assert step.windows_to_reopen(InMemoryBatch(1, records)) <= {0}
    outputs = merge(step, *records)
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    assert emitted(step.flush(0)) == [(60, "a", 2, 2, 0)]


def test_aggregator_revoked_partition_is_dropped() -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5)))
    step.revoke(1)
    assert list(step.flush(0)) == []
    assert step.windows_to_reopen(InMemoryBatch(1, [deltas((0, "a", 1, 5))])) == set()


HOPPING = HoppingWindows(60, 30, 15)


def test_aggregator_pane_counts_in_each_hopping_window_that_contains_it() -> None:
    step = aggregator(windows=HOPPING)
    merge(step, deltas((30, "a", 1, 5), (45, "a", 2, 7), (45, "b", 1, 1)))
    assert emitted(step.flush(0)) == [(-15, "a", 1, 5, 0), (15, "a", 3, 12, 0), (15, "b", 1, 1, 0), (45, "a", 2, 7, 0),
                                   (45, "b", 1, 1, 0)]  # fmt: skip
    merge(step, deltas((30, "b", 1, 1)))
    assert emitted(step.flush(0)) == [(-15, "b", 1, 1, 0), (15, "b", 2, 2, 1)]


def test_aggregator_hopping_windows_close_and_reopen_independently() -> None:
    step, log = aggregator(windows=HOPPING, updates=False), Changelog()
    merge(step, deltas((45, "a", 1, 5), watermark=75))
    assert emitted(log.take(step.flush(0))) == [(15, "a", 1, 5, 0)]
    batch = InMemoryBatch(1, [deltas((60, "a", 1, 1), (30, "a", 1, 1))])
    assert step.windows_to_reopen(batch) == {15}
    step.reopen(1, log.of({15}))
    merge(step, *[deltas((60, "a", 1, 1), (30, "a", 1, 1))])
    assert emitted(log.take(step.flush(0))) == [(-15, "a", 1, 1, 0), (15, "a", 3, 7, 1)]
    merge(step, progress(105))
    assert emitted(log.take(step.flush(0))) == [(45, "a", 2, 6, 0)]


def test_aggregator_dead_letter_names_the_expired_windows_of_hopping_windows() -> None:
    step = aggregator(windows=HOPPING, closed_window_retention_ms=30)
    merge(step, progress(75))
    list(step.flush(0))
    late = merge(step, deltas((30, "a", 1, 9)))
    assert reasons_in(written(late, "dead-letters")) == [(0, WINDOW_EXPIRED)]
    assert [(row["pane"], row["window"], row["key"]) for row in rows_in(written(late, "dead-letters"))] == [
        (30, -15, "a")
    ]
    assert emitted(step.flush(0)) == [(15, "a", 1, 9, 0)]


def test_aggregator_restarted_restores_hopping_windows() -> None:
    before, log = aggregator(windows=HOPPING), Changelog()
    merge(before, deltas((45, "a", 1, 5), watermark=75))
    log.take(before.flush(0))
    state = [(key, value if window_of(key) == 45 else b"") for key, value in log.records.items()]
    step, late = aggregator(before.checkpoint(1), state, windows=HOPPING), deltas((60, "a", 1, 2))
    assert step.windows_to_reopen(InMemoryBatch(1, [late])) == {15}
    step.reopen(1, log.of({15}))
    merge(step, late)
    assert emitted(step.flush(0)) == [(15, "a", 2, 7, 1), (45, "a", 2, 7, 1)]


def test_aggregator_calendar_window_has_its_real_end() -> None:
    hour = 3_600_000
    step = aggregator(windows=CalendarWindows(1, 0, 0, TimeZone("Europe/Berlin").utc_offset))
    start = 1_459_033_200_000  # 2016-03-27 in Berlin: 23 hours
    merge(step, deltas((start, "a", 1, 1), (start + 22 * hour, "a", 1, 1), (start + 23 * hour, "a", 1, 1)))
    results = json_values_in(written(step.flush(0), "aggregates"))
    assert [(result["window_start"], result["window_end"], result["count"]) for result in results] == [
        (start, start + 23 * hour, 2),
        (start + 23 * hour, start + 47 * hour, 1),
    ]


def decimals_of(*sums: int) -> OutputRecord:
    """Write partials as a worker does whose sums do not fit into 64 bits."""
    keys = [f"k{number}" for number in range(len(sums))]
    zeros = pa.array(np.zeros(len(sums), np.int64))
    table = pa.table({"pane": zeros, "key": keys, "count": zeros, "sum": pa.array(sums, pa.decimal128(38, 0))})
    return OutputRecord("partials", write_partials(table), headers=internal_headers(PARTIALS, {}))


def test_aggregator_sums_beyond_64_bits_are_exact_also_after_a_restore() -> None:
    changelog, step = Changelog(), aggregator(decimals=2)
    largest = 2**63 - 1
    first, second = decimals_of(largest, -largest - 1, 7), decimals_of(2**70, -1, 10**18)
    assert [read_table(record.value).schema.field("sum").type for record in (first, second)] == [
        pa.int64(),
        pa.decimal128(38, 0),
    ]
    merge(step, first)
    changelog.take(step.flush(0))
    state = changelog.of([0])
    step = aggregator(step.checkpoint(1), state, decimals=2)
    merge(step, second)
    values = [output.value or b"" for output in changelog.take(step.flush(0))]
    texts = [value.partition(b'"sum":')[2].partition(b",")[0].decode() for value in values]
    assert texts == ["11898149927542660792.31", "-92233720368547758.09", "10000000000000000.07"]


def test_aggregator_having_emits_results_that_match_and_deletes_those_that_no_longer_match() -> None:
    count, total = results_of(["count", "sum"], [ValueType()])
    conditions = (ResultCondition(count, "at_least", 2), ResultCondition(total, "below", 10))
    log, step = Changelog(), aggregator(updates=False, conditions=conditions)
    merge(step, deltas((0, "few", 1, 1), (0, "many", 3, 9), (0, "large", 2, 10), (0, "never", 2, 20)), progress(60))
    outputs = log.take(step.flush(0))
    assert [(output.key, json_values_in([output])[0]["count"]) for output in outputs] == [(b"0/many", 3)]
    assert emitted_by_kind(step) == {"first": 1, "revision": 0}
    late = deltas((0, "few", 1, 1), (0, "many", 1, 1), (0, "large", 1, -5), (0, "never", 1, 1))
    step.reopen(1, log.of(step.windows_to_reopen(InMemoryBatch(1, [late]))))
    merge(step, late)
    found = {output.key: output.value and json_values_in([output])[0]["revision"] for output in log.take(step.flush(0))}
    assert found == {b"0/few": 1, b"0/many": None, b"0/large": 1, b"0/never": None}
    assert emitted_by_kind(step) == {"first": 1, "revision": 4}


def test_aggregator_deleted_results_of_sessions_count_as_revisions() -> None:
    step, records = session_step(), 0
    for start in (50_000, 49_980):  # the second tuple moves the start of the session
        merge(step, session_deltas(start))
        records += len(written(step.flush(0), "aggregates"))
    assert (emitted_by_kind(step), records) == ({"first": 2, "revision": 1}, 3)


def test_aggregator_results_that_are_also_ranked_count_once() -> None:
    expected = results_of(("count",), [])
    rules = AggregatorRules(expected, columns_of(expected), tumbling(60), 1000, updates=True)
    step = RankingStep(rules, Ranking(2, expected[0]), worker_partitions=1, topic="p.partials")
    step.assign(1, None, ())
    merge(step, deltas((0, "a", 1, 1), (0, "b", 2, 1), (0, "c", 3, 1)))
    outputs = list(step.flush(0))
    assert {"aggregates", "top-candidates"} <= {output.topic for output in outputs}
    assert emitted_by_kind(step) == {"first": 3, "revision": 0}


def emitted_by_kind(step: AggregatorStep) -> dict[str, float]:
    found = (sample for sample in step.collect_metrics() if isinstance(sample, Sample))
    return {each.labels[0]: each.value for each in found if each.name == "skewless_aggregator_results_total"}


INTERVAL: dict[str, Any] = {"emit_interval_ms": 100}


def test_aggregator_updates_of_a_window_are_emitted_at_most_once_per_interval() -> None:
    step = aggregator(**INTERVAL)
    merge(step, deltas((0, "a", 1, 5)))
    assert emitted(step.flush(1000)) == [(0, "a", 1, 5, 0)]
    merge(step, deltas((0, "a", 1, 1), (0, "b", 1, 1), (60, "c", 1, 1)))
    assert emitted(step.flush(1050)) == [(60, "c", 1, 1, 0)]
    merge(step, deltas((0, "a", 1, 1)))
    assert emitted(step.flush(1099)) == []
    assert emitted(step.flush(1100)) == [(0, "a", 3, 7, 1), (0, "b", 1, 1, 0)]
    assert emitted(step.flush(5000)) == []


def test_aggregator_window_that_closes_emits_its_deferred_updates() -> None:
    step, log = aggregator(**INTERVAL), Changelog()
    merge(step, deltas((0, "a", 1, 5)))
    log.take(step.flush(1000))
    merge(step, deltas((0, "a", 1, 1)))
    assert emitted(log.take(step.flush(1001))) == []
    merge(step, progress(60))
    assert emitted(log.take(step.flush(1002))) == [(0, "a", 2, 6, 1)]
    step.reopen(1, log.of({0}))
    merge(step, deltas((0, "a", 1, 1)))
    assert emitted(log.take(step.flush(1003))) == [(0, "a", 3, 7, 2)]


def test_aggregator_clock_that_is_set_back_delays_updates_by_one_interval_at_most() -> None:
    step = aggregator(**INTERVAL)
    merge(step, deltas((0, "a", 1, 5)))
    list(step.flush(10**6))
    merge(step, deltas((0, "a", 1, 1)))
    assert emitted(step.flush(1000)) == []
    assert emitted(step.flush(1100)) == [(0, "a", 2, 6, 1)]


@pytest.mark.parametrize("threshold", [2, 5, COMPACTION_THRESHOLD])
def test_aggregator_restart_at_any_flush_emits_each_deferred_update_once(
    threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "COMPACTION_THRESHOLD", threshold)
    step, log, updates, last = aggregator(**INTERVAL), Changelog(), list[tuple[int, str, int, int, int]](), 0
    for number in range(60):
        key = "abc"[number % 3]
        if number % 4 != 3:
            merge(step, deltas((0, key, 1, number)))
        now = 1000 + 30 * number
        new = emitted(log.take(step.flush(now)))
        assert not new or now - last >= 100
        last = now if new else last
        updates += new
        if number % 5 == 2:
            step = aggregator(step.checkpoint(1), list(reversed(log.records.items())), **INTERVAL)
            assert emitted(log.take(step.flush(now))) == []
    updates += emitted(log.take(step.flush(10**6)))
    updates += emitted(log.take(step.flush(10**6 + 100)))
    assert emitted(step.flush(10**7)) == []
    numbers = [number for number in range(60) if number % 4 != 3]
    for key in "abc":
        results = [row for row in updates if row[1] == key]
        assert [row[4] for row in results] == list(range(len(results)))
        own = [number for number in numbers if "abc"[number % 3] == key]
        assert results[-1][2:4] == (len(own), sum(own))
    assert any(b"deferred" in (chunk.key or b"") for chunk in log.chunks)
    assert any(b"deferred-compacted" in (chunk.key or b"") for chunk in log.chunks)


def test_aggregator_result_of_a_composite_key_has_a_field_for_each_part() -> None:
    step = aggregator(key_parts=("category", "hour"))
    merge(step, deltas((0, '["b\\"",""]', 1, 5)))
    (result,) = json_values_in(written(step.flush(0), "aggregates"))
    assert (result["key"], result["category"], result["hour"]) == ('["b\\"",""]', 'b"', "")
