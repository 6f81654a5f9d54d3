from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.algorithms.sized import RECORD_BYTES
from skewless.algorithms.watermark import END_OF_TIME
from skewless.records import PROGRESS, TUPLES, Output, schema_of
from skewless.splitter import slices
from skewless.splitter.formats import create_format
from skewless.splitter.formats.base import Parsed
from skewless.splitter.settings import SplitterSettings
from skewless.splitter.step import SplitterRules, SplitterStep
from support import batch_of, facts_in, idle_in, marks_in, reasons_in, tuples_in, written

NOW = 1_000_000
SETTINGS: dict[str, Any] = {"key": {"field": "k[]"}, "value": {"field": "v"}, "time": {"field": "t"}}


def record(time: int, *keys: str, value: float = 1) -> bytes:
    return json.dumps({"k": keys, "v": value, "t": time}).encode()


def splitter(position: str | None = None, *, decimals: int = 0, earliest: int = 0, **rules: Any) -> SplitterStep:
    settings = {**SETTINGS, "value": {"field": "v", "decimals": decimals}}
    settings["time"] = {"field": "t", "earliest": earliest}
    chosen = {"lateness_ms": 10, "idle_timeout_ms": 500, "max_future_ms": 1000, "drain": False, "earliest": earliest}
    step = SplitterStep(
        create_format(SplitterSettings.model_validate(settings)),
        SplitterRules(**chosen | rules, decimals=decimals),
        "source",
    )
    step.assign(3, position, ())
    return step


def split(step: SplitterStep, *values: bytes | None, first: int = 0, now: int = NOW) -> list[Output]:
    return list(step.process(batch_of(3, values, first=first), now))


def test_a_record_gives_as_many_tuples_as_it_has_keys() -> None:
    outputs = split(splitter(), record(100, "a", "b", value=5), record(101), record(102, "a"))
    assert tuples_in(outputs) == [("a", 5, 100), ("b", 5, 100), ("a", 1, 102)]


def test_tuples_of_a_batch_are_one_record_of_the_partition_with_the_sources_number() -> None:
    (output,) = split(splitter(), record(100, "a"), record(150, "b"))
    assert (output.topic, output.partition, output.key, output.timestamp) == ("tuples", 3, None, None)
    assert schema_of(output.headers) == TUPLES


def test_the_mark_in_the_headers_is_the_maximum_less_the_lateness() -> None:
    assert marks_in(split(splitter(), record(100, "a"), record(150, "b"), record(145, "c"))) == [{3: 140}]


def test_a_batch_without_tuples_gives_no_record() -> None:
    assert split(splitter(), record(100)) == []


def test_bad_records_become_dead_letters_with_coordinates_and_neighbours_are_processed() -> None:
    outputs = split(splitter(), record(100, "a"), b"{", record(101, "b"), None, first=40)
    assert tuples_in(written(outputs, "tuples")) == [("a", 1, 100), ("b", 1, 101)]
    letters = written(outputs, "dead-letters")
    assert [letter.value for letter in letters] == [b"{", None]
    assert [offset for offset, _ in reasons_in(letters)] == [41, 43]
    assert dict(letters[0].headers)["__skewless.errors.topic"] == b"source"
    assert dict(letters[0].headers)["__skewless.errors.partition"] == b"3"


def test_late_tuples_go_to_late_with_the_mark_that_they_missed_and_their_coordinates() -> None:
    outputs = split(splitter(), record(100, "a"), record(90, "b"), record(89, "c", "d", value=7), first=5)
    assert tuples_in(written(outputs, "tuples")) == [("a", 1, 100), ("b", 1, 90)]
    late = written(outputs, "late")
    common = {"value": 7, "time": 89, "mark": 90, "partition": 3, "offset": 7}
    assert facts_in(late) == [{"key": "c", **common}, {"key": "d", **common}]
    assert [(output.key, output.timestamp) for output in late] == [(b"c", 89), (b"d", 89)]


def test_late_values_have_their_decimals() -> None:
    outputs = split(splitter(decimals=2), record(100, "a"), record(1, "b", value=1.25))
    assert facts_in(written(outputs, "late"))[0]["value"] == 1.25


@pytest.mark.parametrize("cut", range(6))
def test_late_does_not_depend_on_how_the_log_is_cut(cut: int) -> None:
    log = [record(time, f"k{time}") for time in (50, 100, 89, 120, 109, 115)]
    step = splitter()
    outputs = split(step, *log[:cut]) + split(step, *log[cut:], first=cut)
    assert [key for key, _, _ in tuples_in(written(outputs, "tuples"))] == ["k50", "k100", "k120", "k115"]
    assert [(fact["time"], fact["mark"]) for fact in facts_in(written(outputs, "late"))] == [(89, 90), (109, 110)]


def test_late_is_decided_after_a_restart_as_without_one() -> None:
    before = splitter()
    split(before, record(100, "a"))
    restarted = splitter(before.position(3))
    assert len(written(split(restarted, record(89, "b")), "late")) == 1
    assert marks_in(restarted.flush(NOW)) == [{3: 90}]


def test_a_bad_record_does_not_move_time() -> None:
    step = splitter()
    split(step, record(100, "a"), record(NOW + 1001, "b"))
    assert step.watermark(3) == 90


def test_times_too_far_ahead_or_before_the_earliest_are_dead_letters() -> None:
    outputs = split(splitter(), record(NOW + 1000, "a"), record(NOW + 1001, "b"), record(-1, "c"))
    assert [key for key, _, _ in tuples_in(written(outputs, "tuples"))] == ["a"]
    assert [offset for offset, _ in reasons_in(written(outputs, "dead-letters"))] == [1, 2]
    assert [reason for _, reason in reasons_in(written(outputs, "dead-letters"))] == [
        "time too far ahead of the clock",
        "time before splitter.time.earliest",
    ]


def test_times_before_1970_are_tuples_where_they_are_allowed_and_their_records_have_no_such_timestamp() -> None:
    outputs = split(splitter(earliest=-1000), record(-500, "a"), record(-600, "b"))
    assert tuples_in(written(outputs, "tuples")) == [("a", 1, -500)]
    assert [(fact["time"], fact["mark"]) for fact in facts_in(written(outputs, "late"))] == [(-600, -510)]
    assert [output.timestamp for output in written(outputs, "late")] == [None]


def test_progress_is_told_once_when_time_moved_without_tuples() -> None:
    step = splitter()
    split(step, record(100, "a"))
    assert list(step.flush(NOW)) == []
    split(step, record(200))
    (output,) = step.flush(NOW)
    assert (output.topic, output.partition, output.value, schema_of(output.headers)) == ("tuples", 3, None, PROGRESS)
    assert marks_in([output]) == [{3: 190}]
    assert list(step.flush(NOW)) == []


def test_nothing_is_told_of_a_partition_that_has_had_no_records() -> None:
    assert list(splitter().flush(NOW)) == []


def test_silence_becomes_idle_at_the_last_watermark_and_a_record_wakes_the_partition() -> None:
    step = splitter()
    split(step, record(100, "a"))
    step.end_of_partition(3, NOW + 499)
    assert list(step.flush(NOW)) == []
    step.end_of_partition(3, NOW + 500)
    outputs = list(step.flush(NOW))
    assert (marks_in(outputs), idle_in(outputs)) == ([{3: 90}], [{3}])
    assert (step.watermark(3), step.idle(3)) == (90, True)
    outputs = split(step, record(101, "a"), now=NOW + 600)
    assert (marks_in(outputs), idle_in(outputs)) == ([{3: 91}], [set()])
    assert not step.idle(3)
    step.end_of_partition(3, NOW + 700)
    assert list(step.flush(NOW)) == []


def test_a_partition_that_was_always_empty_becomes_idle_too() -> None:
    step = splitter()
    step.end_of_partition(3, NOW)
    assert list(step.flush(NOW)) == []
    step.end_of_partition(3, NOW + 500)
    outputs = list(step.flush(NOW))
    assert (marks_in(outputs), idle_in(outputs)) == ([{}], [{3}])
    assert list(step.flush(NOW)) == []


def idle_splitter() -> SplitterStep:
    step = splitter()
    split(step, record(100, "a"))
    step.end_of_partition(3, NOW + 500)
    list(step.flush(NOW))
    return step


def test_a_partition_that_was_idle_is_idle_after_a_restart_until_it_has_a_record() -> None:
    restarted = splitter(idle_splitter().position(3))
    outputs = list(restarted.flush(NOW))
    assert (marks_in(outputs), idle_in(outputs)) == ([{3: 90}], [{3}])
    restarted.end_of_partition(3, NOW)
    assert list(restarted.flush(NOW)) == []
    outputs = split(restarted, record(100, "a"))
    assert (marks_in(outputs), idle_in(outputs)) == ([{3: 90}], [set()])


@pytest.mark.parametrize("rules", [{"drain": True}, {"idle_timeout_ms": None}])
def test_a_partition_that_was_idle_is_active_in_a_run_that_excludes_none(rules: dict[str, Any]) -> None:
    outputs = list(splitter(idle_splitter().position(3), **rules).flush(NOW))
    assert (marks_in(outputs), idle_in(outputs)) == ([{3: 90}], [set()])


def test_a_partition_that_was_idle_ends_as_others_do() -> None:
    restarted = splitter(idle_splitter().position(3), drain=True)
    restarted.end_of_partition(3, NOW)
    outputs = list(restarted.flush(NOW))
    assert (marks_in(outputs), idle_in(outputs)) == ([{3: END_OF_TIME}], [set()])
    assert restarted.finished(3)


def test_an_unreadable_record_does_not_make_a_partition_without_a_watermark_active() -> None:
    step = splitter()
    step.end_of_partition(3, NOW)
    step.end_of_partition(3, NOW + 500)
    list(step.flush(NOW))
    split(step, b"{")
    assert list(step.flush(NOW)) == []


def test_without_a_timeout_silence_says_nothing() -> None:
    step = splitter(idle_timeout_ms=None)
    step.end_of_partition(3, NOW)
    step.end_of_partition(3, NOW + 10**9)
    assert list(step.flush(NOW)) == []


def test_a_bounded_run_ends_with_the_end_of_time() -> None:
    step = splitter(drain=True)
    split(step, record(100, "a"))
    assert not step.finished(3)
    step.end_of_partition(3, NOW)
    assert not step.finished(3)
    assert marks_in(step.flush(NOW)) == [{3: END_OF_TIME}]
    assert step.finished(3)


def test_records_after_the_end_take_it_back() -> None:
    step = splitter(drain=True)
    step.end_of_partition(3, NOW)
    step.flush(NOW)
    assert marks_in(split(step, record(100, "a"))) == [{3: 90}]
    assert not step.finished(3)


def test_big_batches_are_cut_into_bounded_records_and_only_the_last_one_tells_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_BYTES", 2**30)
    keys = [f"{number:01000d}" for number in range(10_000)]
    batch = batch_of(3, [record(100, key) for key in keys])
    outputs = list(splitter().process(batch, NOW))
    assert len(outputs) > 1
    assert all(output.value is not None and len(output.value) <= RECORD_BYTES for output in outputs)
    assert [key for key, _, _ in tuples_in(outputs)] == keys
    assert marks_in(outputs) == [*({} for _ in outputs[1:]), {3: 90}]


def test_keys_of_late_tuples_take_no_room_among_the_others() -> None:
    outputs = split(splitter(), record(100, "a"), *(record(1, f"{number:01000d}") for number in range(100)))
    (tuples,) = written(outputs, "tuples")
    assert len(tuples.value or b"") < 2_000


def test_a_revoked_partition_is_forgotten() -> None:
    step = splitter()
    split(step, record(100, "a"), record(200))
    step.revoke(3)
    assert list(step.flush(NOW)) == []
    step.assign(3, None, ())
    assert step.watermark(3) is None


RECORDS = st.one_of(
    st.builds(record, st.integers(0, 120), st.sampled_from("abc"), st.sampled_from("abc")),
    st.builds(record, st.just(NOW + 2_000), st.just("far")),
    st.sampled_from([b"{", b"", b'{"k":[],"v":1,"t":5}', None]),
)


@given(log=st.lists(RECORDS, max_size=12), most=st.integers(1, 150))
def test_process_batch_is_sliced_at_any_size_gives_the_same(log: list[bytes | None], most: int) -> None:
    whole, sliced = splitter(), splitter()
    expected = split(whole, *log, first=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "SLICE_BYTES", most)
        found = split(sliced, *log, first=7)
    assert tuples_in(written(found, "tuples")) == tuples_in(written(expected, "tuples"))
    # Where the last slices have no tuples, the commit reports their time.
    found += sliced.flush(NOW)
    expected += whole.flush(NOW)
    assert marks_in(written(found, "tuples"))[-1:] == marks_in(written(expected, "tuples"))[-1:]
    assert facts_in(written(found, "late")) == facts_in(written(expected, "late"))
    assert written(found, "dead-letters") == written(expected, "dead-letters")
    assert (sliced.position(3), sliced.tuples) == (whole.position(3), whole.tuples)


def test_process_batch_of_many_bytes_is_parsed_in_bounded_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_BYTES", 1_000)
    step, parsed = splitter(), list[int]()
    parse = step._format.parse

    def counting(values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> Parsed:
        parsed.append(sum(len(value or b"") for value in values))
        return parse(values, timestamps)

    monkeypatch.setattr(step._format, "parse", counting)
    log = [*(record(time, "a" * 90) for time in range(50)), record(60, *["b" * 50] * 90), record(61, "c")]
    outputs = split(step, *log)
    assert len(tuples_in(outputs)) == 50 + 90 + 1
    assert sorted(parsed)[-2] <= 1_000 < max(parsed) == len(log[50])
    assert len(parsed) <= 2 * sum(map(len, log)) / 1_000
