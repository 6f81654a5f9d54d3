"""Decides when the consumer may poll and which partitions to pause. Pure: it takes counters and the time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skewless.engine.assignment import WAITING_BATCHES, AssignedPartition, Assignment, PartitionEvent
from skewless.kafka.settings import TransportSettings
from skewless.wire.topic_partition import TopicPartition


class PollDecision(NamedTuple):
    """Actions before the next poll."""

    read: bool
    """Whether to poll."""
    pause: bool = False
    """Whether to pause the partitions that are full."""
    resume: bool = False
    """Whether to resume partitions that have caught up."""
    block: bool = False
    """Whether to pause the partitions that the step blocks."""


class Changes(NamedTuple):
    """Partitions to pause and to resume."""

    pause: frozenset[TopicPartition]
    resume: frozenset[TopicPartition]


class BackPressure:
    """Limits the batches and bytes in flight; two polls may exceed the limits.

    While a partition is full, the consumer does not poll. Partitions that are full for longer than `pause_after_s` are
    paused, so that the other partitions and rebalances continue. Above a limit of all batches or bytes, a partition is
    full with one batch, and polls are small. So a partition that waits, for example for its schema, does not stop the
    others. Partitions that the step blocks are paused at once.
    The consumer thread owns this object.
    """

    def __init__(self, settings: TransportSettings, assignment: Assignment, pause_after_s: float) -> None:
        self._settings = settings
        self._assignment = assignment
        self._pause_after_s = pause_after_s
        self._full_since: float | None = None
        self._generation = assignment.generation
        """Generation to which `_full_since` belongs."""
        self._batches = 0
        """Total number of delivered batches, including those that have not arrived on the event loop."""
        self._bytes = 0
        """Total bytes of delivered batches."""

    def batch_delivered(self, size: int) -> None:
        """Record a batch that was delivered."""
        self._batches += 1
        self._bytes += size

    @property
    def in_flight_batches(self) -> int:
        """Number of batches that were delivered and are neither processed nor dropped."""
        return self._batches - self._assignment.retired_batches

    @property
    def poll_records(self) -> int:
        """Maximum number of records of the next poll. Above the limits, one poll is shared among the partitions."""
        shares = len(self._assignment.partitions) if self._over_limits() else 1
        return max(1, self._settings.max_poll_records // max(1, shares))

    def decide(self, now: float) -> PollDecision:
        """Return whether to poll, and whether `change` must be called before; `now` in s of any monotonic clock.

        Reads only what the consumer thread may read of the assignment, so that a poll does not wait for the event loop.
        """
        assignment = self._assignment
        if self._generation != assignment.generation:
            self._generation, self._full_since = assignment.generation, None
        # Including those that have not arrived on the event loop, which may be busy.
        fetched_batches = self.in_flight_batches - assignment.paused_batches
        if not (fetched_batches > 0 if self._over_limits() else assignment.full_partitions):
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        pause = self._full_since is not None and now - self._full_since >= self._pause_after_s
        return PollDecision(
            read=pause or self._full_since is None,
            pause=pause,
            resume=assignment.caught_up,
            block=assignment.must_block,
        )

    def change(self, decision: PollDecision) -> Changes:
        """Carry out a decision in the assignment. Runs on the event loop, while the consumer thread waits."""
        full = 1 if self._over_limits() else WAITING_BATCHES
        running = list(self._assignment.running())
        paused = [
            record
            for record in running
            if record.fetches and (record.blocked or (decision.pause and len(record.in_flight) >= full))
        ]
        resumed = [record for record in running if record.has_caught_up and len(record.in_flight) < full]
        if decision.pause:
            self._full_since = None
        self._apply(PartitionEvent.PAUSE, paused)
        self._apply(PartitionEvent.RESUME, resumed)
        return Changes(pause=_names(paused), resume=_names(resumed))

    def _over_limits(self) -> bool:
        limit = max(self._settings.max_in_flight_batches, WAITING_BATCHES * len(self._assignment.partitions))
        size = self._bytes - self._assignment.retired_bytes
        return size > self._settings.max_in_flight_bytes or self.in_flight_batches > limit

    def _apply(self, event: PartitionEvent, records: Iterable[AssignedPartition]) -> None:
        self._assignment.apply(event, [record.partition for record in records])


def _names(records: Iterable[AssignedPartition]) -> frozenset[TopicPartition]:
    return frozenset(record.partition for record in records)
