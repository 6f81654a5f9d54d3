"""A splitter with local windows: when rows leave, which watermark later stages know, and what a restart reads again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest

from helpers.avro import encoded, record_of
from helpers.batches import (
    FORMAT,
    ROW_FORMAT,
    batch_of,
    idle_in,
    reasons_in,
    reports,
    rows_in,
    source,
    watermarks_in,
    written,
)
from skewless.algorithms.local_buffer import LocalRules
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.assigner import HoppingWindows, tumbling
from skewless.errors import UnknownSchemaError
from skewless.parsing import batch_slices
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.schema_registry.schema import Schema
from skewless.schema_registry.settings import RegistrySettings
from skewless.stages.splitter.checkpoint import Held, decode_checkpoint
from skewless.stages.splitter.local_step import STEPS, LocalSplitterRules, RestoredRows
from skewless.stages.splitter.restore import read_again
from skewless.stages.splitter.step import SplitterStep
from skewless.wire.headers import WATERMARK, schema_of
from skewless.wire.record import OutputRecord
from skewless.wire.rows import ROWS
from skewless.wire.tuples import TUPLES

NOW = 1_000_000
SETTINGS = ParsingSettings.model_validate({"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}})
EVENT_TIME = EventTimeRules(lateness_ms=2, max_ahead_ms=1000)
LOCAL = LocalRules(columns=ROW_FORMAT.columns, pane_ms=10, max_rows=1000)
RULES = LocalSplitterRules(
    event_time=EVENT_TIME,
    tuple_format=FORMAT,
    idle_timeout_ms=5000,
    drain=False,
    local=LOCAL,
    row_format=ROW_FORMAT,
    parsing="as before",
)
Mode = Literal["none", "buffer", "windows"]
AVRO = record_of("r", k="string", v="long", t="long")


def record(time: int, key: str = "a") -> bytes:
    return b'{"k": "%s", "v": 1, "t": %d}' % (key.encode(), time)


def splitter(
    checkpoint: str | None = None,
    state: RestoredRows | tuple[()] = (),
    *,
    mode: Mode = "windows",
    max_rows: int = 1000,
    pane_ms: int = 10,
    **rules: Any,
) -> SplitterStep:
    local = replace(LOCAL, max_rows=max_rows, pane_ms=pane_ms)
    changed = replace(RULES, local=local, **rules)
    step = STEPS[mode](RecordParser(SETTINGS), changed, reports())
    step.assign(source(3), checkpoint, state)
    return step


def split(step: SplitterStep, *times: int, first: int = 0, now: int = NOW) -> list[OutputRecord]:
    return list(step.process(batch_of(3, [record(time) for time in times], first=first), now))


def sent(outputs: Sequence[OutputRecord]) -> list[tuple[int, int]]:
    """Return start and count of the rows of key `a`."""
    return sorted((row["pane"], row["count"]) for row in rows_in(written(outputs, "tuples")))


def held(step: SplitterStep) -> Held | None:
    return decode_checkpoint(step.checkpoint(source(3))).held


def reread(step: SplitterStep, log: Sequence[bytes]) -> RestoredRows | tuple[()]:
    """Return the state that a restart restores from the records of the log."""
    found = held(step)
    if found is None:
        return ()
    batches = [batch_of(3, [log[offset]], first=offset) for offset in range(found.offset, found.end)]
    return read_again(batches, found, RULES, RecordParser(SETTINGS))


def metrics(step: SplitterStep) -> dict[Any, float]:
    prefix = "skewless_splitter_local_"
    samples = (sample for sample in step.collect_metrics() if sample.name.startswith(prefix))
    return {(sample.name.removeprefix(prefix), *sample.labels): sample.value for sample in samples}


def test_window_rows_leave_when_the_watermark_passes_their_window() -> None:
    step = splitter()
    assert split(step, 1, 4, 11) == []
    # The watermark is 9, so the window until 10 is open, and nothing before it may close.
    outputs = list(step.flush(NOW))
    assert ([schema_of(output.headers) for output in outputs], watermarks_in(outputs)) == ([WATERMARK], [{3: 0}])
    assert split(step, 12, first=3) == []
    outputs = list(step.flush(NOW))
    assert (sent(outputs), watermarks_in(outputs)) == ([(0, 2)], [{3: 10}])
    assert [schema_of(output.headers) for output in outputs] == [ROWS]
    assert list(step.flush(NOW)) == []
    assert metrics(step)["flushes_total", "window"] == 1


def test_window_rows_checkpoint_names_the_first_held_record_and_what_was_before_it() -> None:
    step = splitter()
    split(step, 1, 4, 11, 12)
    list(step.flush(NOW))
    assert held(step) == Held(offset=2, end=4, max_time=4, floor=10, tuples=2, settings="as before", window_ms=10)
    split(step, 22, first=4)
    list(step.flush(NOW))
    assert held(step) == Held(offset=4, end=5, max_time=12, floor=20, tuples=1, settings="as before", window_ms=10)


def test_window_rows_silent_partition_holds_nothing_after_the_length_of_a_window() -> None:
    step = splitter()
    split(step, 1)
    list(step.flush(NOW + 9))
    assert held(step) is not None
    outputs = list(step.flush(NOW + 10))
    assert (sent(outputs), held(step), idle_in(outputs)) == ([(0, 1)], None, [set()])
    assert metrics(step)["flushes_total", "idle"] == 1


def test_window_rows_silent_since_a_restart_are_sent_after_the_length_of_a_window() -> None:
    first, log = splitter(), [record(1)]
    split(first, 1)
    list(first.flush(NOW))
    step = splitter(first.checkpoint(source(3)), reread(first, log))
    assert sent(list(step.flush(NOW + 1000))) == []
    assert sent(list(step.flush(NOW + 1010))) == [(0, 1)]
    assert held(step) is None


def test_window_rows_idle_partition_holds_nothing() -> None:
    step = splitter(idle_timeout_ms=5)
    split(step, 1)
    step.end_of_partition(source(3), NOW + 5)
    outputs = list(step.flush(NOW + 5))
    assert (sent(outputs), held(step), idle_in(outputs)) == ([(0, 1)], None, [{3}])


def test_window_rows_end_of_a_bounded_run_sends_all_windows_and_the_last_watermark() -> None:
    step = splitter(drain=True)
    split(step, 1, 11, 25)
    step.end_of_partition(source(3), NOW)
    outputs = list(step.flush(NOW))
    assert (sent(outputs), held(step)) == ([(0, 1), (10, 1), (20, 1)], None)
    assert watermarks_in(outputs) == [{}, {3: MAX_WATERMARK}]
    assert step.finished(source(3))


def test_window_rows_full_windows_send_the_closed_ones_first_and_then_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_slices, "SLICE_BYTES", 1)
    step = splitter(max_rows=2)
    # The watermark of the fourth tuple is 9. It closes no window, and both are open.
    assert sent(split(step, 1, 9, 10, 11)) == [(0, 2), (10, 2)]
    assert held(step) is None
    # That of the sixth tuple is 20. It closes the window of the fifth, and one row is not too many.
    assert sent(split(step, 12, 22, first=4)) == [(10, 1)]
    assert held(step) == Held(5, 6, 12, 20, 1, "as before", 10)
    assert (metrics(step)["flushes_total", "size"], metrics(step)["flushes_total", "window"]) == (1, 1)


def test_window_rows_of_one_row_and_a_commit_after_each_record_send_each_tuple() -> None:
    step = splitter(max_rows=1)
    outputs = []
    for offset in range(20):
        outputs += split(step, offset, first=offset)
        outputs += step.flush(NOW + 10 * offset)
    assert sum(count for _, count in sent(outputs)) == 20
    assert metrics(step)["flushes_total", "size"] + metrics(step)["flushes_total", "window"] == 20


def test_window_rows_watermark_never_decreases_when_a_window_opens_in_its_middle() -> None:
    step, watermarks = splitter(max_rows=3), []
    for offset, time in enumerate((1, 17, 16, 18, 15, 16, 27, 26, 28, 45)):
        outputs = [*split(step, time, first=offset), *step.flush(NOW)]
        watermarks += [reported[3] for reported in watermarks_in(outputs) if 3 in reported]
    assert all(before <= after for before, after in pairwise(watermarks))
    assert watermarks[-1] == 40


def test_window_rows_records_that_the_clock_refuses_are_not_in_a_range_that_is_read_again() -> None:
    step, far = splitter(), NOW + 1001
    outputs = split(step, 1, far, 2)
    assert len(reasons_in(written(outputs, "dead-letters"))) == 1
    assert sent(list(step.flush(NOW))) == [(0, 2)]
    assert held(step) is None
    split(step, 3, first=3)
    list(step.flush(NOW))
    assert held(step) == Held(3, 4, 2, 0, 1, "as before", 10)


class Registry:
    """Has schema 7, and gets schema 8 after the first request for it."""

    has = frozenset({7})

    def schema(self, schema_id: int) -> Schema:
        if schema_id not in self.has:
            self.has |= {schema_id}
            raise UnknownSchemaError(f"no schema {schema_id}")
        return Schema("AVRO", json.dumps(AVRO))

    def wait(self, attempt: Callable[[], None]) -> None:
        attempt()


def test_window_rows_records_of_an_unknown_schema_are_not_in_a_range_that_is_read_again() -> None:
    registry, fields = Registry(), {"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}}
    settings = ParsingSettings.model_validate({"format": "avro", **fields})
    assert settings.format.bind(RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})) is None

    def new_parser() -> RecordParser:
        parser = RecordParser(settings)
        parser.schemas[0].client = registry  # type: ignore[assignment]  # has the method that the cache calls
        return parser

    step = STEPS["windows"](new_parser(), RULES, reports())
    step.assign(source(3), None, ())
    log = [encoded(AVRO, {"k": "a", "v": 1, "t": time}, 7 + time % 2) for time in (2, 3, 4)]
    outputs = list(step.process(batch_of(3, log), NOW))
    assert reasons_in(outputs) == [(1, "schema 8 is unknown to the registry")]
    outputs = list(step.flush(NOW))
    if found := held(step):
        assert read_again([batch_of(3, log)], found, RULES, new_parser()).tuples == found.tuples
    assert (sent(outputs), held(step)) == ([(0, 2)], None)


def test_window_rows_restart_reads_late_and_invalid_records_again_and_writes_nothing_twice() -> None:
    log = [record(5), record(25), b"?", record(3), record(24), record(31), record(28)]
    step = splitter()
    outputs = list(step.process(batch_of(3, log), NOW))
    assert (len(written(outputs, "late")), len(written(outputs, "dead-letters"))) == (2, 1)
    assert sent(list(step.flush(NOW))) == [(0, 1)]
    state = reread(step, log)
    again = splitter(step.checkpoint(source(3)), state)
    assert again.checkpoint(source(3)) == step.checkpoint(source(3))
    assert metrics(again)["reread_records_total",] == 6
    outputs = [*again.flush(NOW), *split(again, 60, first=7), *again.flush(NOW)]
    assert (sent(outputs), written(outputs, "late")) == ([(20, 2), (30, 1)], [])


@pytest.mark.parametrize("mode", ["none", "buffer"])
def test_window_rows_mode_changed_by_a_restart_sends_what_was_held_before_all_else(mode: Mode) -> None:
    log = [record(1), record(2)]
    before = splitter()
    split(before, 1, 2)
    list(before.flush(NOW))
    step = splitter(before.checkpoint(source(3)), reread(before, log), mode=mode)
    outputs = [*split(step, 14, first=2), *step.flush(NOW)]
    assert (schema_of(outputs[0].headers), rows_in(outputs[:1])[0]["count"]) == (ROWS, 2)
    assert watermarks_in(outputs)[0] == {3: 0}
    assert schema_of(outputs[1].headers) == (TUPLES if mode == "none" else ROWS)
    assert held(step) is None
    idle = splitter(before.checkpoint(source(3)), reread(before, log), mode=mode)
    assert sent(list(idle.flush(NOW))) == [(0, 2)]
    assert held(idle) is None


def test_window_rows_length_changed_by_a_restart_sends_what_was_held_at_once() -> None:
    log = [record(1), record(13)]
    before = splitter()
    split(before, 1, 13)
    list(before.flush(NOW))
    again = reread(before, log)
    step = splitter(before.checkpoint(source(3)), again, pane_ms=5)
    assert sent(list(step.flush(NOW))) == [(10, 1)]
    assert held(step) is None


def test_window_rows_whose_next_records_are_skipped_are_sent_so_that_no_range_contains_these() -> None:
    step = splitter()
    split(step, 1, 4)
    list(step.flush(NOW))
    found, checkpoint = held(step), step.checkpoint(source(3))
    assert found is not None
    log = [batch_of(3, [record(1), record(4)])]
    again = replace(read_again(log, found, RULES, RecordParser(SETTINGS)), skips_next=True)
    restarted = splitter(checkpoint, again)
    outputs = [*split(restarted, 5, first=7), *restarted.flush(NOW)]  # source.skip_to is {3: 7}
    assert sent(outputs) == [(0, 2)]
    found = held(restarted)
    assert found is not None
    assert (found.offset, found.end, found.tuples) == (7, 8, 1)


@pytest.mark.parametrize("windows", [tumbling(30), HoppingWindows(60, 30)])
def test_window_rows_tuple_of_a_closed_local_window_and_an_open_window_is_sent_in_the_next_commit(
    windows: HoppingWindows,
) -> None:
    step = splitter(event_time=replace(EVENT_TIME, windows=windows))
    outputs = [*split(step, 1, 24), *step.flush(NOW)]
    assert (sent(outputs), watermarks_in(outputs)[-1]) == ([(0, 1)], {3: 20})
    # The local window from 10 on has closed at 20. The window from 0 on is open until the watermark is 30.
    outputs = [*split(step, 12, 31, 13, 32, 14, first=2), *step.flush(NOW)]
    assert (sent(outputs), watermarks_in(outputs)[-1]) == ([(10, 2), (20, 1)], {3: 30})
    assert [json.loads(late.value or b"")["time"] for late in written(outputs, "late")] == [14]
    assert held(step) == Held(3, 7, 24, 30, 2, "as before", 10)


@pytest.mark.parametrize("mode", ["none", "buffer"])
def test_window_rows_mode_begun_by_a_restart_holds_only_new_tuples(mode: Mode) -> None:
    before = splitter(mode=mode)
    outputs = [*split(before, 1, 13), *before.flush(NOW)]
    assert before.checkpoint(source(3)) == "[13,false,0]"
    step = splitter(before.checkpoint(source(3)))
    split(step, 14, first=2)
    assert watermarks_in([*outputs, *step.flush(NOW)])[-1] == {3: 11}
    assert held(step) == Held(2, 3, 13, 10, 1, "as before", 10)


def test_window_rows_revoked_partition_drops_what_it_holds() -> None:
    step = splitter()
    split(step, 1)
    step.revoke(source(3))
    assert list(step.flush(NOW)) == []
    step.assign(source(3), None, ())
    assert held(step) is None
