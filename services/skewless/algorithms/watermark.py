"""Marks: how far event time has come, in milliseconds. Late is decided once, at the source; a stage takes the minimum.

A source partition's mark is the largest event time of its log so far minus the allowed lateness. A tuple is late if its
time is below the mark that the records before it have made: a function of the log alone, however it is read.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

END_OF_TIME = 253_402_300_799_999
"""The mark of an origin that has ended (bounded runs): the last millisecond of the year 9999, exact in JSON."""

IDLE = END_OF_TIME + 1
"""The mark of an origin that is silent for now: it sorts above every time, so the minimum skips it."""

_UNHEARD = np.iinfo(np.int64).min

_TEXT_BYTES = 3_100
"""Room for encoded marks: 3,875 characters of base 85, in a position of less than 4,000."""
_TEXT_HEADER = struct.Struct("<qBB")
_WORDS = 3
"""Codes of 0 unheard, 1 ended, 2 idle; from here on a code is a mark."""


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
        # Neither END_OF_TIME nor IDLE, whatever the time of a record: those words belong to who watches the source.
        return None if self.max_time is None else min(self.max_time - self._lateness_ms, END_OF_TIME - 1)


class OriginMarks:
    """What the origins (upstream partitions 0 to `origins` - 1) of one partition last said about their time."""

    def __init__(self, origins: int) -> None:
        self._marks = np.full(origins, _UNHEARD, dtype=np.int64)

    def tell(self, marks: Mapping[int, int]) -> None:
        """Take over the marks of some origins. The last one said counts; it may go down, when an idle origin wakes."""
        for origin, mark in marks.items():
            if not 0 <= origin < len(self._marks):
                raise ValueError(f"origin {origin} is unknown: there are {len(self._marks)}; call grow() first")
            self._marks[origin] = mark

    def watermark(self) -> int | None:
        """Take the minimum over all origins; None while one has never spoken; IDLE when all are idle.

        IDLE says that this partition is idle as well: its own watermark stays where it was, and IDLE is passed on.
        """
        lowest = int(self._marks.min())
        return None if lowest == _UNHEARD else lowest

    def grow(self, origins: int) -> None:
        """Upstream has more partitions now; the watermark is None until each new one has spoken."""
        new = max(0, origins - len(self._marks))
        self._marks = np.concatenate((self._marks, np.full(new, _UNHEARD, dtype=np.int64)))

    def encode(self) -> str:
        """Write what was said as less than 3,900 characters, for up to 3,090 origins.

        As many bytes for each as the marks are apart. Where there is no room for that (386 origins always have room),
        marks are rounded down: what they hold open stays open until they speak again, and nothing closes early.
        """
        times = self._marks[(self._marks != _UNHEARD) & (self._marks < END_OF_TIME)]
        base, spread = (int(times.min()), int(times.max() - times.min())) if times.size else (0, 0)
        width = min(((spread + _WORDS).bit_length() + 7) // 8, (_TEXT_BYTES - _TEXT_HEADER.size) // len(self._marks))
        shift = 0
        while (spread >> shift) + _WORDS >= 1 << 8 * width:
            shift += 1
        codes = np.select(
            [self._marks == _UNHEARD, self._marks == END_OF_TIME, self._marks == IDLE],
            [0, 1, 2],
            ((self._marks - base) >> shift) + _WORDS,
        )
        packed = codes.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        return base64.b85encode(_TEXT_HEADER.pack(base, shift, width) + packed).decode()

    def decode(self, text: str) -> None:
        """Forget everything said and continue from what `encode` wrote, with as many origins or fewer."""
        raw = base64.b85decode(text)
        base, shift, width = _TEXT_HEADER.unpack_from(raw)
        packed = np.frombuffer(raw, dtype=np.uint8, offset=_TEXT_HEADER.size).reshape(-1, width)
        codes = np.pad(packed, ((0, 0), (0, 8 - width))).reshape(-1).view("<i8")
        marks = np.select(
            [codes == 0, codes == 1, codes == 2], [_UNHEARD, END_OF_TIME, IDLE], base + ((codes - _WORDS) << shift)
        )
        self._marks.fill(_UNHEARD)
        self._marks[: len(marks)] = marks
