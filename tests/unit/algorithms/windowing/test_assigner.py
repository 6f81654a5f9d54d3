from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from skewless.algorithms.windowing.assigner import CalendarWindows, HoppingWindows, WindowAssigner, starts, tumbling
from skewless.time_zone import TimeZone, zone_names

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FIRST_MS, LAST_MS = 0, 253_402_300_799_999
"""Event times that are valid by default."""


def days(zone: str, offset_ms: int = 0) -> CalendarWindows:
    return CalendarWindows(1, 0, offset_ms, TimeZone(zone).utc_offset)


def weeks(zone: str, first_weekday: int) -> CalendarWindows:
    return CalendarWindows(7, first_weekday, 0, TimeZone(zone).utc_offset)


def utc(text: str) -> int:
    return round(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000)


def bounds(windows: WindowAssigner, time: int) -> tuple[int, int]:
    (start,) = windows.slices(np.array([time])).tolist()
    return start, windows.end(start)


@pytest.mark.parametrize(
    ("time", "start"),
    [(0, 0), (14_999, 0), (15_000, 15_000), (15_001, 15_000), (-1, -15_000), (-15_000, -15_000), (-15_001, -30_000)],
)
def test_window_assigner_time_belongs_to_the_span_that_contains_it(time: int, start: int) -> None:
    assert starts(np.array([time]), 15_000).tolist() == [start]


def test_window_assigner_panes_of_a_window_share_its_start() -> None:
    assert starts(np.arange(60_000, 120_000, 15_000), 60_000).tolist() == [60_000] * 4


def test_hopping_windows_time_is_in_all_windows_that_contain_it() -> None:
    counts, found = HoppingWindows(300, 60, 20).assign(np.array([20, 79, -1]))
    assert counts.tolist() == [5, 5, 5]
    assert found.tolist() == [-220, -160, -100, -40, 20, -220, -160, -100, -40, 20, -280, -220, -160, -100, -40]


@pytest.mark.parametrize(
    ("windows", "times", "ends"),
    [
        (tumbling(60), [0, 59, 60], [60, 60, 120]),
        (HoppingWindows(60, 20), [0, 19, 20, 59], [20, 20, 40, 60]),
        (HoppingWindows(50, 20), [0, 9, 10, 19, 20], [10, 10, 30, 30, 30]),
        (HoppingWindows(60, 60, 7), [6, 7], [7, 67]),
    ],
)
def test_window_assigner_first_end_is_the_smallest_of_the_windows_of_a_time(
    windows: WindowAssigner, times: list[int], ends: list[int]
) -> None:
    assert windows.first_ends(np.array(times, dtype=np.int64)).tolist() == ends


def test_hopping_windows_step_that_does_not_divide_the_size_gives_windows_in_different_numbers() -> None:
    windows = HoppingWindows(50, 30)
    counts, found = windows.assign(np.arange(0, 60, 10))
    assert counts.tolist() == [2, 2, 1, 2, 2, 1]
    assert found.tolist() == [-30, 0, -30, 0, 0, 0, 30, 0, 30, 30]
    assert windows.overlap == 2


@pytest.mark.parametrize(
    ("day", "hours"),
    [("2016-03-26", 24), ("2016-03-27", 23), ("2016-03-28", 24), ("2016-10-30", 25), ("2016-10-31", 24)],
)
def test_calendar_windows_day_of_a_change_of_clocks_has_its_real_length(day: str, hours: int) -> None:
    midnight = round(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)
    windows = days("Europe/Berlin")
    for time in (midnight, midnight + HOUR_MS, midnight + hours * HOUR_MS - 1):
        assert bounds(windows, time) == (midnight, midnight + hours * HOUR_MS)


def test_calendar_windows_offset_is_a_time_of_the_local_clock() -> None:
    windows = days("Europe/Berlin", 5 * HOUR_MS)
    assert bounds(windows, utc("2016-03-27T03:00")) == (utc("2016-03-27T03:00"), utc("2016-03-28T03:00"))
    assert bounds(windows, utc("2016-03-27T02:59")) == (utc("2016-03-26T04:00"), utc("2016-03-27T03:00"))


@pytest.mark.parametrize(
    ("zone", "time", "start", "end"),
    [
        ("America/Santiago", "2023-09-03T12:00", "2023-09-03T04:00", "2023-09-04T03:00"),
        ("America/Havana", "2020-11-01T12:00", "2020-11-01T04:00", "2020-11-02T05:00"),
        ("Asia/Kathmandu", "2016-01-01T00:00", "2015-12-31T18:15", "2016-01-01T18:15"),
        ("Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
    ],
    ids=[
        "midnight is skipped",
        "midnight occurs twice",
        "offset of 45 minutes",
        "last day before a skipped one",
        "after",
    ],
)
def test_calendar_windows_changes_at_midnight_give_adjacent_windows(zone: str, time: str, start: str, end: str) -> None:
    assert bounds(days(zone), utc(time)) == (utc(start), utc(end))


@pytest.mark.parametrize(
    ("weekday", "start"), [(0, "2016-03-20T23:00"), (5, "2016-03-25T23:00"), (6, "2016-03-26T23:00")]
)
def test_calendar_windows_week_begins_on_its_weekday_in_the_zone(weekday: int, start: str) -> None:
    windows = weeks("Europe/Berlin", weekday)
    begin, end = bounds(windows, utc("2016-03-27T12:00"))
    assert (begin, end - begin) == (utc(start), 7 * DAY_MS - HOUR_MS)


def test_calendar_windows_times_outside_the_calendar_have_windows() -> None:
    windows = days("Europe/Berlin")
    for time in (-(2**60), 2**60):
        start, end = bounds(windows, time)
        assert start <= time < end <= start + DAY_MS


@pytest.mark.parametrize(
    ("windows", "grid_ms"),
    [
        (tumbling(60_000), 60_000),
        (HoppingWindows(300_000, 60_000), 60_000),
        (HoppingWindows(300_000, 60_000, 45_000), 15_000),
        (days("UTC"), DAY_MS),
        (days("Europe/Berlin"), HOUR_MS),
        (days("Asia/Kathmandu"), HOUR_MS // 4),
        (days("Asia/Kolkata", HOUR_MS // 2), HOUR_MS),
        (days("Australia/Lord_Howe"), HOUR_MS // 2),
        (weeks("Pacific/Chatham", 0), HOUR_MS // 4),
        (days("Africa/Monrovia"), 30_000),
    ],
    ids=str,
)
def test_window_assigner_grid_divides_all_starts_and_ends(windows: WindowAssigner, grid_ms: int) -> None:
    assert windows.grid_ms(FIRST_MS, LAST_MS) == grid_ms


def test_calendar_windows_grid_depends_on_the_earliest_time() -> None:
    windows = days("Europe/Berlin")
    assert windows.grid_ms(utc("1890-01-01T00:00"), LAST_MS) == 8_000


def test_time_zone_names_have_rules() -> None:
    assert {"UTC", "Europe/Berlin", "America/Argentina/ComodRivadavia"} <= zone_names()
    assert TimeZone("Asia/Kolkata").utc_offset(utc("2016-01-01T00:00")) == 5 * HOUR_MS + HOUR_MS // 2
