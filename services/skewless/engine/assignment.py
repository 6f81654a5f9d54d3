"""Assignment: the input partitions of this process, with one record for each. Pure: no Kafka, no clock, no threads.

Theory of operation
===================

A partition enters the assignment when the group assigns it, and leaves it when the group revokes it. In between, its
record `AssignedPartition` is the only place that knows its state, its offsets and its batches in flight.

States
------

RESTORING           The group has assigned the partition. Its committed offset, its checkpoint and its changelog are
                    being read. The consumer fetches no record of it, and the step does not know it.
RUNNING             The consumer fetches its records, and the step processes them.
PAUSED              It had too many batches in flight for too long, or the step blocks it because it is ahead of others.
                    The step processes what is in flight; the consumer fetches none.
COMMITTING          A commit is in progress, from the flush of the step to the answer of the output. No batch of any
                    partition is processed, so the outputs of the commit are exactly those of the records before its
                    offsets.
COMMITTING_PAUSED   The same, for a partition that was paused when the commit began. It is paused afterwards.
REVOKED             Another member may own the partition. Its record is dropped, and its batches in flight are stale.

Events
------

restored            The step has the committed checkpoint and state.
pause, resume       Back-pressure or the step stops or continues the fetches.
begin_commit        Processing stops and the step flushes.
end_commit          The output has committed outputs and offsets.
reset               The transaction was aborted. The partition is still ours and restarts at its committed offset.
revoke              The group revoked the partition or lost this member, or the process stops.

`TRANSITIONS` is the machine: an event that the table does not list for a state raises IllegalEventError, which ends
the process as a bug. Two facts follow from the table. A commit contains no partition that is being restored, because
RESTORING has no `begin_commit`. And a reset or a revocation is legal at any time, because a broker may abort a
transaction or take a partition at any time.

Offsets
-------

    committed <= processed_offset <= delivered_offset

`delivered_offset` moves when a batch arrives on the event loop, `processed_offset` when the step has processed it. The
batches in between are `in_flight`. Both also move over transaction markers and aborted records, at a commit, if nothing
is in flight. `committed` is the offset and checkpoint of the last commit. Batches of one partition are processed in
order, so one number per partition suffices.

Threads
-------

Two threads run the engine. This is the one place that says what each may do.

The *consumer thread* makes all calls of librdkafka's consumer. librdkafka does not share a consumer between threads: a
call from another thread waits, or hangs during a rebalance. `GroupSession` owns the consumer and checks the thread.

The *event loop* owns this module and the step. All methods of `Assignment` that change something run there; each checks
its thread. The consumer thread calls them through the loop and, except for a new batch, waits for the result. So the
set of partitions and their states change only while the consumer thread waits, and it may read `partitions`,
`restoring`, `awaits_restore` and `generation` at any time. More attributes are single numbers or flags that the loop
changes at any time, and a value that is out of date by one batch does no harm: `retired_batches`, `retired_bytes`,
`full_partitions`, `paused_batches`, `caught_up` and `must_block`.

The *output* is used by both threads, never at the same time: the loop sends to it, and the consumer thread commits
between `begin_commit` and `end_commit`, while nothing is processed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from skewless.wire.topic_partition import TopicPartition

WAITING_BATCHES = 2
"""A partition with this many batches in flight is full: its next batch is not polled before it has caught up."""


class PartitionState(Enum):
    """State of an assigned partition."""

    RESTORING = "restoring"
    RUNNING = "running"
    PAUSED = "paused"
    COMMITTING = "committing"
    COMMITTING_PAUSED = "committing (paused)"
    REVOKED = "revoked"


class PartitionEvent(Enum):
    """An event that changes the state of a partition."""

    RESTORED = "restored"
    PAUSE = "pause"
    RESUME = "resume"
    BEGIN_COMMIT = "begin_commit"
    END_COMMIT = "end_commit"
    RESET = "reset"
    REVOKE = "revoke"


_S, _E = PartitionState, PartitionEvent
TRANSITIONS: Mapping[PartitionState, Mapping[PartitionEvent, PartitionState]] = {
    _S.RESTORING: {_E.RESTORED: _S.RUNNING, _E.RESET: _S.RESTORING, _E.REVOKE: _S.REVOKED},
    _S.RUNNING: {
        _E.PAUSE: _S.PAUSED,
        _E.BEGIN_COMMIT: _S.COMMITTING,
        _E.RESET: _S.RESTORING,
        _E.REVOKE: _S.REVOKED,
    },
    _S.PAUSED: {
        _E.RESUME: _S.RUNNING,
        _E.BEGIN_COMMIT: _S.COMMITTING_PAUSED,
        _E.RESET: _S.RESTORING,
        _E.REVOKE: _S.REVOKED,
    },
    _S.COMMITTING: {_E.END_COMMIT: _S.RUNNING, _E.RESET: _S.RESTORING, _E.REVOKE: _S.REVOKED},
    _S.COMMITTING_PAUSED: {_E.END_COMMIT: _S.PAUSED, _E.RESET: _S.RESTORING, _E.REVOKE: _S.REVOKED},
    _S.REVOKED: {},
}
"""The state after each event. An event that is missing for a state is illegal in it."""


class IllegalEventError(RuntimeError):
    """An event is illegal in the state of a partition, or a call came from the wrong thread: a bug of the engine."""


class CommitPoint(NamedTuple):
    """The part of a commit that belongs to one input partition."""

    offset: int
    """Next offset to read."""
    checkpoint: str
    """The step's checkpoint."""
    leader_epoch: int | None = None
    """Leader epoch of the record before that offset (KIP-320)."""


class InFlightBatch(NamedTuple):
    """A batch that was delivered and is not processed."""

    next_offset: int
    size: int
    """Bytes of the values."""
    timestamp: int | None = None
    """Kafka timestamp of the first record in ms."""


@dataclass(slots=True)
class AssignedPartition:
    """Everything that the engine knows about one input partition while this process owns it."""

    partition: TopicPartition
    state: PartitionState = PartitionState.RESTORING
    delivered_offset: int = 0
    """Offset after the last record that arrived on the event loop."""
    processed_offset: int = 0
    """Offset after the last record that the step has processed: the next one to commit."""
    leader_epoch: int | None = None
    """Leader epoch of the record before `processed_offset`."""
    committed: CommitPoint | None = None
    """The last commit; None before the first."""
    committed_at: int | None = None
    """Time in ms of the last commit by this process; None before the first."""
    in_flight: deque[InFlightBatch] = field(default_factory=deque)
    """Batches that are delivered and not processed, in order. The first one may be processed in part."""
    at_end: bool = False
    """Whether the consumer has read the partition to its end."""
    blocked: bool = False
    """Whether the step wants no further records of the partition for now."""
    processed_timestamp: int | None = None
    """Kafka timestamp in ms of the last record that the step has processed; None before the first."""

    def apply(self, event: PartitionEvent) -> None:
        """Change the state. Raises IllegalEventError if the table does not allow the event."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise IllegalEventError(f"{self.partition}: event {event.value} is illegal in state {self.state.value}")
        self.state = following
        if following is PartitionState.PAUSED:
            # Records may arrive unnoticed. After a resume, the consumer reports the end again.
            self.at_end = False

    @property
    def fetches(self) -> bool:
        """Whether the consumer fetches records of the partition."""
        return self.state is PartitionState.RUNNING

    @property
    def full(self) -> bool:
        """Whether records are fetched although enough batches are in flight."""
        return self.fetches and len(self.in_flight) >= WAITING_BATCHES

    @property
    def has_caught_up(self) -> bool:
        """Whether the partition is paused although it has room again and is not blocked."""
        return self.state is PartitionState.PAUSED and not self.blocked and len(self.in_flight) < WAITING_BATCHES

    @property
    def all_processed(self) -> bool:
        """Whether the step has processed everything that was delivered."""
        return not self.in_flight

    @property
    def has_progressed(self) -> bool:
        """Whether the step has processed records since the last commit."""
        return self.committed is not None and self.processed_offset > self.committed.offset

    @property
    def oldest_timestamp(self) -> int | None:
        """Kafka timestamp in ms of the oldest record that is not processed; None before the first record.

        If that record was not delivered yet, it is the timestamp of the record before it.
        """
        return self.in_flight[0].timestamp if self.in_flight else self.processed_timestamp

    def start(self, offset: int, leader_epoch: int | None, checkpoint: str | None) -> None:
        """Start at a restored offset; `checkpoint` is None before the first commit."""
        self.apply(PartitionEvent.RESTORED)
        self.delivered_offset = self.processed_offset = offset
        self.leader_epoch = leader_epoch
        self.committed = None if checkpoint is None else CommitPoint(offset, checkpoint, leader_epoch)

    def deliver(self, batch: InFlightBatch) -> None:
        """Record that a batch was delivered."""
        self.in_flight.append(batch)
        self.delivered_offset = batch.next_offset
        self.at_end = False

    def process(self, next_offset: int, leader_epoch: int | None, timestamp: int | None = None) -> InFlightBatch | None:
        """Record that all records before `next_offset` are processed, and return the batch that this completes.

        `timestamp` is that of the last of these records. A batch may be processed in parts, in order. Raises
        IllegalEventError if the order is violated.
        """
        if not self.in_flight or not self.processed_offset < next_offset <= self.in_flight[0].next_offset:
            ends = [batch.next_offset for batch in self.in_flight][:5]
            raise IllegalEventError(
                f"{self.partition}: batch up to {next_offset} is processed out of order: "
                f"processed up to {self.processed_offset}, in flight {ends}"
            )
        self.processed_offset, self.leader_epoch = next_offset, leader_epoch
        self.processed_timestamp = timestamp
        return self.in_flight.popleft() if next_offset == self.in_flight[0].next_offset else None

    def advance(self, offset: int, leader_epoch: int | None) -> None:
        """Move over transaction markers and aborted records up to the consumer's fetch position."""
        # Otherwise the committed offset of a partition without new records stays at the marker after its last record.
        # Retention deletes the marker with the records. Then the committed offset is out of range, although all records
        # were processed.
        if self.all_processed and offset > self.processed_offset:
            self.delivered_offset = self.processed_offset = offset
            self.leader_epoch = leader_epoch

    def commit_point(self, checkpoint: str) -> CommitPoint:
        """Return what a commit stores now, with the step's checkpoint."""
        return CommitPoint(self.processed_offset, checkpoint, self.leader_epoch)

    def has_news(self, point: CommitPoint) -> bool:
        """Return whether a commit point differs from the last commit. The leader epoch alone does not count."""
        return self.committed is None or self.committed[:2] != point[:2]

    def must_renew(self, now: int, renew_ms: int) -> bool:
        """Return whether the last commit is so old, or of unknown age, that it has to be repeated without news."""
        # The clock may have been set back.
        return self.committed_at is None or abs(now - self.committed_at) >= renew_ms

    def lag(self, log_start: int, log_end: int, fetch_position: int) -> int:
        """Return the number of records that are not processed. Transaction markers after the last one do not count."""
        reached = max(self.processed_offset, log_start)
        if self.delivered_offset == self.processed_offset:
            reached = max(reached, fetch_position)
        return max(0, log_end - reached)


class Assignment:
    """The partitions that the group has assigned to this process. See the module docstring for the threads."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()
        self._records: dict[TopicPartition, AssignedPartition] = {}
        self.generation = 0
        """Number of changes of the assignment. A batch that was read in an earlier generation is stale."""
        self.awaits_restore = False
        """Whether the group has assigned partitions, perhaps none, that are not restored."""
        self.established = False
        """Whether partitions, perhaps none, are assigned and restored."""
        self.partitions: frozenset[TopicPartition] = frozenset()
        """Partitions that are restored and not revoked."""
        self.restoring: frozenset[TopicPartition] = frozenset()
        """Partitions that are assigned and not restored."""
        self.retired_batches = 0
        """Total number of batches that were processed or dropped."""
        self.retired_bytes = 0
        """Total bytes of these batches."""
        self.full_partitions = 0
        """Number of partitions that are fetched although they are full."""
        self.paused_batches = 0
        """Number of batches in flight of the partitions that are not fetched."""
        self.caught_up = False
        """Whether a paused partition has room again and is not blocked."""
        self.must_block = False
        """Whether records of a blocked partition are fetched."""

    def __getitem__(self, partition: TopicPartition) -> AssignedPartition:
        return self._records[partition]

    def running(self) -> Iterator[AssignedPartition]:
        """Yield the records of the partitions that are restored and not revoked."""
        return (record for record in self._records.values() if record.state is not PartitionState.RESTORING)

    @property
    def any_in_flight(self) -> bool:
        """Whether any batch is in flight."""
        return any(record.in_flight for record in self._records.values())

    def in_flight_batches(self) -> int:
        """Return the number of batches in flight."""
        return sum(len(record.in_flight) for record in self._records.values())

    def any_in_flight_of(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether any batch of these partitions is in flight."""
        return any(record.in_flight for record in self._records.values() if record.partition in partitions)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that the group has assigned. They replace those of an assignment that was not restored."""
        self._change()
        self._drop(self.restoring)
        for partition in partitions:
            if partition in self._records:
                raise IllegalEventError(f"{partition}: assigned, but it is {self._records[partition].state.value}")
            self._records[partition] = AssignedPartition(partition)
        self.awaits_restore = True
        self._publish()

    def started(self) -> None:
        """Record that all partitions of the assignment are restored."""
        self._check_thread()
        self.awaits_restore, self.established = False, True
        self._publish()

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions. Their batches in flight become stale."""
        self._change()
        self.established = False
        self._drop(self._records.keys() & set(partitions))
        self._publish()

    def abandon_restore(self) -> None:
        """Drop the partitions that are not restored."""
        self._change()
        self._drop(self.restoring)
        self.awaits_restore = False
        self._publish()

    def reset(self) -> None:
        """Make all partitions wait for being restored again. Their batches in flight become stale."""
        self._change()
        self.established = False
        self.awaits_restore = self.awaits_restore or bool(self.partitions)
        for partition, record in self._records.items():
            self._retire(record.in_flight)
            record.apply(PartitionEvent.RESET)
            self._records[partition] = AssignedPartition(partition, record.state)
        self._publish()

    def apply(self, event: PartitionEvent, partitions: Iterable[TopicPartition]) -> None:
        """Apply an event to partitions."""
        self._check_thread()
        for partition in partitions:
            self._records[partition].apply(event)
        self._publish_room()

    def forget_commits(self) -> None:
        """Forget the last commits, which are deleted with their topic: the next one has all partitions."""
        self._check_thread()
        for record in self._records.values():
            record.committed = None

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of which no records are fetched."""
        states = {PartitionState.PAUSED, PartitionState.COMMITTING_PAUSED}
        return frozenset(record.partition for record in self._records.values() if record.state in states)

    def block(self, blocked: Collection[TopicPartition]) -> None:
        """Set the partitions that the step wants no further records of, and unblock the others."""
        self._check_thread()
        for record in self._records.values():
            record.blocked = record.partition in blocked
        self._publish_room()

    def is_current(self, partition: TopicPartition, generation: int) -> bool:
        """Return whether the assignment in which a batch was read still holds."""
        return generation == self.generation and partition in self.partitions

    def deliver(self, partition: TopicPartition, generation: int, batch: InFlightBatch) -> bool:
        """Record a batch as in flight. Returns False, and drops it, if its partition was revoked in the meantime."""
        self._check_thread()
        if not self.is_current(partition, generation):
            self._retire([batch])
            return False
        record = self._records[partition]
        record.deliver(batch)
        if record.fetches and len(record.in_flight) == WAITING_BATCHES:
            self.full_partitions += 1
        return True

    def process(
        self, partition: TopicPartition, next_offset: int, leader_epoch: int | None, timestamp: int | None = None
    ) -> None:
        """Record that all records of a partition before `next_offset` are processed.

        `timestamp` is that of the last one, for the metrics.
        """
        self._check_thread()
        record = self._records[partition]
        completed = record.process(next_offset, leader_epoch, timestamp)
        if completed is not None:
            self._retire([completed])
            if not record.fetches:
                self.paused_batches -= 1
            elif len(record.in_flight) == WAITING_BATCHES - 1:
                self.full_partitions -= 1
            self.caught_up = self.caught_up or record.has_caught_up

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            record = self._records.pop(partition)
            record.apply(PartitionEvent.REVOKE)
            self._retire(record.in_flight)

    def _retire(self, batches: Iterable[InFlightBatch]) -> None:
        for batch in batches:
            self.retired_bytes += batch.size
            self.retired_batches += 1

    def _change(self) -> None:
        self._check_thread()
        self.generation += 1

    def _publish(self) -> None:
        """Replace what the consumer thread reads."""
        self.partitions = frozenset(record.partition for record in self.running())
        self.restoring = frozenset(self._records) - self.partitions
        self._publish_room()

    def _publish_room(self) -> None:
        self.full_partitions = sum(record.full for record in self._records.values())
        self.paused_batches = sum(len(record.in_flight) for record in self._records.values() if not record.fetches)
        self.caught_up = any(record.has_caught_up for record in self._records.values())
        self.must_block = any(record.blocked and record.fetches for record in self._records.values())

    def _check_thread(self) -> None:
        if threading.get_ident() != self._owner:
            raise IllegalEventError("the assignment belongs to the event loop; call it through the loop")
