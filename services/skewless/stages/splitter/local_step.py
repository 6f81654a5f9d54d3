"""Steps of the splitter with local aggregation: one for each `splitter.local.mode`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, Literal, TypeVar, get_args

import pyarrow as pa

from skewless.algorithms.local_buffer import Flush, LocalBuffer, LocalRules
from skewless.algorithms.local_windows import LocalWindows, Opening
from skewless.algorithms.watermark import WatermarkState
from skewless.engine.step import Sample
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.validation import NO_TIME, NOT_FINAL, RecordClassification
from skewless.stages.splitter.checkpoint import Held, decode_checkpoint, encode_checkpoint
from skewless.stages.splitter.reports import SourceReports
from skewless.stages.splitter.step import Accepted, Source, SplitterRules, SplitterStep
from skewless.wire.headers import read_time_header
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.rows import RowFormat
from skewless.wire.topic_partition import TopicPartition

FlushReason = Literal["commit", "size", "window", "idle"]
Buffer = TypeVar("Buffer", bound=Sized)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRows:
    """Tuples that were read again on assignment, because they were held at the last commit."""

    records: int
    """Number of records that were read."""
    tuples: int
    openings: Mapping[int, Opening]
    rows: pa.Table
    skips_next: bool = False
    """Whether `source.skip_to` leaves out records that follow. A later range must not contain them."""

    def __len__(self) -> int:
        """Return the number of tuples."""
        return self.tuples


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSplitterRules(SplitterRules):
    """Settings of the splitter for event time and local aggregation."""

    local: LocalRules
    """Its panes are the local windows or, in the other modes, those in which held tuples are sent at once."""
    row_format: RowFormat
    parsing: str = ""
    """Digest of the settings by which records are parsed. It is stored with the tuples that are held."""


class LocalSplitterStep(SplitterStep, Generic[Buffer]):
    """Mode `none`: sends each tuple, after those that another mode has held before a restart.

    Base class of the other modes, which have a buffer for each source partition.
    """

    def __init__(self, parser: RecordParser, rules: LocalSplitterRules, reports: SourceReports) -> None:
        super().__init__(parser, rules, reports)
        self._local = rules
        self._buffers: dict[TopicPartition, Buffer] = {}
        self._restored: dict[TopicPartition, Flush] = {}
        """Tuples that another mode has held. They are sent before all others of their partition."""
        self._restored_records = 0
        self._flushed_tuples = self._flushed_rows = 0
        """Tuples and rows that were flushed since the process started, for the metrics."""
        self._flushes: Counter[FlushReason] = Counter(dict.fromkeys(get_args(FlushReason), 0))

    def assign(self, partition: TopicPartition, checkpoint: str | None, state: RestoredRows | tuple[()]) -> str | None:
        """Restore the committed checkpoint, and the tuples that were held."""
        super().assign(partition, checkpoint, state)
        if (buffer := self._new_buffer()) is not None:
            self._buffers[partition] = buffer
        if not state:
            return None
        self._restored_records += state.records
        self._restore(partition, decode_checkpoint(checkpoint).held, state)
        return f"read {state.records} records again, which have {state.tuples} held tuples"

    def _new_buffer(self) -> Buffer | None:
        return None

    def _restore(self, partition: TopicPartition, held: Held | None, restored: RestoredRows) -> None:  # noqa: ARG002 - for `windows`
        self._restored[partition] = Flush(restored.rows, restored.tuples)

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the state of the partition, and its tuples that are not sent. Its next owner reads them again."""
        super().revoke(partition)
        self._buffers.pop(partition, None)
        self._restored.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Emit the restored rows, and what results from a batch."""
        partition = TopicPartition(batch.topic, batch.partition)
        outputs = super().process(batch, now)
        if partition not in self._restored:
            return outputs
        source = self._sources[partition]
        source.observe_records(now)
        return chain(self._rows(partition, source, self._take_restored(partition)), outputs)

    def _take_restored(self, partition: TopicPartition) -> list[Flush]:
        return self._counted(self._restored.pop(partition, None), "commit")

    def _take_due(self, partition: TopicPartition, source: Source, now: int) -> list[Flush]:  # noqa: ARG002 - for `windows`
        """Take the rows that must be in this commit."""
        return self._take_restored(partition)

    def flush(self, now: int) -> Iterator[OutputRecord]:
        """Emit the rows that are due, and report states that changed since the last report."""
        for partition, source in self._sources.items():
            yield from self._rows(partition, source, self._take_due(partition, source, now))
        yield from super().flush(now)

    def _rows(self, partition: TopicPartition, source: Source, flushes: Sequence[Flush]) -> Iterator[OutputRecord]:
        """Yield the rows of flushes, with the watermark after them: it must not be sent before what it covers."""
        if not flushes:
            return
        yield from self.held_records(partition, reports=False)
        row_format, target = self._local.row_format, self._reports.target_of(partition)
        headers = [*self._report(partition, source), *read_time_header(source.last_seen_ms or None)]
        for flush in flushes:
            rows = row_format.from_partials(flush.rows)
            yield from row_format.records("tuples", target, rows, headers if flush is flushes[-1] else ())

    def _counted(self, flush: Flush | None, reason: FlushReason) -> list[Flush]:
        if flush is None:
            return []
        self._flushed_tuples += flush.tuples
        self._flushed_rows += flush.rows.num_rows
        self._flushes[reason] += 1
        return [flush]

    def _is_active(self, partition: TopicPartition) -> bool:
        """Return whether the tuples of a partition are aggregated."""
        return partition in self._buffers

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the metrics of a splitter, what was aggregated locally, and for which partitions."""
        yield from super().collect_metrics()
        yield Sample("skewless_splitter_local_tuples_total", (), self._flushed_tuples)
        yield Sample("skewless_splitter_local_rows_total", (), self._flushed_rows)
        yield Sample("skewless_splitter_local_buffer_rows", (), sum(map(len, self._buffers.values())))
        yield Sample("skewless_splitter_local_reread_records_total", (), self._restored_records)
        for reason, flushes in self._flushes.items():
            yield Sample("skewless_splitter_local_flushes_total", (reason,), flushes)
        for partition in sorted(self._sources):
            yield Sample("skewless_splitter_local_active", (self.label_of(partition),), int(self._is_active(partition)))


class BufferSplitterStep(LocalSplitterStep[LocalBuffer]):
    """Mode `buffer`: aggregates the tuples between two commits. Its buffers are empty after each commit."""

    def _new_buffer(self) -> LocalBuffer:
        return LocalBuffer(self._local.local)

    def _send(self, partition: TopicPartition, source: Source, accepted: Accepted) -> Iterator[OutputRecord]:
        buffer = self._buffers[partition]
        if not buffer.add(accepted.tuples):
            yield from super()._send(partition, source, accepted)
        elif buffer.is_full:
            yield from self._rows(partition, source, self._counted(buffer.take(), "size"))

    def held_records(self, partition: TopicPartition, *, reports: bool = True) -> Iterator[OutputRecord]:
        """Yield the tuples that are held of a partition. The state that covers its buffer follows with the rows."""
        return super().held_records(partition, reports=reports and not len(self._buffers[partition]))

    def _take_due(self, partition: TopicPartition, source: Source, now: int) -> list[Flush]:
        buffer, restored = self._buffers[partition], super()._take_due(partition, source, now)
        return [*restored, *self._counted(buffer.take(), "commit")] if len(buffer) else restored

    def _is_active(self, partition: TopicPartition) -> bool:
        return self._buffers[partition].active


class SourceWindows(LocalWindows):
    """Held tuples of a source partition, and up to where it was read."""

    end = 0
    """Offset after the last record."""
    refused_for_now = False
    """Whether a record since the last commit was refused that may be valid when it is read again."""


class WindowSplitterStep(LocalSplitterStep[SourceWindows]):
    """Mode `windows`: holds tuples until the watermark of their partition passes the end of their local window."""

    def _new_buffer(self) -> SourceWindows:
        return SourceWindows(self._local.local, self._local.event_time.lateness_ms)

    def _restore(self, partition: TopicPartition, held: Held | None, restored: RestoredRows) -> None:
        if held is None or held.window_ms != self._local.local.pane_ms or restored.skips_next:
            # The tuples before the end of a closed window were sent. It may be in the middle of a longer window.
            super()._restore(partition, held, restored)
            return
        windows = self._buffers[partition]
        windows.restore(restored.rows, restored.tuples, restored.openings, held.floor)
        windows.end = held.end

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Hold the tuples of a batch, and emit the rows of windows if there are too many."""
        self._buffers[TopicPartition(batch.topic, batch.partition)].end = batch.offsets[-1] + 1
        return super().process(batch, now)

    def _dead_letters(
        self, partition: TopicPartition, batch: Batch, classified: RecordClassification
    ) -> Iterator[OutputRecord]:
        if any(reason.endswith(NOT_FINAL) for reason in classified.invalid.values()):
            self._buffers[partition].refused_for_now = True
        return super()._dead_letters(partition, batch, classified)

    def _send(self, partition: TopicPartition, source: Source, accepted: Accepted) -> Iterator[OutputRecord]:
        windows = self._buffers[partition]
        hold(windows, accepted)
        if windows.is_full:
            flushes = self._counted(windows.close(source.generator.watermark()), "window")
            if windows.is_full:
                flushes += self._counted(windows.take(), "size")
            yield from self._rows(partition, source, flushes)

    def _take_due(self, partition: TopicPartition, source: Source, now: int) -> list[Flush]:
        windows, flushes = self._buffers[partition], super()._take_due(partition, source, now)
        flushes += self._counted(windows.close(source.generator.watermark()), "window")
        if (flush_reason := self._flush_reason(source, windows, now)) and len(windows):
            flushes += self._counted(windows.take(), flush_reason)
        windows.refused_for_now = False
        return flushes

    def _flush_reason(self, source: Source, windows: SourceWindows, now: int) -> FlushReason | None:
        """Return why all tuples of a partition must be sent in this commit; None if they may be held."""
        if source.ended:
            return "window"
        if windows.refused_for_now:
            # Records with held tuples are read again after a restart. The clock or the registry may accept others then.
            return "commit"
        # A silent partition holds nothing. Otherwise retention could delete the records before they are read again.
        source.last_seen_ms = min(source.last_seen_ms or now, now)
        is_silent = now - source.last_seen_ms >= self._local.local.pane_ms
        return "idle" if source.idle or is_silent else None

    def _state_to_report(self, partition: TopicPartition) -> WatermarkState:
        """Return the state of a partition with a watermark that closes no window of a held tuple."""
        state, largest = super()._state_to_report(partition), self._buffers[partition].max_watermark()
        if largest is None or state.watermark is None:
            return state
        return state._replace(watermark=min(state.watermark, largest))

    def checkpoint(self, partition: TopicPartition) -> str:
        """Return the checkpoint, with what a restart must read again of the partition."""
        checkpoint, windows = self._sources[partition].checkpoint(), self._buffers[partition]
        if first := windows.first_held():
            bounds = (first.offset, windows.end, first.max_time, windows.floor, windows.tuples)
            checkpoint = checkpoint._replace(held=Held(*bounds, self._local.parsing, self._local.local.pane_ms))
        return encode_checkpoint(checkpoint)


STEPS: Mapping[str, type[LocalSplitterStep[Any]]] = {
    "none": LocalSplitterStep,
    "buffer": BufferSplitterStep,
    "windows": WindowSplitterStep,
}
"""Step by `splitter.local.mode`."""


def hold(windows: LocalWindows, accepted: Accepted) -> None:
    """Hold tuples, and note where those of new windows begin."""
    if first_of_new := windows.first_of_new(accepted.tuples["time"].to_numpy()):
        records = accepted.classified.records_of_tuples
        max_times = accepted.classified.max_times_before(accepted.previous_max)
        for start, index in first_of_new.items():
            record = int(records[index])
            max_time = int(max_times[record])
            windows.openings[start] = Opening(accepted.batch.offsets[record], None if max_time == NO_TIME else max_time)
    windows.add(accepted.tuples)
