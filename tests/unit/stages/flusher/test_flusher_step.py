"""The flusher's step: what it adds to which row, and when it wants a commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from helpers.batches import json_values_in
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.aggregate_registry import results_of
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import MAX_WATERMARK, MIN_WATERMARK
from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner, tumbling
from skewless.stages.flusher import step as flusher_step
from skewless.stages.flusher.step import FlusherRules, FlusherStep
from skewless.stages.table_settings import added_results
from skewless.wire.columns import write_table
from skewless.wire.headers import WATERMARK
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord
from skewless.wire.table_rows import REASON_HEADER, REFUSED, ROWS

Row = tuple[int, str, int, int]
"""pane, key, count, sum"""


def partials(*rows: Row, watermarks: dict[int, int] | None = None) -> OutputRecord:
    panes, keys, counts, sums = zip(*rows, strict=True)
    table = pa.table({
        "pane": pa.array(panes, pa.int64()), "key": pa.array(keys, pa.string()),
        "count": pa.array(counts, pa.int64()), "sum": pa.array(sums, pa.int64()),
        "worker": pa.array(np.zeros(len(rows), np.int32)),
    })  # fmt: skip
    return OutputRecord("partials", write_table(table), headers=internal_headers(PARTIALS, watermarks or {}))


def flusher(
    *aggregates: Any, windows: WindowAssigner | None = None, rows: int = 2000, worker_partitions: int = 1
) -> FlusherStep:
    results = added_results(results_of(aggregates or ("count", "sum"), [ValueType()]))
    rules = FlusherRules(results, windows or tumbling(60), rows)
    step = FlusherStep(rules, worker_partitions=worker_partitions)
    step.assign(1, None, ())
    return step


def merge(step: FlusherStep, *records: OutputRecord, first: int = 0) -> None:
    assert list(step.process(InMemoryBatch(1, records, range(first, first + len(records))), 0)) == []


def added(outputs: Iterable[OutputRecord]) -> list[tuple[int, int, str, int, int]]:
    return sorted(
        (entry["window_start"], entry["window_end"], entry["key"], entry["count"], entry["sum"])
        for entry in json_values_in(output for output in outputs if output.topic == ROWS)
    )


def test_flusher_partials_of_a_window_become_one_row_per_key() -> None:
    step = flusher()
    merge(step, partials((0, "a", 1, 5), (15, "a", 2, 7), (60, "a", 1, 1)), partials((30, "a", 1, -2), (0, "b", 1, 4)))
    outputs = list(step.flush(0))
    assert added(outputs) == [(0, 60, "a", 4, 10), (0, 60, "b", 1, 4), (60, 120, "a", 1, 1)]
    assert {output.key for output in outputs} == {b"0/a", b"0/b", b"60/a"}


def test_flusher_flush_adds_nothing_twice() -> None:
    step = flusher()
    merge(step, partials((0, "a", 1, 5)))
    assert added(step.flush(0)) == [(0, 60, "a", 1, 5)]
    assert list(step.flush(0)) == []
    merge(step, partials((0, "a", 2, 3)), first=1)
    assert added(step.flush(0)) == [(0, 60, "a", 2, 3)]


def test_flusher_pane_of_overlapping_windows_is_added_to_each() -> None:
    step = flusher(windows=HoppingWindows(60, 30))
    merge(step, partials((0, "a", 1, 5), (30, "a", 2, 7)))
    assert added(step.flush(0)) == [(-30, 30, "a", 1, 5), (0, 60, "a", 3, 12), (30, 90, "a", 2, 7)]


def test_flusher_window_that_ended_long_ago_is_still_added() -> None:
    step = flusher()
    merge(step, partials((600_000, "a", 1, 1), watermarks={0: 600_000}), partials((0, "a", 1, 5)))
    assert added(step.flush(0))[0] == (0, 60, "a", 1, 5)


def test_flusher_mean_is_added_as_sum_and_count() -> None:
    step = flusher("mean")
    merge(step, partials((0, "a", 2, 5)))
    assert json_values_in(step.flush(0)) == [
        {"key": "a", "window_start": 0, "window_end": 60, "sum": 5, "count": 2, "revision": 0}
    ]


def test_flusher_wants_a_commit_when_the_rows_of_all_partitions_are_enough() -> None:
    step = flusher(rows=3)
    step.assign(2, None, ())
    merge(step, partials((0, "a", 1, 5), (0, "b", 1, 5), (15, "a", 1, 1)))
    assert not step.wants_commit
    list(step.process(InMemoryBatch(2, [partials((0, "c", 1, 1))]), 0))
    states = [step.wants_commit, step.stops_for_commit]
    list(step.flush(0))
    assert [*states, step.wants_commit] == [True, True, False]


def test_flusher_revoked_partition_adds_nothing() -> None:
    step = flusher()
    merge(step, partials((0, "a", 1, 5)))
    step.revoke(1)
    assert list(step.flush(0)) == []


def test_flusher_foreign_record_is_refused_once_with_its_offset_and_others_are_added() -> None:
    step = flusher(rows=6)
    foreign = [
        OutputRecord("partials", b"x", b"k"),
        OutputRecord("partials", b"x", headers=internal_headers("other", {})),
        OutputRecord("partials", b"x", headers=internal_headers(PARTIALS, {})),
        partials((0, "a", 1, 5), watermarks={7: 1}),
    ]
    merge(step, partials((0, "a", 1, 5)), *foreign, partials((0, "b", 1, 5)), first=10)
    assert step.wants_commit
    outputs = list(step.flush(0))
    assert list(step.flush(0)) == []
    assert added(outputs) == [(0, 60, "a", 1, 5), (0, 60, "b", 1, 5)]
    refused = [dict(output.headers) for output in outputs if output.topic == REFUSED]
    assert [header["offset"] for header in refused] == [b"11", b"12", b"13", b"14"]
    assert all(header[REASON_HEADER] for header in refused)


def test_flusher_more_rows_than_are_converted_at_once_are_all_added(monkeypatch: Any) -> None:
    monkeypatch.setattr(flusher_step, "ROWS", 3)
    step = flusher()
    merge(step, partials(*((0, f"k{number}", number, 2 * number) for number in range(10))))
    assert added(step.flush(0)) == [(0, 60, f"k{number}", number, 2 * number) for number in range(10)]


def test_flusher_watermarks_survive_in_the_checkpoint_and_end_the_run() -> None:
    step = flusher(worker_partitions=2)
    assert step.watermark(1) is None
    merge(step, partials((0, "a", 1, 5), watermarks={0: 60, 1: 90}))
    assert (step.watermark(1), step.max_event_time(1), step.tuples) == (60, 0, 1)
    again = flusher(worker_partitions=2)
    again.assign(1, step.checkpoint(1), ())
    assert again.watermark(1) == 60
    ends = internal_headers(WATERMARK, {0: MAX_WATERMARK, 1: MAX_WATERMARK})
    assert not again.finished(1)
    merge(again, OutputRecord("partials", None, headers=ends))
    assert again.finished(1)
    next_run = flusher(worker_partitions=2)
    next_run.assign(1, again.checkpoint(1), ())
    merge(next_run, OutputRecord("partials", None, headers=internal_headers(WATERMARK, {0: 120})))
    assert next_run.watermark(1) == MIN_WATERMARK  # the other partition may continue, too
