"""Step of the splitter: converts the records of a source partition to tuples and decides which tuples are late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import as_python, in_source_unit
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import (
    MAX_WATERMARK,
    NOTHING_REPORTED,
    WatermarkGenerator,
    WatermarkState,
    partitions_ahead,
)
from skewless.engine.step import Sample, Step
from skewless.parsing.batch_slices import slices
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.validation import EventTimeRules, RecordClassification, classify
from skewless.stages.splitter.local_rows import LocalRows, metrics_without_aggregation
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import headers_with, watermark_records
from skewless.wire.record import Batch, OutputRecord, public_timestamp
from skewless.wire.tuples import TupleFormat, parts_of

encode_late = msgspec.json.Encoder(decimal_format="number").encode


class _Checkpoint(NamedTuple):
    """Checkpoint of a source partition."""

    max_time: int | None = None
    """Largest event time so far. With it, a restart does not change which tuples are late."""
    idle: bool = False
    start: int | None = None
    """Offset of the first record that the pipeline reads; None for the first one of the partition."""


_decode_checkpoint = msgspec.json.Decoder(_Checkpoint).decode


def first_checkpoint(offset: int) -> str:
    """Return the checkpoint of a partition of which no record was read yet, and that starts at an offset."""
    return msgspec.json.encode(_Checkpoint(start=offset)).decode()


def start_of(checkpoint: str | None) -> int:
    """Return the offset at which a partition starts by its checkpoint; 0 for its beginning."""
    return (_decode_checkpoint(checkpoint).start if checkpoint else None) or 0


def committed_state(checkpoint: str | None, lateness_ms: int) -> WatermarkState:
    """Return the state of event time of a source partition by its checkpoint. The end of a bounded run is not in it."""
    committed = _decode_checkpoint(checkpoint) if checkpoint else _Checkpoint()
    return WatermarkState(WatermarkGenerator(lateness_ms, committed.max_time).watermark(), committed.idle)


@dataclass(slots=True)
class _Source:
    """State of one source partition."""

    generator: WatermarkGenerator
    last_seen_ms: int
    """Wall-clock time of its last records in ms. 0: none since the assignment."""
    idle: bool = False
    ended: bool = False
    start: int | None = None
    last_forwarded: WatermarkState = NOTHING_REPORTED
    """Last state that was reported downstream."""

    def state(self) -> WatermarkState:
        return WatermarkState(MAX_WATERMARK) if self.ended else WatermarkState(self.generator.watermark(), self.idle)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitterRules(EventTimeRules):
    """Settings of the splitter for event time."""

    idle_timeout_ms: int | None
    """Time without records after which a source partition is idle. None: never."""
    drain: bool
    max_drift_ms: int | None = None
    """Time by which a partition may be ahead of the slowest one of its process. None: any."""
    key_parts: tuple[str, ...] = ()
    """Names of the parts of a composite key; empty for another key."""


class SplitterStep(Step):
    """Parses records, checks their event times, and writes tuples to the same partition of topic `tuples`."""

    def __init__(
        self,
        parser: RecordParser,
        values: Sequence[ValueType],
        rules: SplitterRules,
        source_topic: str,
        local: LocalRows | None = None,
    ) -> None:
        self._values = tuple(values)
        self._tuple_format = TupleFormat(values, rules.key_parts)
        self._parser = parser
        self._rules = rules
        self._topic = source_topic
        self._local = local
        """Aggregates tuples before they are sent; None if each tuple is sent."""
        self._sources: dict[int, _Source] = {}
        self._blocked: frozenset[int] = frozenset()
        self._filtered = 0
        """Number of records that did not meet the conditions since the process started, for the metrics."""

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002
        """Restore the committed checkpoint. The first flush reports its state again."""
        committed = _decode_checkpoint(checkpoint) if checkpoint else _Checkpoint()
        # A partition that was idle stays idle until it has a record. As an active one it would withhold results for
        # another idle timeout after each restart. Nothing closes earlier, because it was idle before the restart, too.
        idle = committed.idle and self._rules.idle_timeout_ms is not None and not self._rules.drain
        generator = WatermarkGenerator(self._rules.lateness_ms, committed.max_time)
        self._sources[partition] = _Source(generator, last_seen_ms=0, idle=idle, start=committed.start)
        if self._local is not None:
            self._local.assign(partition)
        self._align()

    def revoke(self, partition: int) -> None:
        """Drop the state of the partition."""
        self._sources.pop(partition, None)
        if self._local is not None:
            self._local.revoke(partition)
        self._align()

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Emit tuples, late tuples and dead letters of a batch."""
        source = self._sources[batch.partition]
        source.last_seen_ms, source.idle, source.ended = now, False, False
        for batch_slice in slices(batch):
            yield from self._split(batch_slice, source, now)
        self._align()

    def _align(self) -> None:
        if self._rules.max_drift_ms is None:
            return
        watermarks = {
            partition: source.generator.watermark()
            for partition, source in self._sources.items()
            if not (source.idle or source.ended)
        }
        self._blocked = partitions_ahead(watermarks, self._rules.max_drift_ms)

    @property
    def blocked(self) -> frozenset[int]:
        """Partitions that are ahead of slower ones."""
        return self._blocked

    def _split(self, batch: Batch, source: _Source, now: int) -> Iterator[OutputRecord]:
        parsed = self._parser.parse(batch)
        previous_max = source.generator.max_time
        classified = classify(parsed, self._rules, source.generator, now)
        self._filtered += classified.filtered
        for index, reason in classified.invalid.items():
            yield dead_letter(self._topic, batch, index, reason)
        if classified.late.any():
            watermarks = self._watermarks_before(parsed.times, classified.valid, previous_max)
            yield from self._late(batch, classified, watermarks)
        yield from self._tuples(batch.partition, source, classified)

    def _tuples(self, partition: int, source: _Source, classified: RecordClassification) -> Iterator[OutputRecord]:
        keys, values, times = classified.tuples()
        if not len(times):
            return
        self.tuples += len(times)
        tuples = self._tuple_format.batch(keys.dictionary_encode(), values, times)
        if self._local is not None and self._local.add(partition, tuples):
            # The watermark must not be sent before the tuples that it covers.
            if self._local.is_full(partition):
                source.last_forwarded = source.state()
                yield from self._local.flush(partition, source.last_forwarded, "size")
            return
        source.last_forwarded = source.state()
        headers = headers_with(self._tuple_format.columns_name, {partition: source.last_forwarded})
        yield from self._tuple_format.records("tuples", partition, tuples, headers)

    def _watermarks_before(
        self, times: NDArray[np.int64], valid: NDArray[np.bool_], previous_max: int | None
    ) -> NDArray[np.int64]:
        """Return for each record the watermark of the records before it."""
        floor = np.iinfo(np.int64).min if previous_max is None else previous_max
        valid_times = np.where(valid, times, floor)
        running_max = np.maximum.accumulate(np.concatenate((np.array([floor], dtype=np.int64), valid_times)))[:-1]
        watermarks: NDArray[np.int64] = running_max - self._rules.lateness_ms
        return watermarks

    def _late(
        self, batch: Batch, classified: RecordClassification, watermarks: NDArray[np.int64]
    ) -> Iterator[OutputRecord]:
        parsed = classified.parsed
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
            yield OutputRecord("late", encode_late(late_tuple), key=key.encode(), timestamp=public_timestamp(time))

    def end_of_partition(self, partition: int, now: int) -> None:
        """End the partition in a bounded run. Otherwise mark it idle if it had no records for the idle timeout."""
        source = self._sources[partition]
        if self._rules.drain:
            source.ended = True
            return
        source.last_seen_ms = source.last_seen_ms or now
        timeout = self._rules.idle_timeout_ms
        if timeout is not None and now - source.last_seen_ms >= timeout:
            source.idle = True

    def flush(self, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - nothing here depends on the wall clock
        """Emit the rows of all buffers, and report watermarks and idle flags that changed since the last report."""
        for partition, source in self._sources.items():
            state = source.state()
            if self._local is not None and self._local.has_rows(partition):
                source.last_forwarded = state
                yield from self._local.flush(partition, state, "commit")
            elif state not in (NOTHING_REPORTED, source.last_forwarded):
                source.last_forwarded = state
                yield from watermark_records("tuples", [partition], {partition: state})
        self._align()

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: the largest event time, and whether the partition is idle."""
        source = self._sources[partition]
        checkpoint = _Checkpoint(source.generator.max_time, source.idle, source.start)
        return msgspec.json.encode(checkpoint if source.start is not None else checkpoint[:2]).decode()

    def watermark(self, partition: int) -> int | None:
        """Return the watermark of the source partition."""
        return self._sources[partition].state().watermark

    def idle(self, partition: int) -> bool:
        """Return whether the source partition is idle."""
        return self._sources[partition].state().idle

    def max_event_time(self, partition: int) -> int | None:
        """Return the largest event time of the source partition in ms."""
        return self._sources[partition].generator.max_time

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the numbers of filtered records and of partitions that wait, and the metrics of local aggregation."""
        yield Sample("skewless_splitter_filtered_records_total", (), self._filtered)
        yield Sample("skewless_splitter_paused_partitions", (), len(self._blocked))
        if self._local is None:
            yield from metrics_without_aggregation(self._sources)
        else:
            yield from self._local.collect_metrics()

    def finished(self, partition: int) -> bool:
        """Return whether the end of the partition was reported downstream."""
        return self._sources[partition].last_forwarded.watermark == MAX_WATERMARK


def _in_source_unit(array: pa.Array, value: ValueType) -> list[Any]:
    """Return values as they are in the source: numbers with decimals, or texts. Missing ones are None."""
    if value.kind == "text":
        texts: list[Any] = array.to_pylist()
        return texts
    numbers = as_python(in_source_unit(array.fill_null(0).to_numpy(), value.decimals))
    return [number if valid else None for number, valid in zip(numbers, array.is_valid().to_pylist(), strict=True)]
