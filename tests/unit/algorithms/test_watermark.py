from __future__ import annotations

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


@pytest.mark.parametrize("time", [END_OF_TIME, IDLE, IDLE + 1])
def test_no_record_can_make_a_partition_idle_or_end_it(time: int) -> None:
    clock = SourceClock(lateness_ms=0)
    observe(clock, time)
    assert clock.mark() == END_OF_TIME - 1


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
    assert marks.watermark() == 1


@pytest.mark.parametrize("origin", [-1, 2])
def test_an_unknown_origin_is_refused(origin: int) -> None:
    with pytest.raises(ValueError, match=rf"origin {origin} is unknown: there are 2"):
        OriginMarks(2).tell({origin: 5})


def test_encoded_marks_tell_who_has_spoken_and_replace_what_was_said() -> None:
    marks, other = OriginMarks(3), OriginMarks(3)
    marks.tell({0: 7, 2: IDLE})
    other.tell({1: 5})
    other.decode(marks.encode())
    assert other.watermark() is None
    other.tell({1: END_OF_TIME})
    assert other.watermark() == 7
    other.tell({0: IDLE})
    assert other.watermark() == END_OF_TIME


def test_marks_of_fewer_origins_leave_the_new_ones_unheard() -> None:
    marks, grown = OriginMarks(1), OriginMarks(2)
    marks.tell({0: 7})
    grown.decode(marks.encode())
    assert grown.watermark() is None
    grown.tell({1: 9})
    assert grown.watermark() == 7


@pytest.mark.parametrize(("origins", "spread"), [(64, END_OF_TIME), (384, END_OF_TIME), (1024, 4 * 3_600_000)])
def test_encoded_marks_are_exact_where_there_is_room(origins: int, spread: int) -> None:
    assert restored_marks(origins, spread) == spread_marks(origins, spread)


@pytest.mark.parametrize("origins", [1, 64, 512, 1024, 3090])
def test_encoded_marks_fit_into_a_commit_and_never_tell_of_more_time(origins: int) -> None:
    spread = 10 * 365 * 86_400_000
    for mark, restored in zip(spread_marks(origins, spread), restored_marks(origins, spread), strict=True):
        assert restored <= mark
        assert mark - restored <= spread / (50 if origins > 1024 else 60_000)


def spread_marks(origins: int, spread: int) -> list[int]:
    return [spread * origin // origins for origin in range(origins)]


def restored_marks(origins: int, spread: int) -> list[int]:
    marks, restored = OriginMarks(origins), OriginMarks(origins)
    marks.tell(dict(enumerate(spread_marks(origins, spread))))
    text = marks.encode()
    assert len(text) < 3_900
    restored.decode(text)
    return [int(mark) for mark in restored._marks]
