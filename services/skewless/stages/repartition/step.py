"""Step of the stages left and right: decides which records of a joined topic are late, and writes the others by id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.join.held_records import Records
from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import NOTHING_REPORTED, WatermarkGenerator
from skewless.engine.step import Sample, Step
from skewless.parsing.batch_slices import slices
from skewless.parsing.join_records import SideRules, read_records
from skewless.stages.source_partition import (
    SourcePartition,
    SourceRules,
    SourceSteps,
)
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import watermark_records
from skewless.wire.joined import late_records
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.repartition_checkpoint import RepartitionCheckpoint, decode_checkpoint, encode_checkpoint
from skewless.wire.timed_records import timed_records

RECORD_TOPICS = {Side.LEFT: "left-records", Side.RIGHT: "right-records"}
"""Topic that the stage of a side writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionRules(SourceRules):
    """Settings of one side."""

    side: Side
    records: SideRules
    disorder_ms: int
    partitions: int
    """Number of partitions of the topic that the stage writes."""
    max_ahead_ms: int


@dataclass(slots=True, kw_only=True)
class _Source(SourcePartition):
    """State of an input partition."""

    min_time: int | None
    """Smallest event time that was written, in ms."""


class RepartitionStep(SourceSteps[int], Step):
    """Writes each record of one joined topic to the partition of its id. Late and invalid records are separated.

    Before each commit it reports the watermarks of its partitions to all partitions that it writes.
    """

    _rules: RepartitionRules

    def __init__(self, rules: RepartitionRules) -> None:
        self._rules = rules
        self._sources: dict[int, _Source] = {}
        self._late = 0

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002
        """Restore the committed checkpoint. The first flush reports its state again.

        A partition that was idle is active: records may have arrived meanwhile, and a join corrects nothing.
        """
        committed = decode_checkpoint(checkpoint)
        generator = WatermarkGenerator(self._rules.disorder_ms, committed.max_time)
        self._sources[partition] = _Source(
            generator=generator, min_time=committed.min_time, was_reported=committed.idle
        )

    def revoke(self, partition: int) -> None:
        """Drop the state of the partition."""
        self._sources.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Emit records, late records and dead letters."""
        source = self._sources[batch.partition]
        for batch_slice in slices(batch):
            yield from self._write(batch_slice, source, now)

    def _write(self, batch: Batch, source: _Source, now: int) -> Iterator[OutputRecord]:
        rules = self._rules
        offsets = np.fromiter(batch.offsets, dtype=np.int64, count=len(batch.values))
        records, invalid = read_records(rules.records, batch, offsets, now + rules.max_ahead_ms)
        for index, reason in sorted(invalid.items()):
            yield dead_letter(rules.records.topic, batch, index, f"{rules.side.value}: {reason}")
        self.tuples += len(records.times)
        if len(records.times):
            source.observe_records(now)
        watermarks = source.generator.advance(records.times)
        late = records.times < watermarks
        if late.any():
            yield from self._late_records(batch.partition, records.take(late), watermarks[late])
            records = records.take(~late)
        if len(records.times):
            first = int(records.times.min())
            source.min_time = first if source.min_time is None else min(source.min_time, first)
            partitions = partition_of_keys(pa.array(records.ids, pa.string()), rules.partitions)
            yield from timed_records(RECORD_TOPICS[rules.side], batch.partition, records, partitions)

    def _late_records(self, partition: int, late: Records, watermarks: NDArray[np.int64]) -> Iterator[OutputRecord]:
        self._late += len(watermarks)
        is_json = self._rules.records.is_json
        partitions = [partition] * len(watermarks)
        yield from late_records(self._rules.side.value, late, partitions, watermarks.tolist(), is_json=is_json)

    def flush(self, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - nothing here depends on the wall clock
        """Report watermarks and idle flags that changed since the last report."""
        changed = {
            partition: state
            for partition, source in self._sources.items()
            if (state := source.state_to_report(self._rules.records.earliest))
            not in (NOTHING_REPORTED, source.last_forwarded)
        }
        for partition, state in changed.items():
            self._sources[partition].last_forwarded = state
        if changed:
            yield from watermark_records(RECORD_TOPICS[self._rules.side], range(self._rules.partitions), changed)

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: the range of event times, and whether the partition is idle."""
        source = self._sources[partition]
        return encode_checkpoint(RepartitionCheckpoint(source.generator.max_time, source.idle, source.min_time))

    def collect_metrics(self) -> Iterator[Sample]:
        """Return the numbers of late records, and of partitions that wait."""
        yield Sample("skewless_repartition_late_total", (), self._late)
        yield Sample("skewless_repartition_paused_partitions", (), len(self.blocked))
