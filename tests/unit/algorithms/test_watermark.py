from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.watermark import END_OF_TIME, MAX_ORIGINS, OriginMarks, SourceClock, WatermarkState


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


@pytest.mark.parametrize("time", [END_OF_TIME, END_OF_TIME + 1])
def test_no_record_can_end_a_partition(time: int) -> None:
    clock = SourceClock(lateness_ms=0)
    observe(clock, time)
    assert clock.mark() == END_OF_TIME - 1


def test_the_end_of_time_is_the_end_of_the_year_9999_and_exact_in_json() -> None:
    assert np.datetime64(END_OF_TIME, "ms") == np.datetime64("9999-12-31T23:59:59.999")
    assert float(END_OF_TIME) == END_OF_TIME


def test_watermark_is_the_minimum_once_every_origin_has_spoken() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 30})
    assert marks.watermark() is None
    marks.tell({1: 20})
    assert marks.watermark() == 20


def test_a_watermark_makes_an_idle_origin_active_also_when_it_is_lower() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 30, 1: 20}, idle=[1])
    assert marks.watermark() == 30
    marks.tell({1: 10})
    assert marks.watermark() == 10


def test_an_idle_origin_keeps_its_watermark() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 30, 1: 20})
    marks.tell({}, idle=[0])
    marks.tell({}, idle=[1])
    assert marks.state() == WatermarkState(30, idle=True)


def test_all_idle_is_idle_at_the_highest_watermark() -> None:
    marks = OriginMarks(3)
    marks.tell({0: 200, 1: 50}, idle=[0, 1, 2])
    assert marks.state() == WatermarkState(200, idle=True)


def test_an_idle_origin_without_a_watermark_is_excluded() -> None:
    marks = OriginMarks(2)
    marks.tell({0: 5}, idle=[1])
    assert marks.state() == WatermarkState(5)
    only = OriginMarks(1)
    only.tell({}, idle=[0])
    assert only.state() == WatermarkState(None, idle=True)


def test_an_ended_origin_does_not_end_others_that_are_idle() -> None:
    marks = OriginMarks(2)
    marks.tell({0: END_OF_TIME, 1: 20}, idle=[1])
    assert marks.state() == WatermarkState(20, idle=True)
    marks.tell({1: END_OF_TIME})
    assert marks.state() == WatermarkState(END_OF_TIME)


def test_idle_origins_count_where_they_are_not_excluded() -> None:
    marks = OriginMarks(2, exclude_idle=False)
    marks.tell({0: 20}, idle=[0])
    assert marks.watermark() is None
    marks.tell({1: 30})
    assert marks.state() == WatermarkState(20)
    marks.tell({0: END_OF_TIME})
    assert marks.state() == WatermarkState(30)
    marks.tell({}, idle=[1])
    assert marks.state() == WatermarkState(30, idle=True)


@pytest.mark.parametrize("origin", [-1, 2])
def test_an_unknown_origin_is_refused_and_nothing_is_updated(origin: int) -> None:
    marks = OriginMarks(2)
    marks.tell({0: 1, 1: 1})
    for watermarks, idle in (({0: 5, origin: 5}, [0]), ({0: 5}, [0, origin])):
        with pytest.raises(ValueError, match=rf"origin {origin} is unknown: there are 2"):
            marks.tell(watermarks, idle)
    assert marks.state() == WatermarkState(1)


@pytest.mark.parametrize("origins", [0, MAX_ORIGINS + 1])
def test_origins_that_have_no_room_in_a_checkpoint_are_refused(origins: int) -> None:
    with pytest.raises(ValueError, match=f"{origins} origins"):
        OriginMarks(origins)


def test_encoded_marks_replace_watermarks_and_idle_flags() -> None:
    marks, other = OriginMarks(3), OriginMarks(3)
    marks.tell({0: 7, 2: 9}, idle=[2])
    other.tell({1: 5}, idle=[0, 1])
    other.decode(marks.encode())
    assert other.state() == WatermarkState(None)
    other.tell({1: END_OF_TIME})
    assert other.state() == WatermarkState(7)
    other.tell({}, idle=[0])
    assert other.state() == WatermarkState(9, idle=True)


def test_marks_of_fewer_origins_leave_the_new_ones_without_a_watermark() -> None:
    marks, grown = OriginMarks(1), OriginMarks(2)
    marks.tell({0: 7})
    grown.decode(marks.encode())
    assert grown.watermark() is None
    grown.tell({1: 9})
    assert grown.watermark() == 7


@pytest.mark.parametrize(("origins", "spread"), [(64, END_OF_TIME), (430, END_OF_TIME), (1005, 2 * 3_600_000)])
def test_encoded_marks_are_exact_where_there_is_room(origins: int, spread: int) -> None:
    _, restored = restored_marks(origins, spread)
    assert restored._marks.tolist() == spread_marks(origins, spread)


@pytest.mark.parametrize("origins", [1, 64, 512, 1024, MAX_ORIGINS])
def test_encoded_marks_fit_into_a_checkpoint_and_are_never_rounded_up(origins: int) -> None:
    spread = 10 * 365 * 86_400_000
    before, restored = restored_marks(origins, spread)
    assert restored._idle.tolist() == before._idle.tolist()
    for mark, found in zip(before._marks.tolist(), restored._marks.tolist(), strict=True):
        assert found <= mark
        assert mark - found <= spread / (125 if origins > 1024 else 32_765) + 1


@pytest.mark.parametrize("exclude_idle", [True, False])
def test_rounded_marks_restore_the_watermark_exactly_now_and_when_all_are_idle(*, exclude_idle: bool) -> None:
    before, restored = restored_marks(MAX_ORIGINS, 10 * 365 * 86_400_000 + 1, exclude_idle=exclude_idle)
    assert restored._marks.tolist() != before._marks.tolist()
    assert restored.state() == before.state()
    for marks in (before, restored):
        marks.tell({}, idle=range(MAX_ORIGINS))
    assert restored.state() == before.state()


def spread_marks(origins: int, spread: int) -> list[int]:
    return [spread * origin // origins for origin in range(origins)]


def restored_marks(origins: int, spread: int, *, exclude_idle: bool = True) -> tuple[OriginMarks, OriginMarks]:
    """Encode and decode spread watermarks; the lowest and every third origin are idle."""
    marks, restored = (OriginMarks(origins, exclude_idle=exclude_idle) for _ in range(2))
    marks.tell(dict(enumerate(spread_marks(origins, spread))), idle=range(0, origins, 3))
    text = marks.encode()
    assert len(text) <= 3_800
    restored.decode(text)
    return marks, restored
