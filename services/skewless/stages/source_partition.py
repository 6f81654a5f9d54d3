"""Activity and event time of a partition that the user writes, as the stages that read it keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from skewless.algorithms.watermark import (
    MAX_WATERMARK,
    NOTHING_REPORTED,
    WatermarkGenerator,
    WatermarkState,
    partitions_ahead,
)

Partition = TypeVar("Partition")

IDLE_WITHOUT_WATERMARK = WatermarkState(idle=True)
LONG_AGO = 1
"""Time of the last records of a partition that was idle before the assignment, in ms."""


@dataclass(slots=True, kw_only=True)
class PartitionActivity:
    """Whether a partition is idle, or has ended in a bounded run. Times are those of the wall clock in ms."""

    idle: bool = False
    ended: bool = False
    last_seen_ms: int = 0
    """Time of its last records that have an event time. 0: none since the assignment."""

    @property
    def is_active(self) -> bool:
        """Whether the partition may have further records now."""
        return not (self.idle or self.ended)

    def observe_records(self, now: int) -> None:
        """Note that the partition has records with an event time. Others cannot hold a window open."""
        self.last_seen_ms, self.idle, self.ended = now, False, False

    def observe_in_flight(self) -> None:
        """Note that records are not processed yet, so that they may have an event time."""
        self.idle = self.ended = False

    def observe_end(self, now: int, *, drain: bool, idle_timeout_ms: int | None) -> None:
        """Note that all records were read. Ends the partition in a bounded run."""
        if drain:
            self.ended = True
        else:
            self.observe_time(now, idle_timeout_ms)

    def observe_time(self, now: int, idle_timeout_ms: int | None) -> None:
        """Make the partition idle if it had no records with an event time for the idle timeout (None: never).

        All records up to a short time ago must have been read.
        """
        self.last_seen_ms = min(self.last_seen_ms or now, now)  # the clock may be set back
        if idle_timeout_ms is not None and now - self.last_seen_ms >= idle_timeout_ms:
            self.idle = True


@dataclass(slots=True, kw_only=True)
class SourcePartition(PartitionActivity):
    """A partition whose event time is reported to the next stage."""

    generator: WatermarkGenerator
    was_reported: bool = False
    """Whether an earlier process may have reported that the partition is idle, or has ended."""
    last_forwarded: WatermarkState = NOTHING_REPORTED
    """Last state that was reported."""

    def state(self) -> WatermarkState:
        """Return the present state."""
        return WatermarkState(MAX_WATERMARK) if self.ended else WatermarkState(self.generator.watermark(), self.idle)

    def state_to_report(self, earliest: int) -> WatermarkState:
        """Return the state to report. One without a watermark gets that of the earliest time, if there was another one.

        Otherwise the next stage would not wait for the first event time of a partition that is no longer idle or ended.
        """
        state = self.state()
        if state == NOTHING_REPORTED and (self.was_reported or self.last_forwarded == IDLE_WITHOUT_WATERMARK):
            return WatermarkState(earliest - self.generator.lateness_ms)
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRules:
    """Settings that decide when a partition is idle, has ended, or must wait for slower ones."""

    idle_timeout_ms: int | None
    """Time without records with an event time after which a partition is idle. None: never."""
    drain: bool
    """Whether the run is bounded."""
    max_drift_ms: int | None = None
    """Time by which a partition may be ahead of the slowest one of its process. None: any."""


class SourceSteps(Generic[Partition]):
    """Part of a step that reads partitions of the user: the event time and the activity of each."""

    _sources: Mapping[Partition, SourcePartition]
    _rules: SourceRules

    @property
    def blocked(self) -> frozenset[Partition]:
        """Partitions that are ahead of slower ones of the process."""
        if self._rules.max_drift_ms is None:
            return frozenset()
        watermarks = {each: source.generator.watermark() for each, source in self._sources.items() if source.is_active}
        return partitions_ahead(watermarks, self._rules.max_drift_ms)

    def end_of_partition(self, partition: Partition, now: int) -> None:
        """End the partition in a bounded run. Otherwise mark it idle if no record had a time for the idle timeout."""
        rules = self._rules
        self._sources[partition].observe_end(now, drain=rules.drain, idle_timeout_ms=rules.idle_timeout_ms)

    def up_to_date(self, partition: Partition, now: int) -> None:
        """Mark the partition idle if it gets records, but none had a time for the idle timeout."""
        if not self._rules.drain:
            self._sources[partition].observe_time(now, self._rules.idle_timeout_ms)

    def records_in_flight(self, partition: Partition) -> None:
        """Note that the partition has records: it is not idle while they are in flight."""
        self._sources[partition].observe_in_flight()

    def watermark(self, partition: Partition) -> int | None:
        """Return the watermark of the partition."""
        return self._sources[partition].state().watermark

    def idle(self, partition: Partition) -> bool:
        """Return whether the partition is idle."""
        return self._sources[partition].state().idle

    def max_event_time(self, partition: Partition) -> int | None:
        """Return the largest event time of the partition in ms."""
        return self._sources[partition].generator.max_time

    def finished(self, partition: Partition) -> bool:
        """Return whether the end of the partition was reported downstream."""
        return self._sources[partition].last_forwarded.watermark == MAX_WATERMARK
