"""Watermarks of partitions: the progress of event time, in milliseconds.

The watermark of a source partition is the largest event time so far minus the allowed lateness. A tuple is late if its
deadline is below the watermark of the records before it: the last millisecond of its first window to end, or its time
if there are no windows. Lateness thus depends on the log only, not on the batches in which it is read. The watermark of
any other partition combines the watermarks of its upstream partitions.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skewless.times import FIRST_INSTANT, LAST_INSTANT

Partition = TypeVar("Partition")
Deadlines = Callable[[NDArray[np.int64]], NDArray[np.int64]]

MAX_WATERMARK = LAST_INSTANT
"""Watermark of an upstream partition that has ended (bounded run): last millisecond of the year 9999, exact in JSON."""

MIN_WATERMARK = FIRST_INSTANT
"""Watermark of an upstream partition that ended in an earlier run and may continue: 0001-01-01T00:00:00Z, the first
instant that a record can have. Without one, the next stage would take the last report, the end, for the present."""

MAX_SOURCE_PARTITIONS = 3_000
"""Maximum upstream partitions of one partition: their watermarks must fit into the metadata of a committed offset."""

UNINITIALIZED = np.iinfo(np.int64).min
"""Watermark of an upstream partition that has not reported a watermark."""

_TEXT_BYTES = 3_025
"""Maximum bytes of encoded watermarks: 3,782 characters of base 85, in a checkpoint of at most 3,850 characters."""
_TEXT_HEADER = struct.Struct("<qqqB")
"""Highest watermark, lowest watermark of the minimum, milliseconds per step of a code, bytes per partition."""
_RESERVED_CODES = 2
"""Code 0: no watermark; 1: ended. A larger code minus this is the number of steps below the highest watermark."""


class WatermarkState(NamedTuple):
    """Watermark of one partition, None before its first record, and whether the partition is idle."""

    watermark: int | None = None
    idle: bool = False


NOTHING_REPORTED = WatermarkState()


class WatermarkGenerator:
    """Event time of one source partition. Its only state is `max_time`, the largest time so far.

    Times are integer milliseconds, at most MAX_WATERMARK; `lateness_ms` is at least 0.
    """

    def __init__(self, lateness_ms: int, max_time: int | None = None) -> None:
        self.lateness_ms = lateness_ms
        self.max_time = max_time

    def observe(self, times: NDArray[np.int64], deadlines: Deadlines | None = None) -> NDArray[np.bool_]:
        """Return for each record whether it is late. `times` are the next ones in log order, in batches of any size.

        `deadlines` returns for event times their deadlines, which are never earlier; None: the times themselves.
        """
        watermarks = self.advance(times)
        late: NDArray[np.bool_] = times < watermarks
        if deadlines is not None and late.any():
            # Only records behind the watermark can be late. An ordered batch has none.
            late[late] = deadlines(times[late]) < watermarks[late]
        return late

    def advance(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the watermark before each of the next records. That of the first record of all is not above its time.

        `times` are those of `observe`.
        """
        if not times.size:
            return times
        first = int(times[0]) if self.max_time is None else self.max_time
        running = np.maximum.accumulate(np.concatenate((np.array([first], dtype=np.int64), times)))
        self.max_time = int(running[-1])
        watermarks: NDArray[np.int64] = running[:-1] - self.lateness_ms
        return watermarks

    def watermark(self) -> int | None:
        """Return the watermark: later records with a deadline below it are late. None before the first record."""
        # Always below MAX_WATERMARK, which is reserved for the end of a bounded run.
        return None if self.max_time is None else min(self.max_time - self.lateness_ms, MAX_WATERMARK - 1)


def partitions_ahead(watermarks: Mapping[Partition, int | None], max_drift_ms: int) -> frozenset[Partition]:
    """Return the partitions whose watermark is ahead of the lowest one by more than `max_drift_ms`.

    `watermarks` has each partition that may have further records; None without a record so far. Such a partition has no
    event time to compare with, so no other one waits for it.
    """
    known = {partition: time for partition, time in watermarks.items() if time is not None}
    limit = min(known.values(), default=0) + max_drift_ms
    return frozenset(partition for partition, time in known.items() if time > limit)


class WatermarkTracker:
    """Last watermark and idle flag of each upstream partition (0 to `upstreams` - 1) of one partition.

    With `exclude_idle`, an idle partition does not hold the watermark back. Use this for source partitions, which
    become idle independently. Without it, idle partitions count like others. Use this for worker partitions: each
    covers all source partitions, so they become idle together, and one that is still idle while another is active has
    input left.

    An upstream partition that has ended does not hold the watermark back either, until the next run begins: while
    another one continues, one that ended in an earlier run may continue, too. So it holds the watermark back until it
    reports, or until all have ended. Such an end is marked as idle, in reports and in checkpoints.
    """

    def __init__(self, upstreams: int, *, exclude_idle: bool = True) -> None:
        if not 1 <= upstreams <= MAX_SOURCE_PARTITIONS:
            raise ValueError(f"{upstreams} upstream partitions: there must be 1 to {MAX_SOURCE_PARTITIONS}")
        self._exclude_idle = exclude_idle
        self._watermarks = np.full(upstreams, UNINITIALIZED, dtype=np.int64)
        self._idle = np.zeros(upstreams, dtype=np.bool_)

    def update(self, watermarks: Mapping[int, int], idle: Iterable[int] = ()) -> None:
        """Update some upstream partitions. A watermark makes its partition active, unless `idle` contains it as well.

        The last watermark counts. It may be lower than the previous one: an idle partition became active and its stage
        was restarted. A partition that is only in `idle` keeps its watermark, but is no longer at its end. Raises
        ValueError for an unknown partition, before any update.
        """
        idle_partitions = list(idle)
        for partition in (*watermarks, *idle_partitions):
            if not 0 <= partition < len(self._watermarks):
                raise ValueError(f"upstream partition {partition} is unknown: there are {len(self._watermarks)}")
        for partition, watermark in watermarks.items():
            self._watermarks[partition], self._idle[partition] = watermark, False
        for partition in idle_partitions:
            self._idle[partition] = True
            if partition not in watermarks and self._watermarks[partition] == MAX_WATERMARK:
                self._watermarks[partition] = UNINITIALIZED

    def watermark(self) -> int | None:
        """Return the minimum over the active upstream partitions, or None while one of them has no watermark.

        If all are idle, return the maximum of their watermarks. If all have ended, return MAX_WATERMARK.
        """
        return self.state().watermark

    def slowest(self) -> list[int]:
        """Return the upstream partitions that hold the watermark back: those without one, or with the lowest one."""
        watermarks, idle = self._current()
        counted = self._counted(watermarks, idle)
        if not counted.any():
            return []
        found: list[int] = np.flatnonzero(counted & (watermarks == watermarks[counted].min())).tolist()
        return found

    def state(self) -> WatermarkState:
        """Return the watermark, and whether all upstream partitions that have not ended are idle.

        If all have ended: whether one of them has ended in an earlier run.
        """
        watermarks, idle = self._current()
        ended = watermarks == MAX_WATERMARK
        if ended.all():
            return WatermarkState(MAX_WATERMARK, bool(idle.any()))
        counted = watermarks[self._counted(watermarks, idle)]
        # If all are idle, only the maximum does not depend on the split into batches: if the partition with the highest
        # watermark becomes idle last, the minimum over the active partitions was that watermark before. No window
        # closes early, because idle partitions do not hold the watermark back.
        combined = int(counted.min() if counted.size else watermarks[~ended].max())
        return WatermarkState(None if combined == UNINITIALIZED else combined, bool((idle | ended).all()))

    def are_inactive(self, partitions: Iterable[int]) -> bool:
        """Return whether all of some upstream partitions are idle or have ended."""
        inactive = self._idle | (self._watermarks == MAX_WATERMARK)
        return bool(inactive[list(partitions)].all())

    def ended(self) -> frozenset[int]:
        """Return the upstream partitions that have ended."""
        return frozenset(np.flatnonzero(self._watermarks == MAX_WATERMARK).tolist())

    def forget(self, partitions: Iterable[int]) -> None:
        """Forget what some upstream partitions have reported."""
        forgotten = list(partitions)
        self._watermarks[forgotten], self._idle[forgotten] = UNINITIALIZED, False

    def forget_idle(self) -> None:
        """Forget which upstream partitions are idle."""
        self._idle.fill(False)

    def _counted(self, watermarks: NDArray[np.int64], idle: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each upstream partition whether it counts in the minimum. The arrays are those of `_current`."""
        # Ended partitions do not count: MAX_WATERMARK must not become the watermark while other partitions are idle.
        not_ended: NDArray[np.bool_] = watermarks != MAX_WATERMARK
        return not_ended & ~idle if self._exclude_idle else not_ended

    def _current(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the watermark of each upstream partition, and whether it is idle.

        While one continues, one that ended in an earlier run has the lowest watermark and is not idle.
        """
        ended = self._watermarks == MAX_WATERMARK
        earlier = ended & self._idle
        if not earlier.any() or ended.all():
            return self._watermarks, self._idle
        return np.where(earlier, MIN_WATERMARK, self._watermarks), self._idle & ~earlier

    def restart(self) -> None:
        """Note a restart: the partitions that have ended did so in an earlier run, as far as a new process can know.

        If the bounded run continues, they hold the watermark back until the others have ended, too.
        """
        self._idle |= self._watermarks == MAX_WATERMARK

    def grow(self, upstreams: int) -> None:
        """Add upstream partitions without a watermark, so that there are at least `upstreams`."""
        added = max(upstreams - len(self._watermarks), 0)
        self._watermarks = np.append(self._watermarks, np.full(added, UNINITIALIZED, dtype=np.int64))
        self._idle = np.append(self._idle, np.zeros(added, dtype=np.bool_))

    def take_over(self, other: WatermarkTracker, positions: Sequence[int | None]) -> None:
        """Set upstream partitions to the state that they have in another tracker.

        `positions` has their number here for each one of the other tracker; None leaves it out.
        """
        for position, watermark, idle in zip(positions, other._watermarks, other._idle, strict=True):
            if position is not None:
                self._watermarks[position], self._idle[position] = watermark, idle

    def encode(self, max_bytes: int = _TEXT_BYTES) -> str:
        """Return watermarks and idle flags as a text of at most `max_bytes` bytes in base 85, 3,800 characters.

        Each partition takes as many bytes as the range of the watermarks requires. If they do not fit (up to 430
        partitions always fit), watermarks are rounded down, so that no window closes early. The highest watermark and
        the lowest watermark of the minimum stay exact, and so does the combined watermark. Each of the others is exact
        again after the next report of its partition.
        """
        reported = (self._watermarks != UNINITIALIZED) & (self._watermarks != MAX_WATERMARK)
        times, counted = self._watermarks[reported], self._watermarks[reported & self._counted(*self._current())]
        highest, value_range = (int(times.max()), int(times.max() - times.min())) if times.size else (0, 0)
        lowest = int(counted.min()) if counted.size else UNINITIALIZED
        required = ((value_range + _RESERVED_CODES).bit_length() + 8) // 8  # one bit of each code is the idle flag
        width = min(required, (max_bytes - _TEXT_HEADER.size) // len(self._watermarks))
        steps = (1 << 8 * width - 1) - 1 - _RESERVED_CODES
        step = max(1, -(-value_range // steps))
        steps_below = -(-(highest - self._watermarks * reported) // step)
        reserved = [self._watermarks == UNINITIALIZED, self._watermarks == MAX_WATERMARK]
        codes = np.select(reserved, [0, 1], steps_below + _RESERVED_CODES)
        packed = (codes << 1 | self._idle).astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        return base64.b85encode(_TEXT_HEADER.pack(highest, lowest, step, width) + packed).decode()

    def decode(self, text: str) -> None:
        """Replace all watermarks and idle flags by those of an encoded text. It may have fewer upstream partitions."""
        raw = base64.b85decode(text)
        highest, lowest, step, width = _TEXT_HEADER.unpack_from(raw)
        packed = np.frombuffer(raw, dtype=np.uint8, offset=_TEXT_HEADER.size).reshape(-1, width)
        saved = np.pad(packed, ((0, 0), (0, 8 - width))).reshape(-1).view("<i8")
        codes = saved >> 1
        decoded = highest - (codes - _RESERVED_CODES) * step
        watermarks = np.select([codes == 0, codes == 1], [UNINITIALIZED, MAX_WATERMARK], decoded)
        self._watermarks.fill(UNINITIALIZED)
        self._idle.fill(False)
        self._watermarks[: len(watermarks)], self._idle[: len(watermarks)] = watermarks, saved & 1
        rounded = self._counted(*self._current()) & (self._watermarks != UNINITIALIZED)
        self._watermarks[rounded] = np.maximum(self._watermarks[rounded], lowest)


def encoded_upstreams(text: str) -> int:
    """Return the number of upstream partitions in a text that `WatermarkTracker.encode` has returned."""
    raw = base64.b85decode(text)
    *_, width = _TEXT_HEADER.unpack_from(raw)
    return (len(raw) - _TEXT_HEADER.size) // int(width)
