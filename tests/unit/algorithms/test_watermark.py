from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.watermark import (
    MAX_SOURCE_PARTITIONS,
    MAX_WATERMARK,
    MIN_WATERMARK,
    WatermarkGenerator,
    WatermarkState,
    WatermarkTracker,
    encoded_upstreams,
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
    watermarks = WatermarkTracker(2)
    watermarks.update({0: 30})
    assert watermarks.watermark() is None
    watermarks.update({1: 20})
    assert watermarks.watermark() == 20


def test_watermark_tracker_watermark_of_an_idle_partition_makes_it_active_even_when_lower() -> None:
    watermarks = WatermarkTracker(2)
    watermarks.update({0: 30, 1: 20}, idle=[1])
    assert watermarks.watermark() == 30
    watermarks.update({1: 10})
    assert watermarks.watermark() == 10


def test_watermark_tracker_slowest_are_the_active_partitions_without_or_with_the_lowest_watermark() -> None:
    tracker = WatermarkTracker(4)
    tracker.update({0: 10, 1: 5, 3: 5})
    assert tracker.slowest() == [2]
    tracker.update({2: 20})
    assert tracker.slowest() == [1, 3]
    tracker.update({}, idle=[1, 3])
    assert tracker.slowest() == [0]
    tracker.update({0: MAX_WATERMARK, 2: MAX_WATERMARK})
    assert tracker.slowest() == []


def test_watermark_tracker_that_grows_waits_for_the_new_partitions_and_keeps_the_others() -> None:
    tracker = WatermarkTracker(2)
    tracker.update({0: 30, 1: 20}, idle=[1])
    tracker.grow(1)
    assert tracker.watermark() == 30
    tracker.grow(4)
    assert tracker.slowest() == [2, 3]
    tracker.update({2: 25, 3: 40})
    assert tracker.watermark() == 25


def test_watermark_tracker_idle_partition_keeps_its_watermark() -> None:
    watermarks = WatermarkTracker(2)
    watermarks.update({0: 30, 1: 20})
    watermarks.update({}, idle=[0])
    watermarks.update({}, idle=[1])
    assert watermarks.state() == WatermarkState(30, idle=True)


def test_watermark_tracker_all_partitions_idle_is_idle_at_the_highest_watermark() -> None:
    watermarks = WatermarkTracker(3)
    watermarks.update({0: 200, 1: 50}, idle=[0, 1, 2])
    assert watermarks.state() == WatermarkState(200, idle=True)


def test_watermark_tracker_idle_partition_without_watermark_is_excluded() -> None:
    watermarks = WatermarkTracker(2)
    watermarks.update({0: 5}, idle=[1])
    assert watermarks.state() == WatermarkState(5)
    only = WatermarkTracker(1)
    only.update({}, idle=[0])
    assert only.state() == WatermarkState(None, idle=True)


def test_watermark_tracker_ended_partition_does_not_end_idle_ones() -> None:
    watermarks = WatermarkTracker(2)
    watermarks.update({0: MAX_WATERMARK, 1: 20}, idle=[1])
    assert watermarks.state() == WatermarkState(20, idle=True)
    watermarks.update({1: MAX_WATERMARK})
    assert watermarks.state() == WatermarkState(MAX_WATERMARK)


@pytest.mark.parametrize("exclude_idle", [False, True])
def test_watermark_tracker_partition_ended_in_an_earlier_run_holds_the_watermark_back(*, exclude_idle: bool) -> None:
    earlier = WatermarkTracker(3, exclude_idle=exclude_idle)
    earlier.update(dict.fromkeys(range(3), MAX_WATERMARK))
    watermarks = WatermarkTracker(3, exclude_idle=exclude_idle)
    watermarks.decode(earlier.encode())
    assert watermarks.state() == WatermarkState(MAX_WATERMARK)
    watermarks.restart()
    assert watermarks.state() == WatermarkState(MAX_WATERMARK, idle=True)
    watermarks.update({0: 20, 2: MAX_WATERMARK})
    for held_by in ([1], [1, 2]):
        assert watermarks.state() == WatermarkState(MIN_WATERMARK)
        assert watermarks.slowest() == held_by
        watermarks.decode(watermarks.encode())
        watermarks.restart()
    watermarks.update({1: 30, 2: MAX_WATERMARK})
    assert watermarks.state() == WatermarkState(20)
    watermarks.update({0: MAX_WATERMARK, 1: MAX_WATERMARK})
    assert watermarks.state() == WatermarkState(MAX_WATERMARK)


def test_watermark_tracker_partitions_that_ended_in_different_runs_are_all_at_their_end() -> None:
    watermarks = WatermarkTracker(2)
    watermarks.update({0: MAX_WATERMARK, 1: MAX_WATERMARK}, idle=[1])
    assert watermarks.state() == WatermarkState(MAX_WATERMARK, idle=True)
    watermarks.update({}, idle=[1])
    assert watermarks.ended() == frozenset({0})
    assert watermarks.state() == WatermarkState(None, idle=True)
    watermarks.forget([1])
    assert watermarks.state() == WatermarkState()


def test_watermark_tracker_without_idle_exclusion_counts_idle_partitions() -> None:
    watermarks = WatermarkTracker(2, exclude_idle=False)
    watermarks.update({0: 20}, idle=[0])
    assert watermarks.watermark() is None
    watermarks.update({1: 30})
    assert watermarks.state() == WatermarkState(20)
    watermarks.update({0: MAX_WATERMARK})
    assert watermarks.state() == WatermarkState(30)
    watermarks.update({}, idle=[1])
    assert watermarks.state() == WatermarkState(30, idle=True)


@pytest.mark.parametrize("source_partition", [-1, 2])
def test_watermark_tracker_unknown_partition_is_refused_and_updates_nothing(source_partition: int) -> None:
    tracker = WatermarkTracker(2)
    tracker.update({0: 1, 1: 1})
    for watermarks, idle in (({0: 5, source_partition: 5}, [0]), ({0: 5}, [0, source_partition])):
        with pytest.raises(ValueError, match=rf"partition {source_partition} is unknown: there are 2"):
            tracker.update(watermarks, idle)
    assert tracker.state() == WatermarkState(1)


@pytest.mark.parametrize("source_partitions", [0, MAX_SOURCE_PARTITIONS + 1])
def test_watermark_tracker_too_many_partitions_for_a_checkpoint_are_refused(source_partitions: int) -> None:
    with pytest.raises(ValueError, match=f"{source_partitions} upstream partitions"):
        WatermarkTracker(source_partitions)


def test_watermark_tracker_decoded_state_replaces_watermarks_and_idle_flags() -> None:
    watermarks, other = WatermarkTracker(3), WatermarkTracker(3)
    watermarks.update({0: 7, 2: 9}, idle=[2])
    other.update({1: 5}, idle=[0, 1])
    other.decode(watermarks.encode())
    assert other.state() == WatermarkState(None)
    other.update({1: MAX_WATERMARK})
    assert other.state() == WatermarkState(7)
    other.update({}, idle=[0])
    assert other.state() == WatermarkState(9, idle=True)


def test_watermark_tracker_decoded_state_of_fewer_partitions_leaves_new_ones_without_watermark() -> None:
    watermarks, grown = WatermarkTracker(1), WatermarkTracker(2)
    watermarks.update({0: 7})
    grown.decode(watermarks.encode())
    assert grown.watermark() is None
    grown.update({1: 9})
    assert grown.watermark() == 7


@pytest.mark.parametrize(
    ("source_partitions", "spread"), [(64, MAX_WATERMARK), (428, MAX_WATERMARK), (1000, 2 * 3_600_000)]
)
def test_watermark_tracker_encoded_state_with_enough_room_is_exact(source_partitions: int, spread: int) -> None:
    _, restored = restored_watermarks(source_partitions, spread)
    assert restored._watermarks.tolist() == spread_watermarks(source_partitions, spread)


@pytest.mark.parametrize("source_partitions", [1, 64, 512, 1024, MAX_SOURCE_PARTITIONS])
def test_watermark_tracker_encoded_state_fits_into_a_checkpoint_and_is_never_rounded_up(source_partitions: int) -> None:
    spread = 10 * 365 * 86_400_000
    before, restored = restored_watermarks(source_partitions, spread)
    assert restored._idle.tolist() == before._idle.tolist()
    for watermark, found in zip(before._watermarks.tolist(), restored._watermarks.tolist(), strict=True):
        assert found <= watermark
        assert watermark - found <= spread / (125 if source_partitions > 1024 else 32_765) + 1


@pytest.mark.parametrize("exclude_idle", [True, False])
def test_watermark_tracker_rounded_state_restores_the_watermark_exactly(*, exclude_idle: bool) -> None:
    before, restored = restored_watermarks(MAX_SOURCE_PARTITIONS, 10 * 365 * 86_400_000 + 1, exclude_idle=exclude_idle)
    assert restored._watermarks.tolist() != before._watermarks.tolist()
    assert restored.state() == before.state()
    for watermarks in (before, restored):
        watermarks.update({}, idle=range(MAX_SOURCE_PARTITIONS))
    assert restored.state() == before.state()


@pytest.mark.parametrize("upstreams", [1, 16, 64, 1024, MAX_SOURCE_PARTITIONS])
@pytest.mark.parametrize("spread", [0, 1000, MAX_WATERMARK])
def test_encoded_upstreams_are_those_of_the_tracker(upstreams: int, spread: int) -> None:
    tracker = WatermarkTracker(upstreams)
    assert encoded_upstreams(tracker.encode()) == upstreams
    tracker.update(dict(enumerate(spread_watermarks(upstreams, spread))))
    assert encoded_upstreams(tracker.encode()) == upstreams


def spread_watermarks(source_partitions: int, spread: int) -> list[int]:
    return [spread * source_partition // source_partitions for source_partition in range(source_partitions)]


def restored_watermarks(
    source_partitions: int, spread: int, *, exclude_idle: bool = True
) -> tuple[WatermarkTracker, WatermarkTracker]:
    """Encode and decode spread watermarks. The source partition with the lowest one, and every third one, are idle."""
    watermarks, restored = (WatermarkTracker(source_partitions, exclude_idle=exclude_idle) for _ in range(2))
    watermarks.update(
        dict(enumerate(spread_watermarks(source_partitions, spread))), idle=range(0, source_partitions, 3)
    )
    text = watermarks.encode()
    assert len(text) <= 3_800
    restored.decode(text)
    return watermarks, restored
