"""StepExecutor: the event loop's side of the engine, which runs a stage's step on batches and sends its outputs.

All methods run on the thread of the event loop without interruption. The consumer thread calls them through the loop,
so a commit always begins between two batches. Processing stops while the consumer thread commits. The offsets and
states of the partitions are in `assignment`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from skewless.engine.assignment import AssignedPartition, Assignment, CommitPoint, InFlightBatch, PartitionEvent
from skewless.engine.message_batch import MessageBatch
from skewless.engine.statistics import EngineStatistics
from skewless.engine.step import InputStep
from skewless.errors import TransactionAbortedError, UnreachableError
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

SLICE_RECORDS = 32
"""Number of outputs of a batch that are held in memory at once."""

State = Sized
"""State of a partition: the records (key, value) of a changelog, or an object that the stage's step takes."""

Restore = Callable[[Mapping[Any, str | None]], Mapping[Any, State]]
"""Maps each partition's checkpoint to its state. A missing partition has none, and so has one with an empty state.

Partitions are what the stage's step calls them: numbers, or `TopicPartition` for a step with several inputs.
"""


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """An assigned partition whose checkpoint and state are restored."""

    offset: int
    """Next offset to read: the committed one, or the beginning of the partition before the first commit."""
    checkpoint: str | None
    """The step's checkpoint, committed with that offset; None before the first commit."""
    state: State = ()
    """State that was restored."""
    leader_epoch: int | None = None
    """Leader epoch of the record before that offset (KIP-320)."""


Send = Callable[[Iterable[OutputRecord]], None]


class BatchTracer(Protocol):
    """Sends outputs and adds the trace context of their input."""

    @property
    def trace_id(self) -> str | None:
        """Trace of the last batch as 32 hexadecimal digits, None if it was not sampled."""

    def batch(self, batch: MessageBatch, outputs: Iterable[OutputRecord], send: Send) -> None:
        """Send the outputs of a batch."""

    def commit(self, outputs: Iterable[OutputRecord], send: Send) -> None:
        """Send the outputs of a flush before a commit."""


Before = Callable[[MessageBatch], Awaitable[None] | None]
"""Called before a batch is processed. Returns an awaitable if the batch has to wait, otherwise None."""

CommitPoints = Mapping[TopicPartition, CommitPoint]
"""Commit points by partition."""

FetchPositions = Mapping[TopicPartition, tuple[int, int | None]]
"""Next offset to fetch and the leader epoch of the record before it, by partition."""

LogRanges = Mapping[TopicPartition, tuple[int, int]]
"""Log start offset and log end offset by partition."""

_Value = TypeVar("_Value")


def wall_clock_ms() -> int:
    """Return the wall-clock time in ms."""
    return time.time_ns() // 1_000_000


class StepExecutor:
    """Runs the step of a stage on the partitions that are assigned to this process."""

    def __init__(
        self,
        step: InputStep[Any],
        *,
        drain: bool = False,
        clock: Callable[[], int] = wall_clock_ms,
        renew_offsets_ms: int | None = None,
    ) -> None:
        """`renew_offsets_ms` is the time after which unchanged offsets are committed again; None: never."""
        self.step = step
        self.drain = drain
        self.assignment = Assignment()
        self.failure: Exception | None = None
        """Error of the step, which the consumer thread handles."""
        self.room_available = threading.Event()
        """Wakes the consumer thread. Set when a batch is no longer in flight, at a revocation, and at stop."""
        self.send: Send = lambda _outputs: None
        """Sends outputs; set by the consumer thread once its output is open."""
        self.commit_wanted = False
        """Whether the step requests a commit before its interval; read by the consumer thread in each cycle."""
        self.progressed = False
        """Whether a batch was processed since the last commit; read by the consumer thread in each cycle."""
        self.traced: BatchTracer | None = None
        """The tracer, or None if tracing is disabled."""
        self.statistics = EngineStatistics()
        self.watermarks: Mapping[TopicPartition, int | None] = {}
        """Watermark by partition as of the last commit, for the metrics. Replaced as a whole, like the next three."""
        self.idle: frozenset[TopicPartition] = frozenset()
        """Partitions that were idle at the last commit."""
        self.event_times: Mapping[TopicPartition, int] = {}
        """Largest event time by partition as of the last commit."""
        self.lag: Mapping[TopicPartition, int] = {}
        """Consumer lag in records by partition as of the last commit."""
        self.log_ranges: LogRanges = {}
        """Log start offset and log end offset by partition, as of the last commit."""
        self._clock = clock
        self._renew_offsets_ms = renew_offsets_ms
        self._blocked: frozenset[Any] = frozenset()
        """Partitions that the step blocks, as the assignment knows them."""
        self._running = asyncio.Event()
        """Set while batches may be processed: not during a commit, after a failure or before the first assignment."""

    def deliver(self, batch: MessageBatch) -> bool:
        """Record a batch as in flight. Returns False if its partition was revoked in the meantime."""
        in_flight = InFlightBatch(batch.next_offset, batch.size, batch.first_timestamp)
        return self.assignment.deliver(batch.source, batch.generation, in_flight)

    def is_current(self, batch: MessageBatch) -> bool:
        """Return whether the assignment in which the batch was read still holds."""
        return self.assignment.is_current(batch.source, batch.generation)

    async def process(self, batch: MessageBatch, before_step: Before = lambda _batch: None) -> None:
        """Process a batch, unless its partition was revoked in the meantime. Waits during a commit.

        `before_step` is called just before the step, and again after each wait, until it returns None.
        """
        try:
            while True:
                while not self._running.is_set():
                    await self._running.wait()
                if not self.is_current(batch):
                    return
                awaitable = before_step(batch)
                if awaitable is None:
                    break
                await awaitable
            started = time.perf_counter()
            with self.statistics.working.running():
                outputs = self.step.process(batch, self._clock())
                if self.traced is None:
                    self._send_in_slices(outputs)
                else:
                    self.traced.batch(batch, outputs, self._send_in_slices)
            trace_id = None if self.traced is None else self.traced.trace_id
            seconds = time.perf_counter() - started
            self.statistics.batch(batch.partition, len(batch.messages), batch.size, seconds, trace_id)
            # Set before the batch leaves what is in flight: the consumer thread must always see one of the two.
            self.progressed = True
            self.assignment.process(batch.source, batch.next_offset, batch.leader_epoch, batch.last_timestamp)
            self.commit_wanted = self.step.wants_commit
            self._update_blocked()
            if self.commit_wanted and self.step.stops_for_commit:
                self._running.clear()  # `end_commit` sets it, and so does `assign` after a failed commit
        except Exception as error:  # noqa: BLE001 - the consumer thread classifies it
            self.fail(error)
        self.room_available.set()

    def _send_in_slices(self, outputs: Iterable[OutputRecord]) -> None:
        """Run the step on a batch, and send its outputs. Errors of the step are raised here, not within the output."""
        # In slices, because a step may return a generator: a batch of long texts has several times its bytes as tuples.
        remaining = iter(outputs)
        while True:
            produced = list(islice(remaining, SLICE_RECORDS))
            self.send(produced)
            if len(produced) < SLICE_RECORDS:
                return

    def _update_blocked(self) -> None:
        blocked = self.step.blocked
        if blocked != self._blocked:
            self._blocked = blocked
            self.assignment.block(
                [partition for partition in self.assignment.partitions if self._key(partition) in blocked]
            )

    def fail(self, error: Exception) -> None:
        """Stop processing. The consumer thread classifies the error: it resets the partitions or ends the process."""
        self.failure = error
        self._running.clear()

    def check_failure(self) -> None:
        """Raise the error that stopped processing.

        Raises TransactionAbortedError, which resets the partitions, if a step waited for a server in vain.
        """
        if isinstance(self.failure, UnreachableError):
            raise TransactionAbortedError(str(self.failure)) from self.failure
        if self.failure is not None:
            raise self.failure

    def end_of_partition(self, partition: TopicPartition, generation: int) -> None:
        """Record that all records up to the current end of a partition were delivered."""
        if self.assignment.is_current(partition, generation):
            self.assignment[partition].at_end = True

    def assign(
        self,
        restored: dict[TopicPartition, RestoredPartition],
        partition_counts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Give the restored partitions of the assignment to the step, and start processing.

        Empties `restored`: the memory of a state is free before the step takes the next one. `partition_counts` has the
        number of partitions of each input topic.
        """
        self.step.observe_topics(partition_counts)
        for partition in list(restored):
            start = restored.pop(partition)
            log_line = self.step.assign(self._key(partition), start.checkpoint, start.state)
            if log_line:
                label = self.step.label_of(partition)
                log.info("partition %s: %s", label, log_line, extra={"partition": label, "offset": start.offset})
            self.assignment[partition].start(start.offset, start.leader_epoch, start.checkpoint)
            self.statistics.restored_records += len(start.state)
        self.assignment.started()
        self._blocked = frozenset()
        self.failure = None
        self._running.set()

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions with their state. Their batches in flight become stale and will be ignored."""
        for partition in self.assignment.partitions & set(partitions):
            self.step.revoke(self._key(partition))
        self.assignment.revoke(partitions)
        # Metrics of a partition are those of its present owner. A process may be left without any partition.
        kept = self.assignment.partitions
        self.lag = _only(self.lag, kept)
        self.log_ranges = _only(self.log_ranges, kept)
        self.watermarks = _only(self.watermarks, kept)
        self.event_times = _only(self.event_times, kept)
        self.idle &= kept
        self.room_available.set()

    def reset(self) -> None:
        """Remove the state of all partitions. They are restored from their last commit."""
        for partition in self.assignment.partitions:
            self.step.revoke(self._key(partition))
        self.assignment.reset()
        # It is handled by this reset. The partitions may be lost before they are restored.
        self.failure = None
        self.room_available.set()

    def begin_commit(self, fetched: FetchPositions) -> CommitPoints:
        """Stop processing and flush the step. The consumer thread commits the result, then calls `end_commit`.

        Returns the partitions in which the offset or the checkpoint has changed since the last commit, and those whose
        last commit must be renewed.
        """
        self._running.clear()
        self.check_failure()
        now, assignment = self._clock(), self.assignment
        partitions = list(assignment.running())
        assignment.apply(PartitionEvent.BEGIN_COMMIT, assignment.partitions)
        for record in partitions:
            key = self._key(record.partition)
            if record.all_processed and record.at_end:
                self.step.end_of_partition(key, now)
            elif self._is_up_to_date(record):
                self.step.up_to_date(key, now)
            elif not record.all_processed:
                self.step.records_in_flight(key)
            record.advance(*fetched.get(record.partition, (0, None)))
        self._send_flush(now)
        self._update_blocked()
        points = {record.partition: self.commit_point(record.partition) for record in partitions}
        return {
            record.partition: point
            for record in partitions
            if record.has_news(point := points[record.partition]) or self._must_renew(record, now)
        }

    def _is_up_to_date(self, record: AssignedPartition) -> bool:
        """Return whether records were processed since the last commit: all that the partition had then, or more."""
        # A partition that gets records all the time is never at its end when a commit begins.
        log_range = self.log_ranges.get(record.partition)
        return log_range is not None and record.has_progressed and record.processed_offset >= log_range[1]

    def _must_renew(self, record: AssignedPartition, now: int) -> bool:
        return self._renew_offsets_ms is not None and record.must_renew(now, self._renew_offsets_ms)

    def _send_flush(self, now: int) -> None:
        # The outputs of a flush are lazy: when a large window closes, an aggregator yields a record for each of some
        # millions of keys, which do not fit into memory at the same time. So a flush runs within `send`, record by
        # record, and errors of the step are raised there.
        with self.statistics.working.running():
            outputs = self.step.flush(now)
            self.commit_wanted = self.progressed = False
            if self.traced is None:
                self.send(outputs)
            else:
                self.traced.commit(outputs, self.send)
        keys = {partition: self._key(partition) for partition in self.assignment.partitions}
        self.watermarks = {partition: self.step.watermark(key) for partition, key in keys.items()}
        self.idle = frozenset(partition for partition, key in keys.items() if self.step.idle(key))
        max_event_times = {partition: self.step.max_event_time(key) for partition, key in keys.items()}
        self.event_times = {
            partition: event_time for partition, event_time in max_event_times.items() if event_time is not None
        }

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        """Return the commit point of a partition as of now."""
        return self.assignment[partition].commit_point(self.step.checkpoint(self._key(partition)))

    def end_commit(self, points: CommitPoints, revoked: Collection[TopicPartition] = ()) -> None:
        """Resume processing after a commit. Removes the `revoked` partitions first."""
        now = self._clock()
        for partition, point in points.items():
            self.assignment[partition].committed = point
            self.assignment[partition].committed_at = now
        self.assignment.apply(PartitionEvent.END_COMMIT, self.assignment.partitions)
        if revoked:
            # Before processing resumes: otherwise their next batch could enter a transaction that does not contain its
            # offsets.
            self.revoke(revoked)
        if self.failure is None:
            self._running.set()

    def update_lag(self, log_ranges: LogRanges, fetched: FetchPositions) -> None:
        """Determine the lag after a commit."""
        self.log_ranges = {
            partition: log_range
            for partition, log_range in log_ranges.items()
            if partition in self.assignment.partitions
        }
        self.lag = {
            partition: self.assignment[partition].lag(*log_range, fetched.get(partition, (0, None))[0])
            for partition, log_range in self.log_ranges.items()
        }

    @property
    def lag_s(self) -> Mapping[TopicPartition, float]:
        """Age in s of the oldest record that is not processed, by partition. For the thread of the event loop.

        0 for a partition without lag. A partition of which no record was read has no entry.
        """
        now, ages = self._clock(), {}
        for record in self.assignment.running():
            if record.all_processed and self.lag.get(record.partition) == 0:
                ages[record.partition] = 0.0
            elif record.oldest_timestamp is not None:
                ages[record.partition] = max(0, now - record.oldest_timestamp) / 1000
        return ages

    @property
    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        """Committed offset by partition, without the partitions that have none. For the thread of the event loop."""
        return {
            record.partition: record.committed.offset
            for record in self.assignment.running()
            if record.committed is not None
        }

    def _key(self, partition: TopicPartition) -> Any:
        return self.step.key_of(partition)

    @property
    def finished(self) -> bool:
        """Whether a bounded run is at its end: all assigned partitions are read, processed, finished and committed."""
        # False during a rebalance, while no partitions are assigned. A step may have the end of an earlier run in its
        # checkpoint, so the consumer must have reached the current end as well.
        return (
            self.drain
            and self.assignment.established
            and self._running.is_set()
            and not self.assignment.any_in_flight
            # A commit that fails is repeated, but not that of a process that stops.
            and not self.progressed
            and all(
                record.at_end and self.step.finished(self._key(record.partition))
                for record in self.assignment.running()
            )
        )


def _only(
    values: Mapping[TopicPartition, _Value], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, _Value]:
    return {partition: value for partition, value in values.items() if partition in partitions}
