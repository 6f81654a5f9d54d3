"""The loop's side of the transport: where a stage's step meets batches, outputs and commits.

All of it runs on the event loop's thread, each method in one go; so a commit, which is asked for by a call of this
kind, always falls between two batches. While the gate is closed the consumer's thread commits, and nothing is
processed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from skewless.records import Output
from skewless.step import Step
from skewless.transport.acks import Acks
from skewless.transport.batch import MessageBatch
from skewless.transport.counts import Counts

log = logging.getLogger(__name__)

State = Sequence[tuple[bytes, bytes]]

Restore = Callable[[Mapping[int, str | None]], Mapping[int, State]]
"""Positions by partition -> what their changelogs hold; a partition that is left out has nothing."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition as it is taken over."""

    offset: int
    """Next offset to read: as committed, or the beginning of the partition before the first commit."""
    position: str | None
    """The step's checkpoint, committed with that offset; None before the first commit."""
    state: State = ()
    """Records (key, value) restored from the changelog."""
    leader_epoch: int | None = None
    """Leader epoch of the record before that offset (KIP-320)."""


Send = Callable[[Iterable[Output]], None]


class Traced(Protocol):
    """Sends outputs on, and lets them carry where they come from."""

    def batch(self, batch: MessageBatch, outputs: Iterable[Output], send: Send) -> None:
        """Send what a batch gives."""
        ...

    def commit(self, outputs: Iterable[Output], send: Send) -> None:
        """Send what a commit adds."""
        ...


Before = Callable[[MessageBatch], Awaitable[None] | None]


class CommitPoint(NamedTuple):
    """The part of a commit that belongs to one input partition."""

    offset: int
    """Next offset to read."""
    position: str
    """The step's checkpoint."""
    leader_epoch: int | None = None


Prepared = Mapping[int, CommitPoint]
"""Commit points by partition."""

FetchPositions = Mapping[int, tuple[int, int | None]]
"""The consumer's next offset to fetch, and the leader epoch before it, by partition."""


def wall_clock_ms() -> int:
    """Tell the wall-clock time in ms."""
    return time.time_ns() // 1_000_000


class Session:
    """One process's share of a stage."""

    def __init__(self, step: Step, *, drain: bool = False, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.step = step
        self.drain = drain
        self.acks = Acks()
        self.generation = 0
        self.failure: Exception | None = None
        self.space = threading.Event()
        """Set whenever a batch has made room for another."""
        self.send: Send = lambda _outputs: None
        self.commit_wanted = False
        """Whether the step asks for a commit before its time; the consumer's thread looks at each turn."""
        self.traced: Traced | None = None
        """Who follows records from batch to batch, if somebody does."""
        self.counts = Counts()
        self.watermarks: Mapping[int, int | None] = {}
        self.idle: frozenset[int] = frozenset()
        """Partitions that were idle at the last commit."""
        """Watermark by partition as of the last commit, for the metrics; replaced as a whole, as those below."""
        self.event_times: Mapping[int, int] = {}
        """Newest event time by partition as of the last commit."""
        self.lag: Mapping[int, int] = {}
        """Records by partition that the last commit left unread."""
        self.committed_offsets: Mapping[int, int] = {}
        """Next offset by partition as it is committed."""
        self._clock = clock
        self._open = asyncio.Event()
        self._offsets: dict[int, int] = {}
        self._epochs: dict[int, int | None] = {}
        self._saved: dict[int, tuple[int, str] | None] = {}
        """Offset and checkpoint of the last commit; None before the first."""
        self._at_end: set[int] = set()
        self._assigned = False

    def hand(self, batch: MessageBatch) -> bool:
        """Take note of a batch on its way to the agent; False when its partition was lost meanwhile."""
        if not self.current(batch):
            self.acks.retire(batch.size)
            return False
        self._at_end.discard(batch.partition)
        self.acks.handed(batch.partition, batch.next_offset, batch.size)
        return True

    def current(self, batch: MessageBatch) -> bool:
        """Whether the batch's partition is still the one that it was read from."""
        return batch.generation == self.generation and batch.partition in self._offsets

    async def process(self, batch: MessageBatch, before: Before = lambda _batch: None) -> None:
        """Process a batch, unless its partition was lost on the way. Waits while a commit is under way.

        `before` is asked right before the step whether there is something to wait for, until there is not.
        """
        try:
            while True:
                while not self._open.is_set():
                    await self._open.wait()
                if not self.current(batch):
                    return
                waiting = before(batch)
                if waiting is None:
                    break
                await waiting
            started = time.perf_counter()
            outputs = self.step.process(batch, self._clock())
            if self.traced is None:
                self.send(outputs)
            else:
                self.traced.batch(batch, outputs, self.send)
            self.counts.batch(batch.partition, len(batch.messages), batch.size, time.perf_counter() - started)
            self.acks.done(batch.partition, batch.next_offset)
            self._offsets[batch.partition] = batch.next_offset
            self._epochs[batch.partition] = batch.leader_epoch
            self.commit_wanted = self.step.wants_commit
        except Exception as error:  # noqa: BLE001 - the consumer's thread judges it
            self.fail(error)
        self.space.set()

    def fail(self, error: Exception) -> None:
        """Process nothing more, and let the consumer's thread judge the error: rewind, or end the process."""
        self.failure = error
        self._open.clear()

    def end_of_partition(self, partition: int, generation: int) -> None:
        """Take note that everything that is in the partition now has been handed over."""
        if generation == self.generation and partition in self._offsets:
            self._at_end.add(partition)

    def assign(self, partitions: Mapping[int, Taken]) -> None:
        """Take over partitions and open the gate."""
        for partition, taken in partitions.items():
            self.acks.assign(partition)
            told = self.step.assign(partition, taken.position, taken.state)
            if told:
                log.info("partition %d: %s", partition, told, extra={"partition": partition, "offset": taken.offset})
            self._offsets[partition] = taken.offset
            self._epochs[partition] = taken.leader_epoch
            self._saved[partition] = None if taken.position is None else (taken.offset, taken.position)
            self.counts.restored_records += len(taken.state)
        self._note_committed({at: taken.offset for at, taken in partitions.items() if taken.position is not None})
        self.failure = None
        self._assigned = True
        self._open.set()

    def revoke(self, partitions: Iterable[int]) -> None:
        """Lose partitions: whatever is on its way from them will be ignored."""
        self.generation += 1
        self._assigned = False
        for partition in set(partitions) & self._offsets.keys():
            self.acks.revoke(partition)
            self.step.revoke(partition)
            self._at_end.discard(partition)
            del self._offsets[partition], self._epochs[partition], self._saved[partition]
        self._note_committed({})
        self.space.set()

    def prepare(self, fetched: FetchPositions) -> Prepared:
        """Close the gate and flush the step; the consumer's thread commits what is returned, then calls `committed`.

        Returns the partitions in which the offset or the checkpoint has changed since the last commit.
        """
        self._open.clear()
        if self.failure is not None:
            raise self.failure
        now = self._clock()
        for partition in [ended for ended in self._at_end if not self.acks.waiting(ended)]:
            self.step.end_of_partition(partition, now)
        self._advance(fetched)
        outputs = self.step.flush(now)
        self.commit_wanted = False
        if self.traced is None:
            self.send(outputs)
        else:
            self.traced.commit(outputs, self.send)
        self.watermarks = {partition: self.step.watermark(partition) for partition in self._offsets}
        self.idle = frozenset(filter(self.step.idle, self._offsets))
        newest = {partition: self.step.event_time(partition) for partition in self._offsets}
        self.event_times = {partition: time for partition, time in newest.items() if time is not None}
        points = {partition: self.commit_point(partition) for partition in self._offsets}
        return {
            partition: point
            for partition, point in points.items()
            if self._saved[partition] != (point.offset, point.position)
        }

    def commit_point(self, partition: int) -> CommitPoint:
        """Return what a commit now would make durable of a partition."""
        return CommitPoint(self._offsets[partition], self.step.position(partition), self._epochs[partition])

    def _advance(self, fetched: FetchPositions) -> None:
        """Move offsets over transaction markers and aborted records.

        Without this, the committed offset of a silent partition stays at the marker after its last record. Retention
        deletes the marker with the records, and then the committed offset is out of range though all was processed.
        """
        for partition, (offset, epoch) in fetched.items():
            if partition in self._offsets and not self.acks.waiting(partition) and offset > self._offsets[partition]:
                self._offsets[partition], self._epochs[partition] = offset, epoch

    def committed(self, prepared: Prepared, given_up: Collection[int] = ()) -> None:
        """Open the gate after a commit. Remove the partitions that are `given_up` first.

        Otherwise their next batch could enter a transaction that does not contain its offsets.
        """
        self._saved.update((partition, (point.offset, point.position)) for partition, point in prepared.items())
        self._note_committed({partition: point.offset for partition, point in prepared.items()})
        if given_up:
            self.revoke(given_up)
        self._open.set()

    def _note_committed(self, offsets: Mapping[int, int]) -> None:
        """Take over new offsets, and remove partitions that are not owned: their commits are another member's."""
        known = {**self.committed_offsets, **offsets}
        self.committed_offsets = {
            partition: offset for partition, offset in known.items() if partition in self._offsets
        }

    @property
    def assigned(self) -> bool:
        """Whether partitions, perhaps none, were taken over and not lost since."""
        return self._assigned

    def waiting(self) -> int:
        """Count the batches that were handed over and are not processed."""
        return sum(self.acks.waiting(partition) for partition in self._offsets.copy())

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset to process by partition."""
        return self._offsets.copy()

    @property
    def finished(self) -> bool:
        """Whether a bounded run is at its end: everything that this process owns is processed and finished.

        Between losing partitions and being told the new ones it owns nothing, but only for now. And what a step knows
        of the end may be from an earlier run: everything that is there must have been read.
        """
        return (
            self.drain
            and self._assigned
            and self._open.is_set()
            and not self.acks.any_waiting
            and self._offsets.keys() <= self._at_end
            and all(self.step.finished(partition) for partition in self._offsets)
        )
