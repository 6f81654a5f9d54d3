"""WindowJoin: joins a left and a right log by id, in event time. Pure.

A pair is a left record at time l and a right record at time r of the same id with `0 <= r - l <= apart`. Each left
record takes the first free right record by offset, and each right record the first free left record. Both sides rank
their partners by offset, so there is exactly one stable pairing. A record that is added last ranks last on its side and
displaces no partner. So it is correct to pair each record as soon as it is read, and the pairs do not depend on how the
reading of the two logs is interleaved.

Lateness is decided by each log alone: a record is late if its time is below the watermark of its log, which is the
largest time before it minus the tolerated disorder. So a left record is unmatched once the right watermark is above
l + apart, and a right record once the left watermark is above r: no later record that is not late is a partner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.held_records import NO_RECORDS, HeldRecords, Records
from skewless.algorithms.watermark import MAX_WATERMARK, UNINITIALIZED, WatermarkGenerator

END_OF_TIME = MAX_WATERMARK
"""Watermark of a log that has ended (bounded run)."""


class Side(Enum):
    """A side of the join."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def opposite(self) -> Side:
        """The other side."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class JoinRules(NamedTuple):
    """Settings of a join, in ms."""

    apart_ms: int
    """Largest difference between the times of a pair."""
    left_disorder_ms: int
    """Time by which a left record may be older than one before it."""
    right_disorder_ms: int
    """The same for right records."""

    def pair_disorder_ms(self, side: Side) -> int:
        """Return the largest time by which a pair may be older than one before it, by the times of this side."""
        # A pair is emitted when its later read record is. The records of earlier pairs in the same log are newer by at
        # most its disorder. Those in the other log are at most `apart_ms` away from their partners.
        return max(self.disorder_ms(side), self.apart_ms + self.disorder_ms(side.opposite))

    @property
    def retention_ms(self) -> int:
        """Time of the stream for which records of both sides may wait for partners."""
        return 2 * self.apart_ms + self.left_disorder_ms + self.right_disorder_ms

    def disorder_ms(self, side: Side) -> int:
        """Return the tolerated disorder of a side."""
        return self.left_disorder_ms if side is Side.LEFT else self.right_disorder_ms


class SideState(NamedTuple):
    """State of a log that does not follow from its held records."""

    max_time: int | None = None
    """Largest event time of its records in ms."""
    floor: int | None = None
    """Watermark that the log was given from outside, in ms: while it was idle, or always."""


class Added(NamedTuple):
    """Result of adding records of one side."""

    left: Records
    """Left records that were paired, in the order in which the added ones are."""
    right: Records
    """Their partners."""
    late: NDArray[np.bool_]
    """Per added record: whether it is late. A late record takes no part."""
    watermarks: NDArray[np.int64]
    """Watermark before each added record. It is above the time of the late ones only."""


class _Log:
    """One side: its held records and its event time."""

    def __init__(self, disorder_ms: int | None, state: SideState, held: Records) -> None:
        self.disorder_ms = disorder_ms
        """None: its watermark comes from outside only."""
        self.generator = WatermarkGenerator(disorder_ms or 0, state.max_time)
        self.floor = state.floor
        self.records = HeldRecords()
        self.records.add(held)

    def watermark(self) -> int | None:
        watermark = None if self.disorder_ms is None else self.generator.watermark()
        return max((time for time in (watermark, self.floor) if time is not None), default=None)

    def observe(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Advance the log, and return the watermark before each record."""
        watermarks = self.generator.advance(times)
        if self.disorder_ms is None:
            watermarks = np.full(len(times), UNINITIALIZED)
        return watermarks if self.floor is None else np.maximum(watermarks, self.floor)


class WindowJoin:
    """Joins one left log with one right log. `held` are the records that waited at the end of an earlier run.

    With `external_watermarks`, watermarks come only from `raise_watermark`: each log merges several logs, and records
    that are late in theirs are not in it.
    """

    def __init__(
        self,
        rules: JoinRules,
        left: tuple[SideState, Records] = (SideState(), NO_RECORDS),
        right: tuple[SideState, Records] = (SideState(), NO_RECORDS),
        *,
        external_watermarks: bool = False,
    ) -> None:
        self._rules = rules
        self._logs = {
            side: _Log(None if external_watermarks else rules.disorder_ms(side), *start)
            for side, start in ((Side.LEFT, left), (Side.RIGHT, right))
        }

    def held(self, side: Side) -> HeldRecords:
        """Return the records of a side that wait for a partner."""
        return self._logs[side].records

    def state(self, side: Side) -> SideState:
        """Return the state of a log."""
        log = self._logs[side]
        return SideState(log.generator.max_time, log.floor)

    def watermark(self, side: Side) -> int | None:
        """Return the watermark of a log in ms, None before its first record."""
        return self._logs[side].watermark()

    def raise_watermark(self, side: Side, watermark: int) -> None:
        """Raise the watermark of a log. Records below it that come later are late."""
        log = self._logs[side]
        log.floor = watermark if log.floor is None else max(log.floor, watermark)

    def add(self, side: Side, records: Records) -> Added:
        """Add the next records of a log, in the order of their offsets, and return the pairs that they complete."""
        watermarks = self._logs[side].observe(records.times)
        late = records.times < watermarks
        accepted = records.take(~late) if late.any() else records
        own, partners = self._pair(side, accepted)
        left, right = (own, partners) if side is Side.LEFT else (partners, own)
        return Added(left, right, late, watermarks)

    def _pair(self, side: Side, records: Records) -> tuple[Records, Records]:
        """Pair records with held ones of the other side, and hold the others. Returns the pairs in their order."""
        own, other = self.held(side), self.held(side.opposite)
        ids = records.ids.tolist()
        repeated = _repeated(ids, own, other)
        slots = self._claim_each(side, records, ids) if repeated else self._claim_distinct(side, records, ids)
        is_paired = slots >= 0
        partners = other.pop_claimed(slots[is_paired])
        own.add(records.take(~is_paired))
        return records.take(is_paired), partners

    def _claim_distinct(self, side: Side, records: Records, ids: list[str]) -> NDArray[np.intp]:
        """Claim the partner of each record, where each id has at most one record on each side."""
        other = self.held(side.opposite)
        slots = other.find(ids)
        found = np.flatnonzero(slots >= 0)
        earliest, latest = self._partner_times(side, records.times[found])
        times = other.times(slots[found])
        out_of_reach = found[(times < earliest) | (times > latest)]
        slots[out_of_reach] = -1
        other.claim([ids[row] for row in np.flatnonzero(slots >= 0).tolist()])
        return slots

    def _claim_each(self, side: Side, records: Records, ids: list[str]) -> NDArray[np.intp]:
        """Claim the partner of each record, one after the other."""
        claim = self.held(side.opposite).claim_first
        earliest, latest = self._partner_times(side, records.times)
        return np.fromiter(map(claim, ids, earliest.tolist(), latest.tolist()), dtype=np.intp, count=len(ids))

    def _partner_times(self, side: Side, times: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the earliest and the latest time of a partner of records at `times`."""
        apart = self._rules.apart_ms
        return (times, times + apart) if side is Side.LEFT else (times - apart, times)

    def expire(self, side: Side) -> Records:
        """Remove the records of a side that can have no partner any more, and return them by time and offset."""
        watermark = self.watermark(side.opposite)
        if watermark is None:
            return NO_RECORDS
        return self.held(side).expire(watermark - self._rules.apart_ms if side is Side.LEFT else watermark)

    def expire_all(self, side: Side) -> Records:
        """Remove all records of a side, and return them: both logs have ended."""
        return self.held(side).expire(END_OF_TIME + 1)


def _repeated(ids: Sequence[str], own: HeldRecords, other: HeldRecords) -> set[str]:
    """Return the ids of which a side has several records, so that their order decides."""
    distinct = set(ids)
    repeated = own.repeated(distinct) | other.chained(distinct)
    if len(distinct) < len(ids):
        repeated |= {record_id for record_id, count in Counter(ids).items() if count > 1}
    return repeated
