"""Alignment: decides which partitions of a join must wait for slower ones. Pure.

Two bounds: event time, by which a partition may be ahead of the slowest one, and the number of records that are held.
At the second bound only the slowest partitions are read. Their watermark advances, and what waits for it is decided. So
the join cannot block itself, unless the records of one window do not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from skewless.algorithms.watermark import partitions_ahead

Partition = TypeVar("Partition")

EXCESS = 10
"""Part of the bound (one tenth) by which the held records may grow while only the slowest partitions are read."""


class Blocked(NamedTuple, Generic[Partition]):
    """Decision of an alignment."""

    partitions: frozenset[Partition]
    """Partitions that must not be read on for now."""
    stuck: bool
    """Whether the records of one window do not fit, so that all partitions are blocked."""


class Alignment(Generic[Partition]):
    """Bounds the drift of partitions and the records that are held. `buffer_records` is the bound of a process."""

    def __init__(self, max_drift_ms: int, buffer_records: int) -> None:
        self._max_drift_ms = max_drift_ms
        self._buffer_records = buffer_records
        self._blocked: frozenset[Partition] = frozenset()
        self._held = 0
        self._full_at: int | None = None
        """Lowest number of held records since only the slowest partitions are read; None while all are."""
        self._unknown: frozenset[Partition] = frozenset()
        """Partitions that had no watermark since all are blocked. Empty while not all are."""

    def decide(
        self, watermarks: Mapping[Partition, int | None], held: int, read: Partition | None = None
    ) -> Blocked[Partition]:
        """Return the partitions to block.

        `watermarks` has each partition that can have further records, None without a record so far. `held` is the
        number of held records of all partitions. `read` is the partition whose batch was processed since the last call.
        """
        growth, self._held = held - self._held, held
        if held < self._buffer_records:
            self._full_at, self._unknown = None, frozenset()
            # A partition without a record holds nothing back here. The second bound waits for it.
            return self._block(partitions_ahead(watermarks, self._max_drift_ms))
        if self._full_at is None:
            self._full_at = held
        elif read in self._blocked:
            self._full_at += growth  # this batch was in flight when its partition was blocked
        unknown = {partition for partition, time in watermarks.items() if time is None}
        # The records did not wait for the slowest partitions, but for some without a watermark. These have one now.
        is_known = not unknown and not self._unknown.isdisjoint(watermarks)
        self._full_at = held if is_known else min(self._full_at, held)
        is_stuck = held > self._full_at + self._buffer_records // EXCESS
        self._unknown = self._unknown | unknown if is_stuck else frozenset()
        if is_stuck:
            return self._block(watermarks.keys(), stuck=True)
        return self._block(watermarks.keys() - slowest(watermarks))

    def _block(self, partitions: Iterable[Partition], *, stuck: bool = False) -> Blocked[Partition]:
        self._blocked = frozenset(partitions)
        return Blocked(self._blocked, stuck)


def slowest(watermarks: Mapping[Partition, int | None]) -> set[Partition]:
    """Return the partitions without a watermark, or with the lowest one if each has one."""
    times = watermarks.values()
    lowest = None if None in times else min((time for time in times if time is not None), default=None)
    return {partition for partition, time in watermarks.items() if time == lowest}
