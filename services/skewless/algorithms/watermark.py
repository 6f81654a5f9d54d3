"""Watermarks: how far event time has advanced, in milliseconds. A partition's watermark combines those upstream of it.

A source partition's watermark is the largest event time of its log so far minus the allowed lateness. A tuple is late
if its time is below the watermark of the records before it: a function of the log alone, however it is read.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

END_OF_TIME = 253_402_300_799_999
"""The watermark of an origin that has ended (bounded runs): the last millisecond of the year 9999, exact in JSON."""

MAX_ORIGINS = 3_000
"""Upstream partitions that one partition may have: their watermarks must fit into the metadata of an offset."""

_UNHEARD = np.iinfo(np.int64).min

_TEXT_BYTES = 3_040
"""Room for encoded watermarks: 3,800 characters of base 85, in a checkpoint of at most 3,850."""
_TEXT_HEADER = struct.Struct("<qqqB")
"""Highest watermark, lowest one of the minimum, milliseconds per step of a code, bytes per origin."""
_WORDS = 2
"""Codes of 0 no watermark, 1 ended; from here on a code is a number of steps below the highest watermark."""


class WatermarkState(NamedTuple):
    """Watermark of one partition, None before its first record, and whether the partition is idle."""

    watermark: int | None = None
    idle: bool = False


NOTHING_REPORTED = WatermarkState()


class SourceClock:
    """Event time of one source partition. `max_time`, the largest time so far, is all there is to save and restore.

    Times are integer milliseconds, at most END_OF_TIME; `lateness_ms` is at least 0.
    """

    def __init__(self, lateness_ms: int, max_time: int | None = None) -> None:
        self._lateness_ms = lateness_ms
        self.max_time = max_time

    def observe(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell of each record whether it is late; `times` are the next ones in log order, cut anywhere."""
        if not times.size:
            return np.zeros(0, dtype=np.bool_)
        first = int(times[0]) if self.max_time is None else self.max_time
        running = np.maximum.accumulate(np.concatenate((np.array([first], dtype=np.int64), times)))
        self.max_time = int(running[-1])
        late: NDArray[np.bool_] = times < running[:-1] - self._lateness_ms
        return late

    def mark(self) -> int | None:
        """Every later record below this time is late; None before the first record."""
        # Never END_OF_TIME, whatever the time of a record: that value is reserved for the end of a bounded run.
        return None if self.max_time is None else min(self.max_time - self._lateness_ms, END_OF_TIME - 1)


class OriginMarks:
    """Last watermark and idle flag of each origin (upstream partition 0 to `origins` - 1) of one partition.

    With `exclude_idle` an idle origin does not hold the watermark back. That is for source partitions, which are silent
    each by itself. Without it, idle origins count like others. That is for worker partitions: each of them covers all
    source partitions, so all become idle together, and one that is still idle while another is active has input left.
    """

    def __init__(self, origins: int, *, exclude_idle: bool = True) -> None:
        if not 1 <= origins <= MAX_ORIGINS:
            raise ValueError(f"{origins} origins: there must be 1 to {MAX_ORIGINS}")
        self._exclude_idle = exclude_idle
        self._marks = np.full(origins, _UNHEARD, dtype=np.int64)
        self._idle = np.zeros(origins, dtype=np.bool_)

    def tell(self, marks: Mapping[int, int], idle: Iterable[int] = ()) -> None:
        """Update some origins. A watermark makes its origin active, unless `idle` names it as well.

        The last watermark counts: it may decrease, when an idle origin becomes active and its stage starts again.
        An origin in `idle` alone keeps its watermark.
        """
        silent = list(idle)
        for origin in (*marks, *silent):
            if not 0 <= origin < len(self._marks):
                raise ValueError(f"origin {origin} is unknown: there are {len(self._marks)}")
        for origin, mark in marks.items():
            self._marks[origin], self._idle[origin] = mark, False
        for origin in silent:
            self._idle[origin] = True

    def watermark(self) -> int | None:
        """Return the minimum over the active origins, None while one of them has no watermark.

        When all are idle it is the maximum of their watermarks; END_OF_TIME only when all have ended.
        """
        open_marks = self._marks[self._marks != END_OF_TIME]
        if not open_marks.size:
            return END_OF_TIME
        counted = self._marks[self._counted()]
        # The maximum is the only value that does not depend on how records were cut into batches: if the origin with
        # the highest watermark becomes idle last, the minimum over the active origins has been that watermark before.
        # Nothing closes early, because each idle origin has asked not to be waited for.
        combined = int(counted.min() if counted.size else open_marks.max())
        return None if combined == _UNHEARD else combined

    def state(self) -> WatermarkState:
        """Return the watermark, and whether every origin that has not ended is idle."""
        ended = self._marks == END_OF_TIME
        return WatermarkState(self.watermark(), bool((self._idle | ended).all() and not ended.all()))

    def _counted(self) -> NDArray[np.bool_]:
        """Mark the origins of the minimum. An ended origin is not among them: it must not end others that are idle."""
        running: NDArray[np.bool_] = self._marks != END_OF_TIME
        return running & ~self._idle if self._exclude_idle else running

    def encode(self) -> str:
        """Write watermarks and idle flags as at most 3,800 characters.

        Each origin takes as many bytes as the distance of the watermarks needs. Where there is no room for that (430
        origins always have room), watermarks are rounded down, so that nothing closes early. The highest watermark and
        the lowest one of the minimum stay exact, so the combined watermark does, too. The others are exact again after
        the next report of their origin.
        """
        known = (self._marks != _UNHEARD) & (self._marks != END_OF_TIME)
        times, counted = self._marks[known], self._marks[known & self._counted()]
        highest, spread = (int(times.max()), int(times.max() - times.min())) if times.size else (0, 0)
        lowest = int(counted.min()) if counted.size else _UNHEARD
        needed = ((spread + _WORDS).bit_length() + 8) // 8  # one bit of each code is the idle flag
        width = min(needed, (_TEXT_BYTES - _TEXT_HEADER.size) // len(self._marks))
        steps = (1 << 8 * width - 1) - 1 - _WORDS
        step = max(1, -(-spread // steps))
        below = -(-(highest - self._marks * known) // step)
        codes = np.select([self._marks == _UNHEARD, self._marks == END_OF_TIME], [0, 1], below + _WORDS)
        packed = (codes << 1 | self._idle).astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        return base64.b85encode(_TEXT_HEADER.pack(highest, lowest, step, width) + packed).decode()

    def decode(self, text: str) -> None:
        """Replace all watermarks and idle flags by those of an encoded text of as many origins or fewer."""
        raw = base64.b85decode(text)
        highest, lowest, step, width = _TEXT_HEADER.unpack_from(raw)
        packed = np.frombuffer(raw, dtype=np.uint8, offset=_TEXT_HEADER.size).reshape(-1, width)
        saved = np.pad(packed, ((0, 0), (0, 8 - width))).reshape(-1).view("<i8")
        codes = saved >> 1
        marks = np.select([codes == 0, codes == 1], [_UNHEARD, END_OF_TIME], highest - (codes - _WORDS) * step)
        self._marks.fill(_UNHEARD)
        self._idle.fill(False)
        self._marks[: len(marks)], self._idle[: len(marks)] = marks, saved & 1
        rounded = self._counted() & (self._marks != _UNHEARD)
        self._marks[rounded] = np.maximum(self._marks[rounded], lowest)
