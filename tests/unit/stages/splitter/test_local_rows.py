"""A splitter with local aggregation sends rows instead of tuples, and never a watermark before the tuples it covers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helpers.batches import (
    FORMAT,
    ROW_FORMAT,
    batch_of,
    json_values_in,
    reasons_in,
    reports,
    rows_in,
    source,
    watermarks_in,
    written,
)
from skewless.algorithms import local_buffer
from skewless.algorithms.local_buffer import OFF_FLUSHES, LocalRules
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.parsing import batch_slices
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.stages.splitter.local_step import BufferSplitterStep, LocalSplitterRules
from skewless.stages.splitter.step import SplitterRules, SplitterStep
from skewless.wire.headers import WATERMARK, schema_of
from skewless.wire.record import OutputRecord
from skewless.wire.rows import ROWS
from skewless.wire.tuples import TUPLES

NOW = 1_000_000
SETTINGS = ParsingSettings.model_validate({"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}})
AB = [{"key": "a", "pane": 100, "count": 2, "sum": 7}, {"key": "b", "pane": 100, "count": 1, "sum": 3}]
EVENT_TIME = EventTimeRules(lateness_ms=10, max_ahead_ms=1000)


def record(time: int, key: str, value: int = 1) -> bytes:
    return b'{"k": "%s", "v": %d, "t": %d}' % (key.encode(), value, time)


def splitter(max_rows: int = 1000, *, adaptive: bool = False, drain: bool = False) -> SplitterStep:
    rules = LocalSplitterRules(
        event_time=EVENT_TIME,
        tuple_format=FORMAT,
        idle_timeout_ms=500,
        drain=drain,
        local=LocalRules(columns=ROW_FORMAT.columns, pane_ms=10, max_rows=max_rows, adaptive=adaptive),
        row_format=ROW_FORMAT,
    )
    step = BufferSplitterStep(RecordParser(SETTINGS), rules, reports())
    step.assign(source(3), None, ())
    return step


def split(step: SplitterStep, *values: bytes, partition: int = 3) -> list[OutputRecord]:
    return [*step.process(batch_of(partition, values), NOW), *step.held_records(source(partition))]


def schemas(outputs: list[OutputRecord]) -> list[str]:
    return [schema_of(output.headers) for output in outputs]


def metrics(step: SplitterStep) -> dict[Any, float]:
    prefix = "skewless_splitter_local_"
    samples = (sample for sample in step.collect_metrics() if sample.name.startswith(prefix))
    return {(sample.name.removeprefix(prefix), *sample.labels): sample.value for sample in samples}


def test_splitter_with_a_buffer_sends_rows_of_all_batches_in_the_flush() -> None:
    step = splitter()
    assert split(step, record(100, "a", 5), record(109, "b", 3)) == []
    assert split(step, record(105, "a", 2)) == []
    outputs = list(step.flush(NOW))
    assert sorted(rows_in(outputs), key=lambda row: row["key"]) == AB
    assert [(output.topic, output.partition, schema_of(output.headers)) for output in outputs] == [("tuples", 3, ROWS)]
    assert watermarks_in(outputs) == [{3: 99}]
    assert list(step.flush(NOW)) == []
    assert step.tuples == 3


def test_splitter_with_a_buffer_late_and_invalid_records_are_not_in_rows() -> None:
    step = splitter()
    outputs = split(step, record(100, "a"), record(80, "late"), b"?", record(101, "a"))
    assert [late["key"] for late in json_values_in(written(outputs, "late"))] == ["late"]
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [2]
    assert [(row["key"], row["count"]) for row in rows_in(step.flush(NOW))] == [("a", 2)]


def test_splitter_full_buffer_is_sent_with_the_watermark_of_its_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_slices, "SLICE_BYTES", 1)
    step = splitter(max_rows=2)
    outputs = split(step, *(record(100 + number, f"k{number}") for number in range(5)))
    assert [len(rows_in([output])) for output in outputs] == [2, 2]
    assert watermarks_in(outputs) == [{3: 91}, {3: 93}]
    assert watermarks_in(step.flush(NOW)) == [{3: 94}]


def test_splitter_buffer_of_one_row_sends_each_batch() -> None:
    step = splitter(max_rows=1)
    outputs = [output for number in range(4) for output in split(step, record(100 + number, "a"))]
    assert [row["count"] for row in rows_in(outputs)] == [1, 1, 1, 1]
    assert metrics(step)["flushes_total", "size"] == 4


def test_splitter_revoked_partition_sends_nothing_of_its_buffer() -> None:
    step = splitter()
    split(step, record(100, "a"))
    step.revoke(source(3))
    assert list(step.flush(NOW)) == []
    step.assign(source(3), None, ())
    split(step, record(100, "b"))
    assert [row["key"] for row in rows_in(step.flush(NOW))] == ["b"]


def test_splitter_partitions_have_buffers_of_their_own() -> None:
    step = splitter()
    step.assign(source(4), None, ())
    split(step, record(100, "a"))
    split(step, record(200, "a"), partition=4)
    outputs = list(step.flush(NOW))
    assert [(output.partition, *watermarks_in([output])) for output in outputs] == [(3, {3: 90}), (4, {4: 190})]


def test_splitter_bounded_run_ends_with_the_rows_and_the_last_watermark() -> None:
    step = splitter(drain=True)
    split(step, record(100, "a"))
    step.end_of_partition(source(3), NOW)
    outputs = list(step.flush(NOW))
    assert (schemas(outputs), watermarks_in(outputs)) == ([ROWS], [{3: MAX_WATERMARK}])
    assert step.finished(source(3))


def test_splitter_checkpoint_does_not_depend_on_the_buffer() -> None:
    with_buffer = splitter()
    plain = SplitterStep(RecordParser(SETTINGS), RULES, reports())
    plain.assign(source(3), None, ())
    for step in (with_buffer, plain):
        split(step, record(100, "a"), record(150, "b"))
        list(step.flush(NOW))
    assert with_buffer.checkpoint(source(3)) == plain.checkpoint(source(3))


RULES = SplitterRules(event_time=EVENT_TIME, tuple_format=FORMAT, idle_timeout_ms=500, drain=False)


def test_splitter_adaptive_buffer_that_is_off_sends_tuples_until_a_probe_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_buffer, "PROBE_BATCHES", 2)
    step = splitter(adaptive=True)
    for time in range(100, 100 + OFF_FLUSHES):
        split(step, record(time, "a"), record(time, "b"))
        assert schemas(list(step.flush(NOW))) == [ROWS]
    assert metrics(step)["active", "3"] == 0
    same = [record(110, "a")] * 9
    assert schemas(split(step, *same)) == [TUPLES]
    assert split(step, *same) == []
    assert metrics(step)["active", "3"] == 1
    outputs = list(step.flush(NOW))
    assert [row["count"] for row in rows_in(outputs)] == [9]
    assert step.tuples == 2 * OFF_FLUSHES + 18


def with_a_buffer_that_is_off(monkeypatch: pytest.MonkeyPatch) -> SplitterStep:
    """Return a splitter whose buffer saved nothing, so that it sends tuples until the second batch of equal keys."""
    monkeypatch.setattr(local_buffer, "PROBE_BATCHES", 2)
    step = splitter(adaptive=True)
    for time in range(100, 100 + OFF_FLUSHES):
        split(step, record(time, "a"), record(time, "b"))
        list(step.flush(NOW))
    return step


def test_splitter_buffer_that_begins_between_two_flushes_is_not_overtaken_by_its_watermark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = with_a_buffer_that_is_off(monkeypatch)
    same = [record(120, "a")] * 9
    outputs = [*step.process(batch_of(3, same), NOW), *step.process(batch_of(3, [*same, record(500, "a")]), NOW)]
    assert outputs == []
    between = list(step.held_records(source(3)))  # as before a commit, or if another partition holds too much
    assert (schemas(between), watermarks_in(between)) == ([TUPLES], [{}])
    rows = list(step.flush(NOW))
    assert (schemas(rows), watermarks_in(rows)) == ([ROWS], [{3: 490}])


def test_splitter_flush_sends_held_tuples_before_rows_and_the_watermark_last(monkeypatch: pytest.MonkeyPatch) -> None:
    step = with_a_buffer_that_is_off(monkeypatch)
    same = [record(120, "a")] * 9
    for values in (same, [*same, record(500, "a")]):
        assert list(step.process(batch_of(3, values), NOW)) == []
    outputs = list(step.flush(NOW))
    assert (schemas(outputs), watermarks_in(outputs)) == ([TUPLES, ROWS], [{}, {3: 490}])


def test_splitter_flush_without_tuples_reports_the_watermark_alone() -> None:
    step = splitter()
    split(step, b'{"k": null, "v": 1, "t": 100}', record(100, "a"))
    list(step.flush(NOW))
    step.end_of_partition(source(3), NOW + 1000)
    assert schemas(list(step.flush(NOW + 1000))) == [WATERMARK]


def test_splitter_metrics_count_tuples_rows_and_flushes() -> None:
    step = splitter(max_rows=3)
    split(step, record(100, "a"), record(100, "a"))
    assert metrics(step)["buffer_rows",] == 2
    list(step.flush(NOW))
    split(step, *(record(100, key) for key in "abcd"))
    assert metrics(step) == {
        ("tuples_total",): 6,
        ("rows_total",): 5,
        ("buffer_rows",): 0,
        ("flushes_total", "commit"): 1,
        ("flushes_total", "size"): 1,
        ("flushes_total", "window"): 0,
        ("flushes_total", "idle"): 0,
        ("reread_records_total",): 0,
        ("active", "3"): 1,
    }


def test_splitter_with_any_buffer_sends_the_same_counts() -> None:
    values = [record(100 + number, f"k{number * number % 11}") for number in range(100)]
    totals = []
    for max_rows in (1, 7, 1000):
        step = splitter(max_rows)
        outputs = [output for first in range(0, 100, 9) for output in split(step, *values[first : first + 9])]
        counts: Counter[tuple[int, str]] = Counter()
        for row in rows_in([*outputs, *step.flush(NOW)]):
            counts[row["pane"], row["key"]] += row["count"]
        totals.append(counts)
    assert totals[0] == totals[1] == totals[2]
    assert totals[0].total() == 100
