from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.batches import (
    batch_of,
    idle_in,
    json_values_in,
    reasons_in,
    reports,
    source,
    tuples_in,
    watermarks_in,
    written,
)
from skewless.algorithms.record_size import RECORD_BYTES
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner, tumbling
from skewless.parsing import batch_slices
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import SourceRecords
from skewless.parsing.validation import EventTimeRules
from skewless.stages.splitter.step import SplitterRules, SplitterStep
from skewless.wire.headers import WATERMARK, schema_of
from skewless.wire.record import OutputRecord
from skewless.wire.tuples import TUPLES, TupleFormat

NOW = 1_000_000
SETTINGS: dict[str, Any] = {"key": {"field": "k[]"}, "value": {"field": "v"}, "time": {"field": "t"}}


def record(time: int, *keys: str, value: float = 1) -> bytes:
    return json.dumps({"k": keys, "v": value, "t": time}).encode()


def splitter(
    checkpoint: str | None = None,
    *,
    decimals: int = 0,
    earliest: int = 0,
    windows: WindowAssigner | None = None,
    **rules: Any,
) -> SplitterStep:
    settings = {**SETTINGS, "value": {"field": "v", "decimals": decimals}}
    settings["time"] = {"field": "t", "earliest": earliest}
    parsing = ParsingSettings.model_validate(settings)
    event_time = EventTimeRules(lateness_ms=10, max_ahead_ms=1000, earliest=earliest, windows=windows)
    tuple_format = TupleFormat(parsing.value_types)
    chosen: dict[str, Any] = {"event_time": event_time, "idle_timeout_ms": 500, "drain": False}
    step = SplitterStep(RecordParser(parsing), SplitterRules(tuple_format=tuple_format, **chosen | rules), reports())
    step.assign(source(3), checkpoint, ())
    return step


def split(step: SplitterStep, *values: bytes | None, first: int = 0, now: int = NOW) -> list[OutputRecord]:
    return [*step.process(batch_of(3, values, first=first), now), *step.held_records(source(3))]


def test_splitter_tuples_of_several_batches_are_one_record_at_the_flush() -> None:
    step = splitter()
    for time in (100, 200):
        assert list(step.process(batch_of(3, [record(time, "a"), record(time, "b")]), NOW)) == []
    (output,) = step.flush(NOW)
    assert tuples_in([output]) == [("a", 1, 100), ("b", 1, 100), ("a", 1, 200), ("b", 1, 200)]
    assert watermarks_in([output]) == [{3: 190}]
    assert list(step.flush(NOW)) == []


def test_splitter_more_tuples_than_are_held_are_sent_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skewless.stages.splitter.step.HELD_BYTES", 1)
    step = splitter()
    assert tuples_in(step.process(batch_of(3, [record(100, "a")]), NOW)) == [("a", 1, 100)]
    assert list(step.flush(NOW)) == []


def test_splitter_without_transactions_sends_tuples_at_once() -> None:
    step = splitter(holds=False)
    assert tuples_in(step.process(batch_of(3, [record(100, "a")]), NOW)) == [("a", 1, 100)]
    assert list(step.flush(NOW)) == []


def test_splitter_revoked_partition_sends_none_of_its_tuples() -> None:
    step = splitter()
    list(step.process(batch_of(3, [record(100, "a")]), NOW))
    step.revoke(source(3))
    step.assign(source(3), None, ())
    assert tuples_in(step.flush(NOW)) == []


def test_splitter_record_with_several_keys_gives_a_tuple_for_each() -> None:
    outputs = split(splitter(), record(100, "a", "b", value=5), record(101), record(102, "a"))
    assert tuples_in(outputs) == [("a", 5, 100), ("b", 5, 100), ("a", 1, 102)]


@pytest.mark.parametrize(
    ("windows", "late"),
    [
        (None, [100, 50, 49, 50, 100, 149, 0]),
        (tumbling(100), [50, 49, 50, 0]),
        (HoppingWindows(100, 50), [50, 49, 50, 100, 149, 0]),
        (HoppingWindows(300, 300, offset_ms=50), [49, 0]),
    ],
)
def test_splitter_tuple_is_late_when_the_first_of_its_windows_to_end_has_closed(
    windows: WindowAssigner | None, late: list[int]
) -> None:
    # The watermark is 149 after the second tuple, and 150 after the sixth.
    times = (50, 159, 149, 100, 50, 160, 49, 150, 50, 100, 149, 0)
    outputs = split(splitter(windows=windows), *(record(time, "a") for time in times))
    assert [json.loads(output.value or b"")["time"] for output in written(outputs, "late")] == late


def test_splitter_tuples_of_a_batch_become_one_record_of_the_source_partition() -> None:
    (output,) = split(splitter(), record(100, "a"), record(150, "b"))
    assert (output.topic, output.partition, output.key, output.timestamp) == ("tuples", 3, None, None)
    assert schema_of(output.headers) == TUPLES


def test_splitter_watermark_header_is_the_maximum_time_minus_the_lateness() -> None:
    assert watermarks_in(split(splitter(), record(100, "a"), record(150, "b"), record(145, "c"))) == [{3: 140}]


def test_splitter_batch_without_tuples_gives_no_record() -> None:
    assert split(splitter(), record(100)) == []


def test_splitter_invalid_records_become_dead_letters_with_coordinates_and_others_are_processed() -> None:
    outputs = split(splitter(), record(100, "a"), b"{", record(101, "b"), None, first=40)
    assert tuples_in(written(outputs, "tuples")) == [("a", 1, 100), ("b", 1, 101)]
    dead_letters = written(outputs, "dead-letters")
    assert [dead_letter.value for dead_letter in dead_letters] == [b"{", None]
    assert [offset for offset, _ in reasons_in(dead_letters)] == [41, 43]
    assert dict(dead_letters[0].headers)["__skewless.errors.topic"] == b"source"
    assert dict(dead_letters[0].headers)["__skewless.errors.partition"] == b"3"


def test_splitter_late_tuples_are_written_to_late_with_watermark_and_coordinates() -> None:
    outputs = split(splitter(), record(100, "a"), record(90, "b"), record(89, "c", "d", value=7), first=5)
    assert tuples_in(written(outputs, "tuples")) == [("a", 1, 100), ("b", 1, 90)]
    late = written(outputs, "late")
    common = {"value": 7, "time": 89, "watermark": 90, "partition": 3, "offset": 7}
    assert json_values_in(late) == [{"key": "c", **common}, {"key": "d", **common}]
    assert [(output.key, output.timestamp) for output in late] == [(b"c", 89), (b"d", 89)]


def test_splitter_late_values_have_their_decimals() -> None:
    outputs = split(splitter(decimals=2), record(100, "a"), record(1, "b", value=1.25))
    assert json_values_in(written(outputs, "late"))[0]["value"] == 1.25


@pytest.mark.parametrize("cut", range(6))
def test_splitter_log_split_into_batches_anywhere_gives_the_same_late_tuples(cut: int) -> None:
    log = [record(time, f"k{time}") for time in (50, 100, 89, 120, 109, 115)]
    step = splitter()
    outputs = split(step, *log[:cut]) + split(step, *log[cut:], first=cut)
    assert [key for key, _, _ in tuples_in(written(outputs, "tuples"))] == ["k50", "k100", "k120", "k115"]
    assert [(entry["time"], entry["watermark"]) for entry in json_values_in(written(outputs, "late"))] == [
        (89, 90),
        (109, 110),
    ]


def test_splitter_restarted_decides_lateness_as_without_a_restart() -> None:
    before = splitter()
    split(before, record(100, "a"))
    restarted = splitter(before.checkpoint(source(3)))
    assert len(written(split(restarted, record(89, "b")), "late")) == 1
    assert watermarks_in(restarted.flush(NOW)) == [{3: 90}]


def test_splitter_invalid_record_leaves_the_watermark_unchanged() -> None:
    step = splitter()
    split(step, record(100, "a"), record(NOW + 1001, "b"))
    assert step.watermark(source(3)) == 90


def test_splitter_times_too_far_ahead_or_too_early_become_dead_letters() -> None:
    outputs = split(splitter(), record(NOW + 1000, "a"), record(NOW + 1001, "b"), record(-1, "c"))
    assert [key for key, _, _ in tuples_in(written(outputs, "tuples"))] == ["a"]
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1, 2]
    assert [reason for _, reason in reasons_in(written(outputs, "dead-letters"))] == [
        "time too far ahead of the clock",
        "time before splitter.time.earliest",
    ]


def test_splitter_allowed_times_before_1970_give_records_without_kafka_timestamp() -> None:
    outputs = split(splitter(earliest=-1000), record(-500, "a"), record(-600, "b"))
    assert tuples_in(written(outputs, "tuples")) == [("a", 1, -500)]
    assert [(entry["time"], entry["watermark"]) for entry in json_values_in(written(outputs, "late"))] == [(-600, -510)]
    assert [output.timestamp for output in written(outputs, "late")] == [None]


def test_splitter_watermark_advanced_without_tuples_is_emitted_once() -> None:
    step = splitter()
    split(step, record(100, "a"))
    assert list(step.flush(NOW)) == []
    split(step, record(200))
    (output,) = step.flush(NOW)
    assert (output.topic, output.partition, output.value, schema_of(output.headers)) == ("tuples", 3, None, WATERMARK)
    assert watermarks_in([output]) == [{3: 190}]
    assert list(step.flush(NOW)) == []


def test_splitter_partition_without_records_emits_nothing() -> None:
    assert list(splitter().flush(NOW)) == []


def test_splitter_silent_partition_becomes_idle_at_its_watermark_until_its_next_record() -> None:
    step = splitter()
    split(step, record(100, "a"))
    step.end_of_partition(source(3), NOW + 499)
    assert list(step.flush(NOW)) == []
    step.end_of_partition(source(3), NOW + 500)
    outputs = list(step.flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 90}], [{3}])
    assert (step.watermark(source(3)), step.idle(source(3))) == (90, True)
    outputs = split(step, record(101, "a"), now=NOW + 600)
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 91}], [set()])
    assert not step.idle(source(3))
    step.end_of_partition(source(3), NOW + 700)
    assert list(step.flush(NOW)) == []


def test_splitter_partition_that_was_always_empty_becomes_idle() -> None:
    step = splitter()
    step.end_of_partition(source(3), NOW)
    assert list(step.flush(NOW)) == []
    step.end_of_partition(source(3), NOW + 500)
    outputs = list(step.flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{}], [{3}])
    assert list(step.flush(NOW)) == []


def idle_splitter() -> SplitterStep:
    step = splitter()
    split(step, record(100, "a"))
    step.end_of_partition(source(3), NOW + 500)
    list(step.flush(NOW))
    return step


def test_splitter_whose_clock_is_set_back_finds_an_idle_partition_in_time() -> None:
    step = splitter()
    split(step, record(100, "a"))
    list(step.flush(NOW))
    step.end_of_partition(source(3), NOW - 3_600_000)
    assert list(step.flush(NOW)) == []
    step.end_of_partition(source(3), NOW - 3_600_000 + 500)
    assert idle_in(list(step.flush(NOW))) == [{3}]


def test_splitter_restarted_keeps_a_partition_idle_until_its_next_record() -> None:
    restarted = splitter(idle_splitter().checkpoint(source(3)))
    outputs = list(restarted.flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 90}], [{3}])
    restarted.end_of_partition(source(3), NOW)
    assert list(restarted.flush(NOW)) == []
    outputs = split(restarted, record(100, "a"))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 90}], [set()])


def test_splitter_restarted_keeps_a_partition_idle_that_gets_only_invalid_records() -> None:
    restarted = splitter(idle_splitter().checkpoint(source(3)))
    restarted.records_in_flight(source(3))
    assert not restarted.idle(source(3)), "they may have an event time"
    split(restarted, b"{")
    restarted.up_to_date(source(3), NOW)
    assert restarted.idle(source(3))


@pytest.mark.parametrize("rules", [{"drain": True}, {"idle_timeout_ms": None}])
def test_splitter_restarted_without_idle_detection_makes_an_idle_partition_active(rules: dict[str, Any]) -> None:
    outputs = list(splitter(idle_splitter().checkpoint(source(3)), **rules).flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 90}], [set()])


@pytest.mark.parametrize("rules", [{"drain": True}, {"idle_timeout_ms": None}])
def test_splitter_restarted_without_idle_detection_makes_an_empty_idle_partition_active(rules: dict[str, Any]) -> None:
    step = splitter()
    step.end_of_partition(source(3), NOW)
    step.end_of_partition(source(3), NOW + 500)
    restarted = splitter(step.checkpoint(source(3)), **rules)
    outputs = list(restarted.flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: -10}], [set()])
    assert list(restarted.flush(NOW)) == []


def test_splitter_partition_without_records_that_has_ended_is_active_in_the_next_run() -> None:
    bounded = splitter(drain=True)
    bounded.end_of_partition(source(3), NOW)
    assert watermarks_in(list(bounded.flush(NOW))) == [{3: MAX_WATERMARK}]
    outputs = list(splitter(bounded.checkpoint(source(3)), earliest=50).flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 40}], [set()])


def test_splitter_restarted_idle_partition_without_records_is_active_while_its_first_one_waits() -> None:
    step = splitter()
    step.end_of_partition(source(3), NOW)
    step.end_of_partition(source(3), NOW + 500)
    for flushes in range(2):
        restarted = splitter(step.checkpoint(source(3)), earliest=50)
        for _ in range(flushes):
            assert idle_in(list(restarted.flush(NOW))) == [{3}]
        restarted.records_in_flight(source(3))
        outputs = list(restarted.flush(NOW))
        assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 40}], [set()])
        assert list(restarted.flush(NOW)) == []


def test_splitter_idle_partition_without_records_is_active_while_its_first_one_waits() -> None:
    step = splitter(earliest=50)
    step.end_of_partition(source(3), NOW)
    step.end_of_partition(source(3), NOW + 500)
    list(step.flush(NOW))
    step.records_in_flight(source(3))
    outputs = list(step.flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: 40}], [set()])
    step.end_of_partition(source(3), NOW + 600)
    assert idle_in(list(step.flush(NOW))) == [{3}]


def test_splitter_idle_partition_in_a_bounded_run_ends() -> None:
    restarted = splitter(idle_splitter().checkpoint(source(3)), drain=True)
    restarted.end_of_partition(source(3), NOW)
    outputs = list(restarted.flush(NOW))
    assert (watermarks_in(outputs), idle_in(outputs)) == ([{3: MAX_WATERMARK}], [set()])
    assert restarted.finished(source(3))


def test_splitter_invalid_record_keeps_a_partition_without_watermark_idle() -> None:
    step = splitter()
    step.end_of_partition(source(3), NOW)
    step.end_of_partition(source(3), NOW + 500)
    list(step.flush(NOW))
    split(step, b"{")
    assert list(step.flush(NOW)) == []


def test_splitter_partition_with_only_invalid_records_becomes_idle() -> None:
    step = splitter()
    split(step, record(100))
    step.end_of_partition(source(3), NOW)
    split(step, b"{", now=NOW + 400)
    step.end_of_partition(source(3), NOW + 499)
    assert not step.idle(source(3))
    step.records_in_flight(source(3))
    step.end_of_partition(source(3), NOW + 500)
    assert step.idle(source(3))
    step.records_in_flight(source(3))
    assert not step.idle(source(3)), "they may have an event time"
    split(step, b"{", now=NOW + 600)
    step.end_of_partition(source(3), NOW + 600)
    assert step.idle(source(3))
    split(step, record(50), now=NOW + 700)  # late
    step.end_of_partition(source(3), NOW + 700)
    assert not step.idle(source(3))


def test_splitter_partition_that_gets_invalid_records_all_the_time_becomes_idle() -> None:
    step = splitter()
    split(step, record(100))
    for now, is_idle in ((NOW + 499, False), (NOW + 500, True)):
        split(step, b"{", now=now)
        step.up_to_date(source(3), now)
        assert step.idle(source(3)) == is_idle
    split(step, record(110), now=NOW + 501)
    step.up_to_date(source(3), NOW + 501)
    assert not step.idle(source(3))


def test_splitter_without_idle_timeout_silence_emits_nothing() -> None:
    step = splitter(idle_timeout_ms=None)
    step.up_to_date(source(3), NOW)
    step.up_to_date(source(3), NOW + 10**9)
    step.end_of_partition(source(3), NOW)
    step.end_of_partition(source(3), NOW + 10**9)
    assert list(step.flush(NOW)) == []


def test_splitter_bounded_run_at_the_end_of_a_partition_emits_the_max_watermark() -> None:
    step = splitter(drain=True)
    split(step, record(100, "a"))
    assert not step.finished(source(3))
    step.end_of_partition(source(3), NOW)
    assert not step.finished(source(3))
    assert watermarks_in(step.flush(NOW)) == [{3: MAX_WATERMARK}]
    assert step.finished(source(3))


def test_splitter_records_after_the_end_of_a_partition_make_it_active_again() -> None:
    step = splitter(drain=True)
    step.end_of_partition(source(3), NOW)
    step.flush(NOW)
    assert watermarks_in(split(step, record(100, "a"))) == [{3: 90}]
    assert not step.finished(source(3))


def test_splitter_large_batch_is_split_into_bounded_records_with_the_watermark_in_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_slices, "SLICE_BYTES", 2**30)
    keys = [f"{number:01000d}" for number in range(10_000)]
    batch = batch_of(3, [record(100, key) for key in keys])
    step = splitter()
    outputs = [*step.process(batch, NOW), *step.held_records(source(3))]
    assert len(outputs) > 1
    assert all(output.value is not None and len(output.value) <= RECORD_BYTES for output in outputs)
    assert [key for key, _, _ in tuples_in(outputs)] == keys
    assert watermarks_in(outputs) == [*({} for _ in outputs[1:]), {3: 90}]


def test_splitter_keys_of_late_tuples_are_not_in_the_tuple_record() -> None:
    outputs = split(splitter(), record(100, "a"), *(record(1, f"{number:01000d}") for number in range(100)))
    (tuples,) = written(outputs, "tuples")
    assert len(tuples.value or b"") < 2_000


def test_splitter_revoked_partition_is_dropped() -> None:
    step = splitter()
    split(step, record(100, "a"), record(200))
    step.revoke(source(3))
    assert list(step.flush(NOW)) == []
    step.assign(source(3), None, ())
    assert step.watermark(source(3)) is None


RECORDS = st.one_of(
    st.builds(record, st.integers(0, 120), st.sampled_from("abc"), st.sampled_from("abc")),
    st.builds(record, st.just(NOW + 2_000), st.just("far")),
    st.sampled_from([b"{", b"", b'{"k":[],"v":1,"t":5}', None]),
)


@given(log=st.lists(RECORDS, max_size=12), most=st.integers(1, 150))
def test_splitter_batch_sliced_at_any_size_gives_the_same_outputs(log: list[bytes | None], most: int) -> None:
    whole, sliced = splitter(), splitter()
    expected = split(whole, *log, first=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_slices, "SLICE_BYTES", most)
        found = split(sliced, *log, first=7)
    assert tuples_in(written(found, "tuples")) == tuples_in(written(expected, "tuples"))
    # If the last slices have no tuples, the commit writes their watermark.
    found += sliced.flush(NOW)
    expected += whole.flush(NOW)
    assert watermarks_in(written(found, "tuples"))[-1:] == watermarks_in(written(expected, "tuples"))[-1:]
    assert json_values_in(written(found, "late")) == json_values_in(written(expected, "late"))
    assert written(found, "dead-letters") == written(expected, "dead-letters")
    assert (sliced.checkpoint(source(3)), sliced.tuples) == (whole.checkpoint(source(3)), whole.tuples)


def test_splitter_batch_of_many_bytes_is_parsed_in_bounded_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_slices, "SLICE_BYTES", 1_000)
    step, parsed = splitter(), list[int]()
    parse = step._parser.parse

    def counting(records: SourceRecords) -> ParsedBatch:
        parsed.append(sum(len(value or b"") for value in records.values))
        return parse(records)

    monkeypatch.setattr(step._parser, "parse", counting)
    log = [*(record(time, "a" * 90) for time in range(50)), record(60, *["b" * 50] * 90), record(61, "c")]
    outputs = split(step, *log)
    assert len(tuples_in(outputs)) == 50 + 90 + 1
    assert sorted(parsed)[-2] <= 1_000 < max(parsed) == len(log[50])
    assert len(parsed) <= 2 * sum(map(len, log)) / 1_000


def drifting(**rules: Any) -> SplitterStep:
    """Return a splitter that has read partition 3 up to 2,010 ms, and partition 4 up to 1,010 ms."""
    step = splitter(**{"max_drift_ms": 999, **rules})
    step.assign(source(4), None, ())
    split(step, record(2_010, "a"))
    list(step.process(batch_of(4, [record(1_010, "a")]), NOW))
    return step


def test_splitter_partition_ahead_of_the_slowest_waits_until_that_one_has_advanced() -> None:
    step = drifting()
    assert step.blocked == {source(3)}
    assert [sample.value for sample in step.collect_metrics() if "paused" in sample.name] == [1]
    list(step.process(batch_of(4, [record(1_011, "a")], first=1), NOW))
    assert step.blocked == frozenset()


def test_splitter_idle_partition_holds_no_other_one_back() -> None:
    step = drifting()
    step.end_of_partition(source(4), NOW + 500)
    list(step.flush(NOW + 500))
    assert step.blocked == frozenset()


def test_splitter_ended_or_revoked_partition_holds_no_other_one_back() -> None:
    step = drifting(drain=True)
    step.end_of_partition(source(4), NOW)
    list(step.flush(NOW))
    assert step.blocked == frozenset()
    other = drifting()
    other.revoke(source(4))
    assert other.blocked == frozenset()


def test_splitter_without_a_bound_lets_no_partition_wait() -> None:
    assert drifting(max_drift_ms=None).blocked == frozenset()
