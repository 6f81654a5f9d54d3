"""The whole pipeline in memory: the real steps between models of Kafka's topics, offsets and transactions.

Nothing here is random: the caller decides what is read, committed, lost or rebalanced.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import mmh3

from helpers.batches import source as source_partition
from helpers.in_memory_batch import InMemoryBatch
from skewless.engine.executor import State
from skewless.engine.step import InputStep
from skewless.stages.aggregator.builder import restore
from skewless.stages.aggregator.step import AggregatorStep
from skewless.stages.observer.restore import unsaved_state
from skewless.wire.changelog import decode_checkpoint, window_of
from skewless.wire.record import Batch, OutputRecord

WALL_CLOCK = 1_000_000_000_000


@dataclass
class Topic:
    """Records by partition, with the gaps in the offsets that commits make."""

    partitions: int
    logs: dict[int, list[tuple[int, OutputRecord]]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def append(self, output: OutputRecord) -> None:
        partition = output.partition
        if partition is None:
            partition = mmh3.hash(output.key or b"", signed=False) % self.partitions
        assert 0 <= partition < self.partitions
        self.logs[partition].append((self.ends[partition], output))
        self.ends[partition] += 1

    def watermark(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self.ends[partition] += 1

    def read(self, partition: int, offset: int, most: int, end: int = sys.maxsize) -> tuple[Batch, int] | None:
        """Return the next batch, and the offset after it."""
        found = [(at, record) for at, record in self.logs[partition] if offset <= at < end][:most]
        if not found:
            return None
        batch = InMemoryBatch(partition, [record for _, record in found], [at for at, _ in found])
        return batch, found[-1][0] + 1

    def all(self) -> list[OutputRecord]:
        return [record for partition in sorted(self.logs) for _, record in self.logs[partition]]

    def latest(self, partition: int | None = None) -> dict[bytes, bytes]:
        """Return the records that remain after compaction, of one partition or of all."""
        latest: dict[bytes, bytes] = {}
        for at in sorted(self.logs) if partition is None else [partition]:
            for _, record in self.logs[at]:
                assert record.key is not None
                latest.pop(record.key, None)
                if record.value is not None:
                    latest[record.key] = record.value
        return latest


@dataclass
class Process:
    """One process of a stage: its step, its read offsets, and its open transaction."""

    step: InputStep[Any]
    offsets: dict[int, int] = field(default_factory=dict)
    pending: list[OutputRecord] = field(default_factory=list)

    def key_of(self, partition: int) -> Any:
        """Return what the step calls a partition of its input."""
        return self.step.key_of(source_partition(partition))


class Stage:
    """A consumer group with its committed offsets and metadata."""

    def __init__(
        self,
        name: str,
        topics: dict[str, Topic],
        source: str,
        build: Callable[[], InputStep[Any]],
        restore: Callable[[InputStep[Any], int, str | None], State] = lambda _step, _partition, _checkpoint: (),
    ) -> None:
        """`restore` returns the state of a partition for a step, of a stage without changelog, from its checkpoint."""
        self.name = name
        self.restore = restore
        self.build = build
        self.topics = topics
        self.source = topics[source]
        self.committed: dict[int, tuple[int, str]] = {}
        self.saved: dict[int, str | None] = {}
        self.processes: list[Process] = []
        self.rebalance(1, commit=False, now=WALL_CLOCK)

    def rebalance(self, processes: int, *, commit: bool, now: int) -> None:
        """Assign all partitions to this many new processes. The previous ones commit their work or are killed."""
        if commit:
            for process in self.processes:
                self.commit(process, now)
        self.processes = [Process(self.build()) for _ in range(processes)]
        for process in self.processes:
            process.step.observe_topics(self._counts())
        for partition in range(self.source.partitions):
            self._assign(self.processes[partition % processes], partition)

    def grow(self, number: int) -> None:
        """Add a partition to the input. One process gets it and keeps its others, and the others do not know of it."""
        self.source.partitions += 1
        process = self.processes[number % len(self.processes)]
        process.step.observe_topics(self._counts())
        self._assign(process, self.source.partitions - 1)

    def _counts(self) -> dict[str, int]:
        return {source_partition(0).topic: self.source.partitions}

    def abort_transaction(self, process: Process) -> None:
        """Abort the transaction: its outputs vanish, and its partitions are read again from the committed offsets."""
        process.pending.clear()
        owned = list(process.offsets)
        process.offsets.clear()
        for partition in owned:
            process.step.revoke(process.key_of(partition))
        for partition in owned:
            self._assign(process, partition)

    def _assign(self, process: Process, partition: int) -> None:
        offset, checkpoint = self.committed.get(partition, (0, None))
        process.step.assign(process.key_of(partition), checkpoint, self._state(process.step, partition, checkpoint))
        process.offsets[partition] = offset
        self.saved[partition] = checkpoint

    def _state(self, step: InputStep[Any], partition: int, checkpoint: str | None) -> State:
        if self.name == "router":
            return list(self.topics["router-state"].latest(partition).items())
        if self.name == "observer":
            first, end = decode_checkpoint(checkpoint).unsaved or (0, 0)
            again = self.source.read(partition, first, sys.maxsize, end)
            unsaved = unsaved_state([again[0]] if again else [])
            return [*self.topics["observer-changelog"].latest(partition).items(), *unsaved]
        if not isinstance(step, AggregatorStep):
            return self.restore(step, partition, checkpoint)
        changelog = self.topics[step.changelog]

        def read(partition: int, is_needed: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
            return [(key, value if is_needed(key) else b"") for key, value in changelog.latest(partition).items()]

        return restore(read, step._rules.windows, partition, checkpoint)

    def read(self, process: Process, partition: int, most: int, now: int) -> bool:
        """Process the next records of a partition; False if there are none."""
        found = self.source.read(partition, process.offsets[partition], most)
        if found is None:
            return False
        batch, next_offset = found
        if isinstance(process.step, AggregatorStep):
            self._reopen(process.step, batch)
        process.pending += process.step.process(batch, now)
        process.offsets[partition] = next_offset
        return True

    def _reopen(self, step: AggregatorStep, batch: Batch) -> None:
        missing = step.windows_to_reopen(batch)
        latest = self.topics[step.changelog].latest(batch.partition)
        step.reopen(batch.partition, [(key, value) for key, value in latest.items() if window_of(key) in missing])
        assert not step.windows_to_reopen(batch)

    def commit(self, process: Process, now: int) -> bool:
        """Make outputs and offsets visible at once; False if there was nothing to commit."""
        for partition, offset in process.offsets.items():
            if self.source.read(partition, offset, 1) is None:
                process.step.end_of_partition(process.key_of(partition), now)
        process.pending += process.step.flush(now)
        moved = False
        for partition, offset in process.offsets.items():
            checkpoint = process.step.checkpoint(process.key_of(partition))
            assert len(checkpoint) <= 3_850
            before, _ = self.committed.get(partition, (None, ""))
            if offset != before or checkpoint != self.saved[partition]:
                self.committed[partition] = (offset, checkpoint)
                self.saved[partition] = checkpoint
                moved = True
        moved = moved or bool(process.pending)
        touched: dict[str, set[int]] = defaultdict(set)
        for output in process.pending:
            self.topics[output.topic].append(output)
            if output.partition is not None:
                touched[output.topic].add(output.partition)
        for name, partitions in touched.items():
            self.topics[name].watermark(partitions)
        process.pending.clear()
        return moved

    def run_out(self, now: int) -> bool:
        """Read and commit until no input is left; False if there was none."""
        moved = False
        for process in self.processes:
            for partition in process.offsets:
                while self.read(process, partition, 100, now):
                    moved = True
            moved = self.commit(process, now) or moved
        return moved
