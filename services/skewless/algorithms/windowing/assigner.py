"""Assigns event times to panes and windows [start, end), in integer milliseconds.

A *slice* is a span of event time in which all times have the same windows. Slices do not overlap. Windows that do not
overlap are their own slices. Stages and Spark reduce tuples to slices, or to panes that divide them, and merge each
slice into its windows.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn, Partials
from skewless.algorithms.partials import merge_partials

DAY_MS = 86_400_000
NO_LIMIT_MS = 2**63 - 1
_THURSDAY = 3
"""Day of the week of 1970-01-01, from Monday as 0."""


def starts(times: NDArray[np.int64], size_ms: int) -> NDArray[np.int64]:
    """Return for each time the start of its pane or tick. Times before 1970 are also rounded towards the past."""
    return times // size_ms * size_ms


class WindowAssigner(ABC):
    """Assigns each event time to the windows that contain it: one or several, but always at least one.

    A window is identified by its start. Windows that start later end later.
    """

    @property
    def overlap(self) -> int:
        """Maximum number of windows that contain the same time. 1: windows do not overlap."""
        return 1

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        """Columns of partials in addition to those of the aggregates."""
        return ()

    @property
    def max_pane_ms(self) -> int:
        """Maximum length of a pane in ms."""
        return NO_LIMIT_MS

    @abstractmethod
    def slices(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each time the start of its slice."""

    def windows_of(self, slice_start: int) -> Sequence[int]:
        """Return the starts of the windows that contain a slice, in ascending order."""
        return (slice_start,)

    @abstractmethod
    def end(self, start: int) -> int:
        """Return the end of the window that begins at `start`."""

    @abstractmethod
    def grid_ms(self, earliest: int, latest: int) -> int:
        """Return the largest span of which all starts and ends of windows between two times are multiples.

        A pane must divide it.
        """

    def ends(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ends of the windows that begin at `starts`."""
        distinct, index = np.unique(starts, return_inverse=True)
        return np.array([self.end(start) for start in distinct.tolist()], dtype=np.int64)[index]

    def ends_of(self, starts: NDArray[np.int64], partials: Partials) -> NDArray[np.int64]:  # noqa: ARG002 - for sessions
        """Return the ends of windows with these starts and partials."""
        return self.ends(starts)

    def first_ends(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each time the end of the first of its windows to end."""
        distinct, index = np.unique(self.slices(times), return_inverse=True)
        ends = [self.end(self.windows_of(start)[0]) for start in distinct.tolist()]
        return np.array(ends, dtype=np.int64)[index]

    def merge(self, tables: Sequence[pa.Table], columns: Sequence[PartialColumn]) -> pa.Table:
        """Merge partials, which have the start of their slice as `pane`, to one row per slice and key."""
        return merge_partials(tables, ("pane", "key"), columns)

    def assign(self, times: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each time the number of its windows, and the starts of these windows, time by time."""
        distinct, index = np.unique(self.slices(times), return_inverse=True)
        windows = [np.array(self.windows_of(start), dtype=np.int64) for start in distinct.tolist()]
        sizes = np.array([len(starts) for starts in windows], dtype=np.int64)
        counts = sizes[index]
        first_in_distinct, first = np.cumsum(sizes) - sizes, np.cumsum(counts) - counts
        position = np.arange(int(counts.sum())) + np.repeat(first_in_distinct[index] - first, counts)
        return counts, np.concatenate([*windows, np.empty(0, dtype=np.int64)])[position]


@dataclass(frozen=True, slots=True)
class HoppingWindows(WindowAssigner):
    """Windows of `size_ms` that begin every `every_ms`, one of them at `offset_ms` after 1970-01-01 00:00 UTC.

    They are tumbling if `every_ms` equals `size_ms`. It must not be larger, because some times would have no window.
    """

    size_ms: int
    every_ms: int
    offset_ms: int = 0

    @property
    def overlap(self) -> int:
        """Maximum number of windows that contain the same time."""
        return -(-self.size_ms // self.every_ms)

    def slices(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each time the start of its slice."""
        slice_ms = math.gcd(self.size_ms, self.every_ms)
        return starts(times - self.offset_ms, slice_ms) + self.offset_ms if self.offset_ms else starts(times, slice_ms)

    def windows_of(self, slice_start: int) -> Sequence[int]:
        """Return the starts of the windows that contain a slice, in ascending order."""
        newest = slice_start - (slice_start - self.offset_ms) % self.every_ms
        earlier = (newest - slice_start + self.size_ms - 1) // self.every_ms
        return range(newest - earlier * self.every_ms, newest + 1, self.every_ms)

    def end(self, start: int) -> int:
        """Return the end of the window that begins at `start`."""
        return start + self.size_ms

    def grid_ms(self, earliest: int, latest: int) -> int:  # noqa: ARG002 - the same at all times
        """Return the largest span of which all starts and ends of windows are multiples."""
        return math.gcd(self.size_ms, self.every_ms, self.offset_ms)


@dataclass(frozen=True, slots=True)
class SingleWindows(WindowAssigner):
    """The windows of another assigner for times that are their starts. Each one is in its own window only."""

    windows: WindowAssigner

    def slices(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the times."""
        return times

    def end(self, start: int) -> int:
        """Return the end of the window that begins at `start`."""
        return self.windows.end(start)

    def grid_ms(self, earliest: int, latest: int) -> int:
        """Return the largest span of which all starts and ends of windows are multiples."""
        return self.windows.grid_ms(earliest, latest)


def tumbling(size_ms: int) -> HoppingWindows:
    """Return windows that do not overlap, of which one begins at 1970-01-01 00:00 UTC."""
    return HoppingWindows(size_ms, size_ms)


@dataclass(frozen=True, slots=True)
class CalendarWindows(WindowAssigner):
    """Windows of one or seven calendar days in a time zone. A day in which the clocks change is shorter or longer.

    A window begins when the clocks show `offset_ms` after midnight. If they skip this time, it begins at the time that
    it would have without the change. If they show it twice, it begins the first time. A day that a zone skips entirely
    has no window.
    """

    days: int
    first_weekday: int
    """Day of the week on which windows of seven days begin, from Monday as 0. Not used for one day."""
    offset_ms: int
    """From 0 to less than a day."""
    utc_offset: Callable[[int], int]
    """Returns the offset from UTC in ms at a local time in ms since 1970-01-01. It is always less than a day."""

    def slices(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each time the start of its window."""
        # The local time differs from UTC by less than a day. So a window is the one with the number that the time would
        # have in UTC, the one before, or the one after.
        numbers = np.unique((times - self._local_start(0)) // (self.days * DAY_MS))
        candidates = np.unique(np.concatenate([numbers - 1, numbers, numbers + 1])).tolist()
        bounds = np.unique(np.array([self._start(number) for number in candidates], dtype=np.int64))
        return bounds[np.searchsorted(bounds, times, side="right") - 1]

    def end(self, start: int) -> int:
        """Return the end of the window that begins at `start`."""
        number = (start - self._local_start(0)) // (self.days * DAY_MS) - 1
        while (end := self._start(number)) <= start:
            number += 1
        return end

    def grid_ms(self, earliest: int, latest: int) -> int:
        """Return the largest span of which all starts of windows between two times are multiples."""
        return _calendar_grid_ms(self, earliest, latest)

    def starts(self, earliest: int, latest: int) -> Iterator[int]:
        """Yield the starts of the windows between two times, and of some around them."""
        span_ms = self.days * DAY_MS
        first, last = ((time - self._local_start(0)) // span_ms for time in (earliest, latest))
        return map(self._start, range(first - 1, max(first, last) + 3))

    def _local_start(self, number: int) -> int:
        """Return the start of the window with a number in local time. Number 0 begins in the first week of 1970."""
        first_day = (self.first_weekday - _THURSDAY) % self.days
        return (first_day + number * self.days) * DAY_MS + self.offset_ms

    def _start(self, number: int) -> int:
        local_start = self._local_start(number)
        return local_start - self.utc_offset(local_start)


# There are 47,000 days until 2100, and each task of a streaming query of Spark needs the result.
@functools.lru_cache
def _calendar_grid_ms(windows: CalendarWindows, earliest: int, latest: int) -> int:
    return math.gcd(DAY_MS, *{start % DAY_MS for start in windows.starts(earliest, min(latest, _LAST_RULES_MS))})


_LAST_RULES_MS = 4_102_444_800_000
"""2100-01-01. Later years have the same offsets, because the rules of zones list single changes until 2087 at most."""
