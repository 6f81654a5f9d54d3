from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.watermark import (
    MAX_SOURCE_PARTITIONS,
    MAX_WATERMARK,
    WatermarkGenerator,
    WatermarkState,
    WatermarkTracker,
)


def observe(clock: WatermarkGenerator, *times: int) -> list[bool]:
    return [bool(late) for late in clock.observe(np.array(times, dtype=np.int64))]


def test_watermark_generator_record_below_the_previous_watermark_is_late() -> None:
    clock = WatermarkGenerator(lateness_ms=10)
    assert observe(clock, 100, 90, 89, 120, 109, 110) == [False, False, True, False, True, False]


def test_watermark_generator_late_record_leaves_the_watermark_unchanged() -> None:
    clock = WatermarkGenerator(lateness_ms=10, max_time=100)
    assert observe(clock, 3) == [True]
    assert (clock.max_time, clock.watermark()) == (100, 90)


def test_watermark_generator_without_records_has_no_watermark() -> None:
    clock = WatermarkGenerator(lateness_ms=10)
    assert observe(clock) == []
    assert (clock.max_time, clock.watermark()) == (None, None)


def test_watermark_generator_first_record_is_never_late() -> None:
    assert observe(WatermarkGenerator(lateness_ms=0), np.iinfo(np.int64).min) == [False]


def test_watermark_generator_zero_lateness_treats_times_below_the_maximum_as_late() -> None:
    assert observe(WatermarkGenerator(lateness_ms=0), 5, 5, 4) == [False, False, True]


def test_watermark_generator_restored_continues_with_its_maximum() -> None:
    assert observe(WatermarkGenerator(lateness_ms=5, max_time=50), 44, 45) == [True, False]


@pytest.mark.parametrize("time", [MAX_WATERMARK, MAX_WATERMARK + 1])
def test_watermark_generator_largest_record_time_stays_below_the_max_watermark(time: int) -> None:
    clock = WatermarkGenerator(lateness_ms=0)
    observe(clock, time)
    assert clock.watermark() == MAX_WATERMARK - 1


def test_max_watermark_is_the_end_of_year_9999_and_exact_in_json() -> None:
    assert np.datetime64(MAX_WATERMARK, "ms") == np.datetime64("9999-12-31T23:59:59.999")
    assert float(MAX_WATERMARK) == MAX_WATERMARK


def test_watermark_tracker_once_every_partition_has_reported_is_the_minimum() -> None:
    marks = WatermarkTracker(2)
    marks.update({0: 30})
    assert marks.watermark() is None
    marks.update({1: 20})
    assert marks.watermark() == 20


def test_watermark_tracker_watermark_of_an_idle_partition_makes_it_active_even_when_lower() -> None:
    marks = WatermarkTracker(2)
    marks.update({0: 30, 1: 20}, idle=[1])
    assert marks.watermark() == 30
    marks.update({1: 10})
    assert marks.watermark() == 10


def test_watermark_tracker_idle_partition_keeps_its_watermark() -> None:
    marks = WatermarkTracker(2)
    marks.update({0: 30, 1: 20})
    marks.update({}, idle=[0])
    marks.update({}, idle=[1])
    assert marks.state() == WatermarkState(30, idle=True)


def test_watermark_tracker_all_partitions_idle_is_idle_at_the_highest_watermark() -> None:
    marks = WatermarkTracker(3)
    marks.update({0: 200, 1: 50}, idle=[0, 1, 2])
    assert marks.state() == WatermarkState(200, idle=True)


def test_watermark_tracker_idle_partition_without_watermark_is_excluded() -> None:
    marks = WatermarkTracker(2)
    marks.update({0: 5}, idle=[1])
    assert marks.state() == WatermarkState(5)
    only = WatermarkTracker(1)
    only.update({}, idle=[0])
    assert only.state() == WatermarkState(None, idle=True)


def test_watermark_tracker_ended_partition_does_not_end_idle_ones() -> None:
    marks = WatermarkTracker(2)
    marks.update({0: MAX_WATERMARK, 1: 20}, idle=[1])
    assert marks.state() == WatermarkState(20, idle=True)
    marks.update({1: MAX_WATERMARK})
    assert marks.state() == WatermarkState(MAX_WATERMARK)


def test_watermark_tracker_without_idle_exclusion_counts_idle_partitions() -> None:
    marks = WatermarkTracker(2, exclude_idle=False)
    marks.update({0: 20}, idle=[0])
    assert marks.watermark() is None
    marks.update({1: 30})
    assert marks.state() == WatermarkState(20)
    marks.update({0: MAX_WATERMARK})
    assert marks.state() == WatermarkState(30)
    marks.update({}, idle=[1])
    assert marks.state() == WatermarkState(30, idle=True)


@pytest.mark.parametrize("origin", [-1, 2])
def test_watermark_tracker_unknown_partition_is_refused_and_updates_nothing(origin: int) -> None:
    marks = WatermarkTracker(2)
    marks.update({0: 1, 1: 1})
    for watermarks, idle in (({0: 5, origin: 5}, [0]), ({0: 5}, [0, origin])):
        with pytest.raises(ValueError, match=rf"partition {origin} is unknown: there are 2"):
            marks.update(watermarks, idle)
    assert marks.state() == WatermarkState(1)


@pytest.mark.parametrize("origins", [0, MAX_SOURCE_PARTITIONS + 1])
def test_watermark_tracker_too_many_partitions_for_a_checkpoint_are_refused(origins: int) -> None:
    with pytest.raises(ValueError, match=f"{origins} upstream partitions"):
        WatermarkTracker(origins)


def test_watermark_tracker_decoded_state_replaces_watermarks_and_idle_flags() -> None:
    marks, other = WatermarkTracker(3), WatermarkTracker(3)
    marks.update({0: 7, 2: 9}, idle=[2])
    other.update({1: 5}, idle=[0, 1])
    other.decode(marks.encode())
    assert other.state() == WatermarkState(None)
    other.update({1: MAX_WATERMARK})
    assert other.state() == WatermarkState(7)
    other.update({}, idle=[0])
    assert other.state() == WatermarkState(9, idle=True)


def test_watermark_tracker_decoded_state_of_fewer_partitions_leaves_new_ones_without_watermark() -> None:
    marks, grown = WatermarkTracker(1), WatermarkTracker(2)
    marks.update({0: 7})
    grown.decode(marks.encode())
    assert grown.watermark() is None
    grown.update({1: 9})
    assert grown.watermark() == 7


@pytest.mark.parametrize(("origins", "spread"), [(64, MAX_WATERMARK), (430, MAX_WATERMARK), (1005, 2 * 3_600_000)])
def test_watermark_tracker_encoded_state_with_enough_room_is_exact(origins: int, spread: int) -> None:
    _, restored = restored_marks(origins, spread)
    assert restored._watermarks.tolist() == spread_marks(origins, spread)


@pytest.mark.parametrize("origins", [1, 64, 512, 1024, MAX_SOURCE_PARTITIONS])
def test_watermark_tracker_encoded_state_fits_into_a_checkpoint_and_is_never_rounded_up(origins: int) -> None:
    spread = 10 * 365 * 86_400_000
    before, restored = restored_marks(origins, spread)
    assert restored._idle.tolist() == before._idle.tolist()
    for mark, found in zip(before._watermarks.tolist(), restored._watermarks.tolist(), strict=True):
        assert found <= mark
        assert mark - found <= spread / (125 if origins > 1024 else 32_765) + 1


@pytest.mark.parametrize("exclude_idle", [True, False])
def test_watermark_tracker_rounded_state_restores_the_watermark_exactly(*, exclude_idle: bool) -> None:
    before, restored = restored_marks(MAX_SOURCE_PARTITIONS, 10 * 365 * 86_400_000 + 1, exclude_idle=exclude_idle)
    assert restored._watermarks.tolist() != before._watermarks.tolist()
    assert restored.state() == before.state()
    for marks in (before, restored):
        marks.update({}, idle=range(MAX_SOURCE_PARTITIONS))
    assert restored.state() == before.state()


def spread_marks(origins: int, spread: int) -> list[int]:
    return [spread * origin // origins for origin in range(origins)]


def restored_marks(
    origins: int, spread: int, *, exclude_idle: bool = True
) -> tuple[WatermarkTracker, WatermarkTracker]:
    """Encode and decode spread watermarks; the lowest and every third origin are idle."""
    marks, restored = (WatermarkTracker(origins, exclude_idle=exclude_idle) for _ in range(2))
    marks.update(dict(enumerate(spread_marks(origins, spread))), idle=range(0, origins, 3))
    text = marks.encode()
    assert len(text) <= 3_800
    restored.decode(text)
    return marks, restored
