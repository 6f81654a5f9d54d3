"""Step of the splitter: converts the records of a source partition to tuples and decides which tuples are late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import as_python, in_source_unit
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import NOTHING_REPORTED, WatermarkGenerator, WatermarkState
from skewless.engine.step import MultiInputStep, Sample
from skewless.parsing.batch_slices import slices
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.validation import EventTimeRules, RecordClassification, classify
from skewless.stages.source_partition import (
    LONG_AGO,
    SourcePartition,
    SourceRules,
    SourceSteps,
)
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from skewless.stages.splitter.reports import SourceReports
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import WATERMARK, read_time_header, schema_header
from skewless.wire.record import Batch, OutputRecord, OwnHeaders, public_timestamp
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import TupleFormat, parts_of

HELD_BYTES = 4 * 2**20
"""Bytes of tuples above which they are sent before the flush. One record of many tuples takes fewer bytes than several
ones, because it contains each key once."""
encode_late = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(slots=True, kw_only=True)
class Source(SourcePartition):
    """State of one source partition."""

    start: int | None = None
    """Offset at which the pipeline started to read; None before it has read a record."""
    held: list[pa.RecordBatch] = field(default_factory=list)
    """Tuples that are not sent."""
    held_bytes: int = 0

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint: the largest event time, and whether the partition is idle."""
        return Checkpoint(self.generator.max_time, self.idle, self.start)


class Accepted(NamedTuple):
    """The accepted tuples of a batch of source records."""

    tuples: pa.RecordBatch
    batch: Batch
    classified: RecordClassification
    previous_max: int | None
    """Largest event time in ms before the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitterRules(SourceRules):
    """Settings of the splitter for event time."""

    event_time: EventTimeRules
    tuple_format: TupleFormat
    holds: bool = True
    """Whether tuples are held until the flush. Without transactions, routers see records as soon as they are sent."""


class SplitterStep(SourceSteps[TopicPartition], MultiInputStep):
    """Parses records, checks their event times, and writes the tuples of a source partition to one of `tuples`."""

    _rules: SplitterRules

    def __init__(self, parser: RecordParser, rules: SplitterRules, reports: SourceReports) -> None:
        self._tuple_format = rules.tuple_format
        self._parser = parser
        self._rules = rules
        self._reports = reports
        self._sources: dict[TopicPartition, Source] = {}
        self.timed_records = 0
        """Number of records with an event time so far."""
        self._filtered = self._rounded = 0
        """Number of records that did not meet the conditions since the process started, for the metrics."""

    def label_of(self, partition: TopicPartition) -> str:
        """Return the number of the partition if there is one source topic, otherwise topic and number."""
        return self._reports.label_of(partition)

    def observe_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Note the number of partitions of each source topic."""
        self._reports.observe_topics(partition_counts)

    def assign(
        self,
        partition: TopicPartition,
        checkpoint: str | None,
        state: Any,  # noqa: ARG002 - for local aggregation
    ) -> str | None:
        """Restore the committed checkpoint. The first flush reports its state again."""
        self._reports.begin()
        committed = decode_checkpoint(checkpoint)
        # A partition that was idle stays idle until it has a record. As an active one it would withhold results for
        # another idle timeout after each restart. Nothing closes earlier, because it was idle before the restart, too.
        idle = committed.idle and self._rules.idle_timeout_ms is not None and not self._rules.drain
        generator = WatermarkGenerator(self._rules.event_time.lateness_ms, committed.max_time)
        source = self._sources[partition] = Source(
            generator=generator, idle=idle, start=committed.start, was_reported=checkpoint is not None
        )
        if idle:
            source.last_seen_ms = LONG_AGO  # for longer than the idle timeout before the restart
        return None

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the state of the partition."""
        self._sources.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Emit tuples, late tuples and dead letters of a batch."""
        partition = TopicPartition(batch.topic, batch.partition)
        source = self._sources[partition]
        if source.start is None and source.generator.max_time is None:
            # For an audit: the records before this one were deleted before the pipeline could count them.
            source.start = next(iter(batch.offsets), None)
        for batch_slice in slices(batch):
            yield from self._split(partition, batch_slice, source, now)

    def _split(self, partition: TopicPartition, batch: Batch, source: Source, now: int) -> Iterator[OutputRecord]:
        parsed = self._parser.parse(batch)
        previous_max = source.generator.max_time
        classified = classify(parsed, self._rules.event_time, source.generator, now)
        self._filtered += classified.filtered
        self._rounded += parsed.rounded
        if timed_records := int(np.count_nonzero(classified.valid)):
            self.timed_records += timed_records
            source.observe_records(now)
        yield from self._dead_letters(partition, batch, classified)
        if classified.late.any():
            watermarks = classified.max_times_before(previous_max) - self._rules.event_time.lateness_ms
            yield from self._late(partition, batch, classified, watermarks)
        keys, values, times = classified.tuples()
        if len(times):
            self.tuples += len(times)
            tuples = self._tuple_format.batch(keys.dictionary_encode(), values, times)
            yield from self._send(partition, source, Accepted(tuples, batch, classified, previous_max))

    def _send(self, partition: TopicPartition, source: Source, accepted: Accepted) -> Iterator[OutputRecord]:  # noqa: ARG002 - for local aggregation
        """Hold tuples until the flush, unless there are too many."""
        source.held.append(accepted.tuples)
        source.held_bytes += accepted.tuples.get_total_buffer_size()
        if not self._rules.holds or sum(each.held_bytes for each in self._sources.values()) > HELD_BYTES:
            for each in self._sources:
                yield from self.held_records(each)

    def held_records(self, partition: TopicPartition, *, reports: bool = True) -> Iterator[OutputRecord]:
        """Yield the tuples that are held of a partition, and with `reports` its state after them."""
        source = self._sources[partition]
        held, source.held, source.held_bytes = source.held, [], 0
        if not held:
            return
        tuples = held[0]
        if len(held) > 1:
            (tuples,) = pa.Table.from_batches(held).unify_dictionaries().combine_chunks().to_batches()
        schema = schema_header(self._tuple_format.columns_name)
        report = self._report(partition, source) if reports else ()
        headers = [schema, *report, *read_time_header(source.last_seen_ms)]
        yield from self._tuple_format.records("tuples", self._reports.target_of(partition), tuples, headers)

    def _report(self, partition: TopicPartition, source: Source) -> OwnHeaders:
        """Return the headers that report the present state of a partition."""
        source.last_forwarded = self._state_to_report(partition)
        return self._reports.report(partition, source.last_forwarded)

    def _state_to_report(self, partition: TopicPartition) -> WatermarkState:
        return self._sources[partition].state_to_report(self._rules.event_time.earliest)

    def _dead_letters(
        self, partition: TopicPartition, batch: Batch, classified: RecordClassification
    ) -> Iterator[OutputRecord]:
        for index, reason in classified.invalid.items():
            yield dead_letter(partition.topic, batch, index, reason, classified.parsed.tracebacks.get(index))

    def _late(
        self, partition: TopicPartition, batch: Batch, classified: RecordClassification, watermarks: NDArray[np.int64]
    ) -> Iterator[OutputRecord]:
        parsed, headers = classified.parsed, self._reports.late_headers(partition)
        late = np.flatnonzero(classified.late[parsed.records])
        values = [
            _in_source_unit(parsed.values[value.name].take(pa.array(late)), value)
            for value in self._tuple_format.values
        ]
        for index, *late_values in zip(late.tolist(), *values, strict=True):
            record = int(parsed.records[index])
            key, time = parsed.keys[index], int(parsed.times[record])
            parts = parts_of(key) if self._tuple_format.key_parts else ()
            # All fields in their order: see `TupleFormat.late_type`.
            late_tuple = self._tuple_format.late_type(
                key, *late_values, time, int(watermarks[record]), batch.partition, batch.offsets[record], *parts
            )
            timestamp = public_timestamp(time)
            yield OutputRecord("late", encode_late(late_tuple), key.encode(), timestamp=timestamp, headers=headers)

    def flush(self, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - event time only
        """Send the tuples that are held, and report watermarks and idle flags that changed since the last report."""
        for partition, source in self._sources.items():
            yield from self.held_records(partition)
            target = self._reports.target_of(partition)
            is_reported = self._state_to_report(partition) in (NOTHING_REPORTED, source.last_forwarded)
            if not is_reported or self._reports.is_due(target):
                headers = [schema_header(WATERMARK), *self._report(partition, source)]
                yield OutputRecord("tuples", None, partition=target, headers=headers)
        ended = {partition: source.ended for partition, source in self._sources.items()}
        yield from self._reports.without_source(ended)

    def checkpoint(self, partition: TopicPartition) -> str:
        """Return the checkpoint: the largest event time, and whether the partition is idle."""
        return encode_checkpoint(self._sources[partition].checkpoint())

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the numbers of filtered records, of rounded values, and of partitions that wait."""
        yield Sample("skewless_splitter_filtered_records_total", (), self._filtered)
        yield Sample("skewless_splitter_rounded_values_total", (), self._rounded)
        yield Sample("skewless_splitter_paused_partitions", (), len(self.blocked))


def _in_source_unit(array: pa.Array, value: ValueType) -> list[Any]:
    """Return values as they are in the source: numbers with decimals, or texts. Missing ones are None."""
    if value.kind == "text":
        texts: list[Any] = array.dictionary_decode().to_pylist()
        return texts
    numbers = as_python(in_source_unit(array.fill_null(0).to_numpy(), value.decimals))
    return [number if valid else None for number, valid in zip(numbers, array.is_valid().to_pylist(), strict=True)]
