from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.aggregator.step import FORGOTTEN, AggregatorRules, AggregatorStep
from skewless.algorithms.aggregates import columns_of, create
from skewless.algorithms.watermark import END_OF_TIME
from skewless.algorithms.windowed import KEPT_FLUSHES, MOST_CHUNKS
from skewless.asyncapi.written import WrittenBatch
from skewless.changelog import window_of
from skewless.records import PARTIALS, PROGRESS, Output, headers_of, write_table
from support import facts_in, reasons_in, rows_in, written

Row = tuple[int, str, int, int]
"""pane, key, count, sum"""


def deltas(*rows: Row, mark: int | None = None, origin: int = 0) -> Output:
    panes, keys, counts, sums = zip(*rows, strict=True)
    table = pa.table({
        "pane": pa.array(panes, pa.int64()), "key": pa.array(keys, pa.string()),
        "count": pa.array(counts, pa.int64()), "sum": pa.array(sums, pa.int64()),
        "worker": pa.array(np.zeros(len(rows), np.int32)),
    })  # fmt: skip
    return Output("partials", write_table(table), headers=headers_of(PARTIALS, {} if mark is None else {origin: mark}))


def progress(mark: int, origin: int = 0, *, idle: bool = False) -> Output:
    return Output("partials", None, headers=headers_of(PROGRESS, {origin: mark}, [origin] if idle else []))


class Changelog:
    """What the topic `windows` holds after compaction."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.chunks: list[Output] = []

    def take(self, outputs: Iterable[Output]) -> list[Output]:
        """Keep the chunks, return the rest."""
        rest = []
        for output in outputs:
            if output.topic != "windows":
                rest.append(output)
                continue
            self.chunks.append(output)
            assert output.key is not None
            if output.value is None:
                del self.records[output.key]
            else:
                self.records[output.key] = output.value
        return rest

    def of(self, windows: Iterable[int]) -> list[tuple[bytes, bytes]]:
        return [(key, value) for key, value in self.records.items() if window_of(key) in set(windows)]


def aggregator(
    position: str | None = None, state: Sequence[tuple[bytes, bytes]] = (), *, origins: int = 1, **rules: Any
) -> AggregatorStep:
    wanted = [create(name) for name in ("count", "sum")]
    chosen = {"window_ms": 60, "keep_closed_ms": 1000, "updates": True, "decimals": 0} | rules
    step = AggregatorStep(AggregatorRules(wanted, columns_of(wanted), **chosen), origins=origins, topic="p.partials")
    step.assign(1, position, state)
    return step


def merge(step: AggregatorStep, *records: Output) -> list[Output]:
    return list(step.process(WrittenBatch(1, records), 0))


def told(outputs: Iterable[Output]) -> list[tuple[int, str, int, int, int]]:
    facts = facts_in(written(outputs, "aggregates"))
    return [(fact["window_start"], fact["key"], fact["count"], fact["sum"], fact["revision"]) for fact in facts]


def test_an_aggregate_is_one_fact_per_window_and_key_with_the_windows_start_as_its_time() -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5), (15, "a", 2, 7), (60, "a", 1, 1)))
    first, second = written(step.flush(0), "aggregates")
    assert facts_in([first]) == [
        {"key": "a", "window_start": 0, "window_end": 60, "count": 3, "sum": 12, "revision": 0}
    ]
    assert (first.key, first.partition, first.timestamp) == (b"0/a", 1, 0)
    assert (second.key, second.timestamp) == (b"60/a", 60)


def test_windows_before_1970_have_no_timestamp_that_kafka_would_refuse() -> None:
    step = aggregator()
    merge(step, deltas((-15, "a", 1, 5)))
    (output,) = written(step.flush(0), "aggregates")
    assert (output.key, output.timestamp) == (b"-60/a", None)


def test_updates_tell_what_changed_with_the_next_revision() -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5), (0, "b", 1, 1)))
    assert told(step.flush(0)) == [(0, "a", 1, 5, 0), (0, "b", 1, 1, 0)]
    merge(step, deltas((15, "a", 1, 2)))
    merge(step, deltas((30, "a", 1, 2)))
    assert told(step.flush(0)) == [(0, "a", 3, 9, 1)]
    assert told(step.flush(0)) == []


def test_keys_keep_their_own_numbers_when_all_change_in_another_order() -> None:
    step = aggregator()
    merge(step, deltas((0, "b", 1, 10)))
    list(step.flush(0))
    merge(step, deltas((0, "a", 5, 50), (0, "b", 1, 10)))
    assert sorted(told(step.flush(0))) == [(0, "a", 5, 50, 0), (0, "b", 2, 20, 1)]


def test_final_results_are_told_once_when_every_origin_has_passed_the_end() -> None:
    step = aggregator(updates=False, origins=2)
    merge(step, deltas((0, "a", 1, 5), mark=60), deltas((30, "a", 1, 1), (60, "a", 1, 1)))
    assert told(step.flush(0)) == []
    merge(step, progress(59, origin=1))
    assert told(step.flush(0)) == []
    merge(step, progress(60, origin=1))
    assert told(step.flush(0)) == [(0, "a", 2, 6, 0)]
    assert told(step.flush(0)) == []


def test_decimals_scale_values_but_not_counts() -> None:
    step = aggregator(decimals=2)
    merge(step, deltas((0, "a", 3, 125)))
    assert told(step.flush(0)) == [(0, "a", 3, 1.25, 0)]


@pytest.mark.parametrize("updates", [True, False])
def test_a_restored_step_goes_on_as_if_nothing_had_happened(updates: bool) -> None:  # noqa: FBT001
    """Chunks and positions of every flush, over consolidations and closings, are the whole state."""
    whole, log, restored_log = aggregator(updates=updates), Changelog(), Changelog()
    position: str | None = None
    for flush in range(3 * MOST_CHUNKS):
        restored = aggregator(position, list(restored_log.records.items()), updates=updates)
        records = [deltas((flush // 2, f"k{flush % 5}", 1, flush), mark=flush // 2), deltas((60, "z", 1, 1))]
        assert merge(whole, *records) == merge(restored, *records) == []
        outputs = restored_log.take(restored.flush(0))
        assert log.take(whole.flush(0)) == outputs
        assert log.records == restored_log.records
        position = restored.position(1)
        assert position == whole.position(1)


def test_many_chunks_are_written_anew_as_one_and_the_others_are_taken_back() -> None:
    step, log = aggregator(), Changelog()
    for _ in range(MOST_CHUNKS):
        merge(step, deltas((0, "a", 1, 2)))
        log.take(step.flush(0))
    assert sorted(log.records) == sorted(f"0/{number}".encode() for number in range(MOST_CHUNKS))
    log.chunks.clear()
    merge(step, deltas((0, "a", 1, 2)))
    log.take(step.flush(0))
    assert [(chunk.partition, chunk.value is None) for chunk in log.chunks] == [(1, False)] + [(1, True)] * MOST_CHUNKS
    assert list(log.records) == [b"0/-32"]
    merge(step, deltas((0, "a", 1, 2)))
    assert told(log.take(step.flush(0))) == [(0, "a", MOST_CHUNKS + 2, 2 * MOST_CHUNKS + 4, MOST_CHUNKS + 1)]
    assert list(log.records) == [b"0/-32", b"0/33"]


@pytest.mark.parametrize("updates", [True, False])
def test_a_woken_origin_reopens_a_closed_window_and_the_correction_has_the_next_revision(updates: bool) -> None:  # noqa: FBT001
    step, log = aggregator(updates=updates), Changelog()
    merge(step, deltas((0, "a", 1, 5), (0, "b", 1, 1), mark=100))
    assert told(log.take(step.flush(0))) == [(0, "a", 1, 5, 0), (0, "b", 1, 1, 0)]
    late = deltas((45, "a", 1, 1))
    assert step.missing(WrittenBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    assert step.missing(WrittenBatch(1, [late])) == set()
    merge(step, late)
    assert told(log.take(step.flush(0))) == [(0, "a", 2, 6, 1)]


def reopened(log: Changelog, keep_closed_ms: int = 1000, *, updates: bool = True) -> AggregatorStep:
    """Build a step with a closed window that is open again, and nothing for it yet."""
    step = aggregator(updates=updates, keep_closed_ms=keep_closed_ms)
    merge(step, deltas((0, "a", 1, 5), (0, "b", 1, 1), mark=100))
    log.take(step.flush(0))
    step.reopen(1, log.of({0}))
    return step


@pytest.mark.parametrize("updates", [True, False])
def test_reopened_window_is_held_for_some_flushes_with_the_same_results(updates: bool) -> None:  # noqa: FBT001
    held_log, fetched_log = Changelog(), Changelog()
    held, fetched = reopened(held_log, updates=updates), reopened(fetched_log, updates=updates)
    for round_ in range(3):
        for _ in range(round_ * KEPT_FLUSHES // 2):
            assert list(held.flush(0)) == []
        late = deltas((45, "a", 1, 1), (45, "c", 1, 1))
        assert held.missing(WrittenBatch(1, [late])) == set()
        again = aggregator(fetched.position(1), [(key, b"") for key in fetched_log.records], updates=updates)
        again.reopen(1, fetched_log.of({0}))
        for step in (held, again):
            merge(step, late)
        assert held_log.take(held.flush(0)) == fetched_log.take(again.flush(0)) != []
        assert held_log.records == fetched_log.records
    for _ in range(KEPT_FLUSHES + 1):
        assert held.missing(WrittenBatch(1, [late])) == set()
        assert list(held.flush(0)) == []
    assert held.missing(WrittenBatch(1, [late])) == {0}


@pytest.mark.parametrize("updates", [True, False])
def test_reopened_window_that_expires_with_rows_is_corrected_once_and_leaves_the_changelog(updates: bool) -> None:  # noqa: FBT001
    log = Changelog()
    step = reopened(log, keep_closed_ms=120, updates=updates)
    merge(step, deltas((45, "a", 1, 1), mark=180))
    assert told(log.take(step.flush(0))) == [(0, "a", 2, 6, 1)]
    assert log.records == {}
    assert list(step.flush(0)) == []


@pytest.mark.parametrize("updates", [True, False])
def test_window_that_expired_while_it_was_fetched_is_not_emitted_again(updates: bool) -> None:  # noqa: FBT001
    step, log = aggregator(updates=updates, keep_closed_ms=120), Changelog()
    merge(step, deltas((0, "a", 1, 5), mark=100))
    log.take(step.flush(0))
    fetched = log.of({0})
    merge(step, progress(180))
    log.take(step.flush(0))
    step.reopen(1, fetched)
    late = merge(step, deltas((0, "a", 1, 9)))
    assert reasons_in(written(late, "dead-letters")) == [(0, FORGOTTEN)]
    assert list(step.flush(0)) == []
    assert {sample.name: sample.value for sample in step.samples()}["skewless_aggregator_reopened_windows_total"] == 0


def test_after_a_restart_a_closed_window_is_known_without_its_rows() -> None:
    before, log = aggregator(), Changelog()
    merge(before, deltas((0, "a", 1, 5), mark=100))
    log.take(before.flush(0))
    step = aggregator(before.position(1), [(key, b"") for key in log.records])
    late = deltas((45, "a", 1, 1))
    assert step.missing(WrittenBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    merge(step, late)
    assert told(step.flush(0)) == [(0, "a", 2, 6, 1)]


def test_forgotten_windows_leave_the_changelog_and_what_comes_for_them_is_a_dead_letter() -> None:
    step, log = aggregator(keep_closed_ms=120), Changelog()
    for mark in (10, 100):
        merge(step, deltas((0, "a", 1, 5), mark=mark))
        log.take(step.flush(0))
    merge(step, deltas((240, "a", 1, 5), mark=179))
    log.take(step.flush(0))
    assert {window_of(key) for key in log.records} == {0, 240}
    merge(step, progress(180))
    log.take(step.flush(0))
    assert [window_of(key) for key in log.records] == [240]
    outputs = merge(step, deltas((0, "a", 1, 9), (240, "a", 1, 1)))
    (letter,) = written(outputs, "dead-letters")
    assert reasons_in([letter]) == [(0, "window is forgotten")]
    assert [(row["pane"], row["key"], row["sum"]) for row in rows_in([letter])] == [(0, "a", 9)]
    assert told(step.flush(0)) == [(240, "a", 2, 6, 1)]


def test_a_window_longer_than_closed_ones_are_kept_is_kept_after_its_end() -> None:
    step, log = aggregator(keep_closed_ms=30), Changelog()
    merge(step, deltas((0, "a", 1, 5), (60, "a", 1, 1), mark=60))
    log.take(step.flush(0))
    late = deltas((45, "a", 1, 1))
    assert step.missing(WrittenBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    assert merge(step, late) == []
    assert told(log.take(step.flush(0))) == [(0, "a", 2, 6, 1)]
    merge(step, progress(90))
    log.take(step.flush(0))
    assert {window_of(key) for key in log.records} == {60}


def test_record_far_ahead_leaves_closed_windows_to_the_other_origins() -> None:
    step, log = aggregator(origins=2), Changelog()
    merge(step, deltas((0, "a", 1, 5), mark=100), progress(100, origin=1))
    log.take(step.flush(0))
    merge(step, deltas((500_000, "z", 1, 1)))
    log.take(step.flush(0))
    late = deltas((45, "a", 1, 1), mark=45, origin=1)
    assert step.missing(WrittenBatch(1, [late])) == {0}
    step.reopen(1, log.of({0}))
    assert merge(step, late) == []
    assert told(step.flush(0)) == [(0, "a", 2, 6, 1)]


@pytest.mark.parametrize("updates", [True, False])
def test_a_key_that_comes_to_a_closed_window_first_begins_with_revision_0(updates: bool) -> None:  # noqa: FBT001
    step, log = aggregator(updates=updates), Changelog()
    merge(step, deltas((0, "a", 1, 5), mark=100))
    log.take(step.flush(0))
    for revisions in ({"a": 1, "b": 0}, {"a": 2, "b": 1}):
        step.reopen(1, log.of({0}))
        merge(step, deltas((45, "a", 1, 1), (45, "b", 1, 1)))
        assert {key: revision for _, key, _, _, revision in told(log.take(step.flush(0)))} == revisions


def test_windows_close_at_the_watermark_of_idle_origins() -> None:
    step = aggregator(updates=False)
    merge(step, deltas((0, "a", 1, 5), (60, "a", 1, 5)), progress(119, idle=True))
    assert told(step.flush(0)) == [(0, "a", 1, 5, 0)]
    assert (step.watermark(1), step.idle(1)) == (119, True)
    assert aggregator(step.position(1), updates=False).idle(1)


def test_an_origin_that_is_still_idle_holds_windows_that_another_has_passed() -> None:
    step = aggregator(updates=False, origins=2)
    merge(step, deltas((0, "a", 1, 5)), progress(59, idle=True), progress(59, origin=1, idle=True))
    merge(step, progress(120, origin=1))
    assert told(step.flush(0)) == []
    assert not step.idle(1)
    merge(step, deltas((0, "a", 1, 5)), progress(120))
    assert told(step.flush(0)) == [(0, "a", 2, 10, 0)]


def test_the_end_of_time_closes_all_windows_and_ends_a_bounded_run() -> None:
    step = aggregator(updates=False)
    merge(step, deltas((0, "a", 1, 5), (600, "a", 1, 5), mark=END_OF_TIME))
    assert not step.finished(1)
    assert [(start, count) for start, _, count, _, _ in told(step.flush(0))] == [(0, 1), (600, 1)]
    assert step.finished(1)


def test_after_a_bounded_run_newer_windows_are_open_again() -> None:
    before, log = aggregator(updates=False), Changelog()
    merge(before, deltas((0, "a", 1, 5), mark=END_OF_TIME))
    log.take(before.flush(0))
    step = aggregator(before.position(1), list(log.records.items()), updates=False)
    merge(step, deltas((60, "a", 1, 1), mark=100))
    assert told(step.flush(0)) == []
    merge(step, progress(120))
    assert told(step.flush(0)) == [(60, "a", 1, 1, 0)]


@pytest.mark.parametrize("origins", [64, 1024, 3000])
def test_a_position_fits_into_a_commit_and_comes_back(origins: int) -> None:
    step = aggregator(origins=origins)
    for origin in range(origins):
        merge(step, progress(1_700_000_000_000 + 7_919_001 * origin, origin, idle=origin % 2 == 1))
    list(step.flush(0))
    position = step.position(1)
    assert len(position) <= 3_850
    restored = aggregator(position, origins=origins)
    assert restored.watermark(1) == 1_700_000_000_000
    assert restored.position(1) == position


BAD = {
    "no Arrow IPC stream": Output("partials", b"junk", headers=headers_of(PARTIALS, {})),
    "no value": Output("partials", None, headers=headers_of(PARTIALS, {})),
    "no schema": Output("partials", b"junk"),
    "columns missing": Output("partials", write_table(pa.table({"pane": [1]})), headers=headers_of(PARTIALS, {})),
    "columns of other types": Output(
        "partials",
        write_table(pa.table({"pane": [1], "key": ["a"], "count": [1.5], "sum": [1]})),
        headers=headers_of(PARTIALS, {}),
    ),
    "an unknown origin": deltas((0, "x", 1, 1), mark=5, origin=7),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_dead_letters_and_count_for_nothing(name: str) -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5), mark=100))
    list(step.flush(0))
    records = [deltas((60, "a", 1, 1)), BAD[name], deltas((60, "a", 1, 1))]
    assert step.missing(WrittenBatch(1, records)) <= {0}
    outputs = merge(step, *records)
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1]
    assert told(step.flush(0)) == [(60, "a", 2, 2, 0)]


def test_a_revoked_partition_is_forgotten() -> None:
    step = aggregator()
    merge(step, deltas((0, "a", 1, 5)))
    step.revoke(1)
    assert list(step.flush(0)) == []
    assert step.missing(WrittenBatch(1, [deltas((0, "a", 1, 5))])) == set()
