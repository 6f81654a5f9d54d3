"""Step of the splitter: converts the records of a source partition to tuples and decides which tuples are late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import as_python, in_source_unit
from skewless.algorithms.local_buffer import Flush
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import (
    MAX_WATERMARK,
    NOTHING_REPORTED,
    WatermarkGenerator,
)
from skewless.engine.step import MultiInputStep, Sample
from skewless.parsing.batch_slices import slices
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.validation import TOO_FAR_AHEAD, EventTimeRules, RecordClassification, classify
from skewless.stages.source_partition import SourcePartition, blocked_partitions
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from skewless.stages.splitter.local_rows import Accepted, Cause, HeldAgain, LocalRows
from skewless.stages.splitter.reports import SourceReports
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import WATERMARK, read_time_header, schema_header
from skewless.wire.record import Batch, OutputRecord, public_timestamp
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import TupleFormat, parts_of

encode_late = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(slots=True, kw_only=True)
class _Source(SourcePartition):
    """State of one source partition."""

    start: int | None = None
    end: int = 0
    """Offset after the last record."""
    refused_by_clock: bool = False
    """Whether a record since the last commit was refused because of the wall clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitterRules:
    """Settings of the splitter for event time."""

    event_time: EventTimeRules
    idle_timeout_ms: int | None
    """Time without records after which a source partition is idle. None: never."""
    drain: bool
    max_drift_ms: int | None = None
    """Time by which a partition may be ahead of the slowest one of its process. None: any."""
    key_parts: tuple[str, ...] = ()
    """Names of the parts of a composite key; empty for another key."""
    parsing: str = ""
    """Digest of the settings by which records are parsed. It is stored with the tuples that are held."""


class SplitterStep(MultiInputStep):
    """Parses records, checks their event times, and writes the tuples of a source partition to one of `tuples`."""

    def __init__(
        self,
        parser: RecordParser,
        values: Sequence[ValueType],
        rules: SplitterRules,
        reports: SourceReports,
        local: LocalRows,
    ) -> None:
        self._values = tuple(values)
        self._tuple_format = TupleFormat(values, rules.key_parts)
        self._parser = parser
        self._rules = rules
        self._reports = reports
        self._local = local
        self._sources: dict[TopicPartition, _Source] = {}
        self._filtered = 0
        """Number of records that did not meet the conditions since the process started, for the metrics."""

    def label_of(self, partition: TopicPartition) -> str:
        """Return the number of the partition if there is one source topic, otherwise topic and number."""
        return self._reports.label_of(partition)

    def observe_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Note the number of partitions of each source topic."""
        self._reports.observe_topics(partition_counts)

    def assign(
        self, partition: TopicPartition, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]
    ) -> str | None:
        """Restore the committed checkpoint, and the tuples that were held. The first flush reports its state again."""
        self._reports.begin()
        committed = decode_checkpoint(checkpoint)
        # A partition that was idle stays idle until it has a record. As an active one it would withhold results for
        # another idle timeout after each restart. Nothing closes earlier, because it was idle before the restart, too.
        idle = committed.idle and self._rules.idle_timeout_ms is not None and not self._rules.drain
        generator = WatermarkGenerator(self._rules.event_time.lateness_ms, committed.max_time)
        source = _Source(generator=generator, idle=idle, start=committed.start)
        source.end = committed.held.end if committed.held else 0
        self._sources[partition] = source
        again = HeldAgain.from_state(state)
        self._local.assign(partition, committed.held, again)
        return f"read {again.records} records again, which have {again.tuples} held tuples" if again else None

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the state of the partition."""
        self._sources.pop(partition, None)
        self._local.revoke(partition)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Emit tuples, late tuples and dead letters of a batch."""
        partition = TopicPartition(batch.topic, batch.partition)
        source = self._sources[partition]
        source.observe_records(now)
        yield from self._rows(partition, source, self._local.take_held_again(partition))
        for batch_slice in slices(batch):
            yield from self._split(partition, batch_slice, source, now)
        if self._local.window_ms is not None:
            source.end = batch.offsets[-1] + 1

    @property
    def blocked(self) -> frozenset[TopicPartition]:
        """Partitions that are ahead of slower ones."""
        return blocked_partitions(self._sources, self._rules.max_drift_ms)

    def _split(self, partition: TopicPartition, batch: Batch, source: _Source, now: int) -> Iterator[OutputRecord]:
        parsed = self._parser.parse(batch)
        previous_max = source.generator.max_time
        classified = classify(parsed, self._rules.event_time, source.generator, now)
        self._filtered += classified.filtered
        for index, reason in classified.invalid.items():
            source.refused_by_clock = source.refused_by_clock or reason == TOO_FAR_AHEAD
            yield dead_letter(partition.topic, batch, index, reason)
        if classified.late.any():
            watermarks = classified.max_times_before(previous_max) - self._rules.event_time.lateness_ms
            yield from self._late(partition, batch, classified, watermarks)
        yield from self._tuples(partition, batch, source, classified, previous_max)

    def _tuples(
        self,
        partition: TopicPartition,
        batch: Batch,
        source: _Source,
        classified: RecordClassification,
        previous_max: int | None,
    ) -> Iterator[OutputRecord]:
        keys, values, times = classified.tuples()
        if not len(times):
            return
        self.tuples += len(times)
        tuples = self._tuple_format.batch(keys.dictionary_encode(), values, times)
        if self._local.add(partition, Accepted(tuples, batch, classified, previous_max)):
            full = self._local.take_full(partition, source.generator.watermark())
            yield from self._rows(partition, source, full)
            return
        source.last_forwarded = source.state()
        schema = schema_header(self._tuple_format.columns_name)
        report = self._reports.report(partition, source.last_forwarded)
        headers = [schema, *report, *read_time_header(source.last_seen_ms)]
        yield from self._tuple_format.records("tuples", self._reports.target_of(partition), tuples, headers)

    def _rows(self, partition: TopicPartition, source: _Source, flushes: Sequence[Flush]) -> Iterator[OutputRecord]:
        """Yield the rows of flushes, with the watermark after them: it must not be sent before what it covers."""
        if flushes:
            source.last_forwarded = self._local.state(partition, source.state())
            report = self._reports.report(partition, source.last_forwarded)
            headers = [*report, *read_time_header(source.last_seen_ms or None)]
            yield from self._local.records(self._reports.target_of(partition), flushes, headers)

    def _late(
        self, partition: TopicPartition, batch: Batch, classified: RecordClassification, watermarks: NDArray[np.int64]
    ) -> Iterator[OutputRecord]:
        parsed, headers = classified.parsed, self._reports.late_headers(partition)
        late = np.flatnonzero(classified.late[parsed.records])
        values = [_in_source_unit(parsed.values[value.name].take(pa.array(late)), value) for value in self._values]
        for index, *late_values in zip(late.tolist(), *values, strict=True):
            record = int(parsed.records[index])
            key, time = parsed.keys[index], int(parsed.times[record])
            parts = parts_of(key) if self._rules.key_parts else ()
            # All fields in their order: see `TupleFormat.late_type`.
            late_tuple = self._tuple_format.late_type(
                key, *late_values, time, int(watermarks[record]), batch.partition, batch.offsets[record], *parts
            )
            timestamp = public_timestamp(time)
            yield OutputRecord("late", encode_late(late_tuple), key.encode(), timestamp=timestamp, headers=headers)

    def end_of_partition(self, partition: TopicPartition, now: int) -> None:
        """End the partition in a bounded run. Otherwise mark it idle if it had no records for the idle timeout."""
        rules = self._rules
        self._sources[partition].observe_end(now, drain=rules.drain, idle_timeout_ms=rules.idle_timeout_ms)

    def flush(self, now: int) -> Iterator[OutputRecord]:
        """Emit the rows that are due, and report watermarks and idle flags that changed since the last report."""
        for partition, source in self._sources.items():
            rest = self._reason_to_hold_nothing(source, now)
            flushes = self._local.take_due(partition, source.generator.watermark(), rest)
            source.refused_by_clock = False
            if flushes:
                yield from self._rows(partition, source, flushes)
                continue
            state = self._local.state(partition, source.state())
            target = self._reports.target_of(partition)
            if state not in (NOTHING_REPORTED, source.last_forwarded) or self._reports.is_due(target):
                source.last_forwarded = state
                headers = [schema_header(WATERMARK), *self._reports.report(partition, state)]
                yield OutputRecord("tuples", None, partition=target, headers=headers)
        yield from self._reports.without_source({at: source.ended for at, source in self._sources.items()})

    def _reason_to_hold_nothing(self, source: _Source, now: int) -> Cause | None:
        """Return why all tuples of a partition must be sent in this commit; None if they may be held."""
        if source.ended:
            return "window"
        if source.refused_by_clock:
            # Records with held tuples are read again after a restart. The clock may then accept what it refused before.
            return "commit"
        if self._local.window_ms is None:
            return None
        # A silent partition holds nothing. Otherwise retention could delete the records before they are read again.
        source.last_seen_ms = source.last_seen_ms or now
        is_silent = now - source.last_seen_ms >= self._local.window_ms
        return "idle" if source.idle or is_silent else None

    def checkpoint(self, partition: TopicPartition) -> str:
        """Return the checkpoint: the largest event time, whether the partition is idle, and what is held of it."""
        source = self._sources[partition]
        held = self._local.held(partition, source.end, self._rules.parsing)
        return encode_checkpoint(Checkpoint(source.generator.max_time, source.idle, source.start, held))

    def watermark(self, partition: TopicPartition) -> int | None:
        """Return the watermark of the source partition. Later stages know an earlier one while tuples are held."""
        return self._sources[partition].state().watermark

    def idle(self, partition: TopicPartition) -> bool:
        """Return whether the source partition is idle."""
        return self._sources[partition].state().idle

    def max_event_time(self, partition: TopicPartition) -> int | None:
        """Return the largest event time of the source partition in ms."""
        return self._sources[partition].generator.max_time

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the numbers of filtered records and of partitions that wait, and the metrics of local aggregation."""
        yield Sample("skewless_splitter_filtered_records_total", (), self._filtered)
        yield Sample("skewless_splitter_paused_partitions", (), len(self.blocked))
        yield from self._local.collect_metrics(self.label_of)

    def finished(self, partition: TopicPartition) -> bool:
        """Return whether the end of the partition was reported downstream."""
        return self._sources[partition].last_forwarded.watermark == MAX_WATERMARK


def _in_source_unit(array: pa.Array, value: ValueType) -> list[Any]:
    """Return values as they are in the source: numbers with decimals, or texts. Missing ones are None."""
    if value.kind == "text":
        texts: list[Any] = array.to_pylist()
        return texts
    numbers = as_python(in_source_unit(array.fill_null(0).to_numpy(), value.decimals))
    return [number if valid else None for number, valid in zip(numbers, array.is_valid().to_pylist(), strict=True)]
