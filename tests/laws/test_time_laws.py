"""Laws of panes and watermarks, for any times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.algorithms.watermark import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    WatermarkGenerator,
    WatermarkState,
    WatermarkTracker,
)
from skewless.algorithms.windowing.assigner import CalendarWindows, HoppingWindows, WindowAssigner, starts
from skewless.time_zone import TimeZone

times = st.integers(-MAX_WATERMARK, MAX_WATERMARK - 1) | st.integers(-50, 50)
logs = st.lists(times, max_size=50)
reports = st.tuples(
    st.dictionaries(st.integers(0, 3), times | st.just(MAX_WATERMARK), max_size=4), st.frozensets(st.integers(0, 3))
)


def array(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@given(log=logs, size=st.integers(1, 10**9))
def test_pane_assigner_any_time_is_in_one_aligned_pane(log: list[int], size: int) -> None:
    found = starts(array(log), size).tolist()
    assert all(start <= time < start + size and start % size == 0 for start, time in zip(found, log, strict=True))


@given(log=logs, pane=st.integers(1, 10**6), panes=st.integers(1, 100))
def test_pane_assigner_pane_lies_in_the_window_of_its_tuples(log: list[int], pane: int, panes: int) -> None:
    window = pane * panes
    assert starts(starts(array(log), pane), window).tolist() == starts(array(log), window).tolist()


SPAN_MS = 1_577_836_800_000
"""From 1970 to 2020: the system, which the law asks, may have other rules for later years."""
ZONES = ("Europe/Berlin", "Pacific/Apia", "Asia/Kathmandu", "America/Havana", "Australia/Lord_Howe", "Africa/Monrovia")
calendar_times = st.lists(st.integers(0, SPAN_MS) | st.integers(1_325_000_000_000, 1_325_400_000_000), max_size=20)
calendars = st.builds(
    lambda days, weekday, hours, zone: CalendarWindows(days, weekday, hours * 3_600_000, TimeZone(zone).utc_offset),
    st.sampled_from([1, 7]),
    st.integers(0, 6),
    st.integers(0, 23),
    st.sampled_from(ZONES),
)
hoppings = st.builds(
    lambda every, extra, offset: HoppingWindows(every + extra, every, offset % every),
    st.integers(1, 50),
    st.integers(0, 200),
    st.integers(0, 50),
)


def by_time(windows: WindowAssigner, log: list[int]) -> list[list[int]]:
    """Return the starts of the windows of each time."""
    counts, found = windows.assign(array(log))
    cuts = np.cumsum(counts)[:-1]
    return [part.tolist() for part in np.split(found, cuts)] if log else []


@given(windows=hoppings, log=logs)
def test_hopping_windows_equal_those_that_contain_the_time(windows: HoppingWindows, log: list[int]) -> None:
    for time, found in zip(log, by_time(windows, log), strict=True):
        span = range(time - windows.size_ms + 1, time + 1)
        assert found == [start for start in span if (start - windows.offset_ms) % windows.every_ms == 0]
        assert 1 <= len(found) <= windows.overlap


@given(windows=calendars, log=calendar_times)
def test_calendar_windows_equal_the_date_of_the_clock_in_the_zone(windows: CalendarWindows, log: list[int]) -> None:
    """The windows of all dates, found one after the other with `zoneinfo`, contain each time once."""
    zone = windows.utc_offset.__self__.name  # type: ignore[attr-defined]
    for time, found in zip(log, by_time(windows, log), strict=True):
        assert found == [max(start for start in starts_around(windows, zone, time) if start <= time)]
        assert windows.end(found[0]) == min(start for start in starts_around(windows, zone, time) if start > time)


def starts_around(windows: CalendarWindows, zone: str, time: int) -> list[int]:
    """Moments of the days around a time at which the clock of a zone shows the start of a window for the first time."""
    nearest = datetime.fromtimestamp(time / 1000, UTC).date()
    dates = [nearest + timedelta(days=days) for days in range(-9, 10)]
    clock = datetime.fromtimestamp(windows.offset_ms / 1000, UTC).time()
    chosen = [date for date in dates if windows.days == 1 or date.weekday() == windows.first_weekday]
    moments = [datetime.combine(date, clock, ZoneInfo(zone)) for date in chosen]
    return [round(moment.timestamp() * 1000) for moment in moments]


@given(windows=hoppings | calendars, log=calendar_times)
def test_window_assigner_times_of_a_slice_have_the_same_windows(windows: WindowAssigner, log: list[int]) -> None:
    slices = windows.slices(array(log)).tolist()
    assert by_time(windows, slices) == by_time(windows, log)
    for time, found in zip(log, by_time(windows, log), strict=True):
        assert all(start <= time < windows.end(start) for start in found)
        assert windows.ends(array(found)).tolist() == [windows.end(start) for start in found]


@given(windows=hoppings | calendars, log=calendar_times)
def test_window_assigner_panes_that_divide_the_grid_lie_in_one_slice(windows: WindowAssigner, log: list[int]) -> None:
    pane = windows.grid_ms(0, SPAN_MS)
    assert windows.slices(starts(array(log), pane)).tolist() == windows.slices(array(log)).tolist()


@given(log=logs, lateness=st.integers(0, 100))
def test_watermark_generator_lateness_equals_its_reference_definition(log: list[int], lateness: int) -> None:
    clock = WatermarkGenerator(lateness)
    late = clock.observe(array(log)).tolist()
    assert late == [at > 0 and time < max(log[:at]) - lateness for at, time in enumerate(log)]
    assert clock.max_time == max(log, default=None)


@given(log=logs, lateness=st.integers(0, 100), data=st.data())
def test_watermark_generator_lateness_is_independent_of_batches_and_restarts(
    log: list[int], lateness: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=5)))
    late: list[bool] = []
    max_time: int | None = None
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        clock = WatermarkGenerator(lateness, max_time)
        late += clock.observe(array(log[start:end])).tolist()
        max_time = clock.max_time
    whole = WatermarkGenerator(lateness)
    assert late == whole.observe(array(log)).tolist()
    assert max_time == whole.max_time


@given(log=logs, lateness=st.integers(0, 100))
def test_watermark_generator_late_tuples_are_those_below_the_previous_watermark(log: list[int], lateness: int) -> None:
    """A window that a stage closes at a watermark can receive no later tuple."""
    clock = WatermarkGenerator(lateness)
    for time in log:
        watermark = clock.watermark()
        assert clock.observe(array([time])).tolist() == [watermark is not None and time < watermark]


@given(output=st.lists(reports, max_size=8))
def test_watermark_tracker_watermark_is_the_minimum_of_active_or_maximum_of_idle_partitions(
    output: list[tuple[dict[int, int], frozenset[int]]],
) -> None:
    tracker = WatermarkTracker(4)
    last = dict.fromkeys(range(4), WatermarkState())
    for watermarks, idle in output:
        tracker.update(watermarks, idle)
        last |= {at: WatermarkState(watermark) for at, watermark in watermarks.items()}
        last |= {at: WatermarkState(last[at].watermark, idle=True) for at in idle}
        # A partition that is only idle is no longer at its end.
        only_idle = idle - watermarks.keys()
        last |= {at: WatermarkState(idle=True) for at in only_idle if last[at].watermark == MAX_WATERMARK}
    ended_earlier = WatermarkState(MAX_WATERMARK, idle=True)
    if all(state.watermark == MAX_WATERMARK for state in last.values()):
        assert tracker.state() == WatermarkState(MAX_WATERMARK, idle=ended_earlier in last.values())
        return
    current = [WatermarkState(MIN_WATERMARK) if state == ended_earlier else state for state in last.values()]
    running = [state for state in current if state.watermark != MAX_WATERMARK]
    active = [state.watermark for state in running if not state.idle]
    known = [state.watermark for state in running if state.watermark is not None]
    if active:
        assert tracker.state() == WatermarkState(None if None in active else min(filter_none(active)))
    else:
        assert tracker.state() == WatermarkState(max(known, default=None), idle=True)


def filter_none(values: list[int | None]) -> list[int]:
    return [value for value in values if value is not None]


histories = st.lists(st.tuples(st.lists(times, max_size=4).map(sorted), st.booleans()), min_size=1, max_size=4)
"""By source partition: its watermarks in log order, and whether it is idle at the end."""


@given(histories=histories, data=st.data())
def test_watermark_tracker_reports_in_any_order_never_close_beyond_the_final_watermark(
    histories: list[tuple[list[int], bool]], data: st.DataObject
) -> None:
    """In any order of reading, with a commit after any report, the last watermark is the highest one.

    Each source partition is idle at its end only, because an idle one that becomes active may lower the watermark.
    """
    left = {at: [*watermarks, None] if idle else list(watermarks) for at, (watermarks, idle) in enumerate(histories)}
    order = data.draw(st.permutations([at for at, own in left.items() for _ in own]))
    tracker = WatermarkTracker(len(histories))
    closed_to: int | None = None
    for at in order:
        report = left[at].pop(0)
        tracker.update({} if report is None else {at: report}, [at] if report is None else [])
        watermark = tracker.watermark()
        if watermark is not None and data.draw(st.booleans()):
            closed_to = watermark if closed_to is None else max(closed_to, watermark)
    reached = tracker.watermark()
    assert closed_to is None or (reached is not None and reached >= closed_to)


@given(before=reports, output=st.lists(reports, max_size=4), exclude_idle=st.booleans())
def test_watermark_tracker_restored_continues_identically(
    before: tuple[dict[int, int], frozenset[int]],
    output: list[tuple[dict[int, int], frozenset[int]]],
    *,
    exclude_idle: bool,
) -> None:
    tracker, restored = (WatermarkTracker(4, exclude_idle=exclude_idle) for _ in range(2))
    tracker.update(*before)
    restored.update({}, range(4))
    restored.decode(tracker.encode())
    assert restored.state() == tracker.state()
    for some in output:
        tracker.update(*some)
        restored.update(*some)
        assert restored.state() == tracker.state()
