from __future__ import annotations

import json

import numpy as np
import pytest

from skewless.algorithms.watermark import END_OF_TIME, IDLE, OriginMarks, SourceClock


def observe(clock: SourceClock, *times: int) -> list[bool]:
    return [bool(late) for late in clock.observe(np.array(times, dtype=np.int64))]


def test_late_is_what_lies_below_the_mark_of_the_records_before() -> None:
    clock = SourceClock(lateness_ms=10)
    assert observe(clock, 100, 90, 89, 120, 109, 110) == [False, False, True, False, True, False]


def test_a_late_record_leaves_the_mark_alone() -> None:
    clock = SourceClock(lateness_ms=10, max_time=100)
    assert observe(clock, 3) == [True]
    assert (clock.max_time, clock.mark()) == (100, 90)


def test_a_clock_without_records_has_no_mark() -> None:
    clock = SourceClock(lateness_ms=10)
    assert observe(clock) == []
    assert (clock.max_time, clock.mark()) == (None, None)


def test_the_first_record_is_never_late() -> None:
    assert observe(SourceClock(lateness_ms=0), np.iinfo(np.int64).min) == [False]


def test_no_lateness_means_below_the_maximum() -> None:
    assert observe(SourceClock(lateness_ms=0), 5, 5, 4) == [False, False, True]


def test_a_restored_clock_continues_with_its_maximum() -> None:
    assert observe(SourceClock(lateness_ms=5, max_time=50), 44, 45) == [True, False]


def test_no_record_can_make_a_partition_idle() -> None:
    clock = SourceClock(lateness_ms=0)
    observe(clock, IDLE + 1)
    assert clock.mark() == END_OF_TIME


def test_the_end_of_time_is_the_end_of_the_year_9999_and_exact_in_json() -> None:
    assert np.datetime64(END_OF_TIME, "ms") == np.datetime64("9999-12-31T23:59:59.999")
    assert float(IDLE) == IDLE


def test_watermark_is_the_minimum_once_every_origin_has_spoken() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 30})
    assert marks.watermark() is None
    marks.tell({1: 20})
    assert marks.watermark() == 20


def test_the_last_mark_counts_also_when_it_is_lower() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 30, 1: IDLE})
    assert marks.watermark() == 30
    marks.tell({1: 10})
    assert marks.watermark() == 10


def test_the_minimum_skips_idle_but_not_ended_origins() -> None:
    marks = OriginMarks(2)
    marks.tell({0: IDLE, 1: END_OF_TIME})
    assert marks.watermark() == END_OF_TIME


def test_all_idle_is_idle() -> None:
    marks = OriginMarks(2)
    marks.tell({0: IDLE, 1: IDLE})
    assert marks.watermark() == IDLE


def test_new_origins_hold_the_watermark_until_they_speak() -> None:
    marks = OriginMarks(1)
    marks.tell({0: 30})
    marks.grow(2)
    assert marks.watermark() is None
    marks.tell({1: 40})
    assert marks.watermark() == 30


def test_growing_to_fewer_origins_changes_nothing() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 1, 1: 2})
    marks.grow(1)
    assert marks.snapshot() == {0: 1, 1: 2}


@pytest.mark.parametrize("origin", [-1, 2])
def test_an_unknown_origin_is_refused(origin: int) -> None:
    with pytest.raises(ValueError, match=rf"origin {origin} is unknown: there are 2"):
        OriginMarks(2).tell({origin: 5})


def test_a_snapshot_holds_who_has_spoken_and_replaces_what_was_said() -> None:
    marks = OriginMarks(3)
    marks.tell({0: 7, 2: IDLE})
    snapshot = marks.snapshot()
    assert json.loads(json.dumps(snapshot)) == {"0": 7, "2": IDLE}
    other = OriginMarks(3)
    other.tell({1: 5})
    other.restore(snapshot)
    assert other.snapshot() == {0: 7, 2: IDLE}
    assert other.watermark() is None
