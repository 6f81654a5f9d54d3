"""Local aggregation in a splitter: what it holds of its source partitions, the records of their rows, and its metrics.

There is one class for each `splitter.local.mode`. Each of them also sends the tuples that another mode has held before
a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
import pyarrow as pa

from skewless.algorithms.local_buffer import Flush, LocalBuffer, LocalRules
from skewless.algorithms.local_windows import LocalWindows, Opening
from skewless.algorithms.watermark import WatermarkState
from skewless.engine.step import Sample
from skewless.parsing.validation import NO_TIME, RecordClassification
from skewless.stages.splitter.checkpoint import Held
from skewless.wire.columns import read_table, write_table
from skewless.wire.record import Batch, OutputRecord, OwnHeaders
from skewless.wire.rows import RowFormat
from skewless.wire.topic_partition import TopicPartition

Cause = Literal["commit", "size", "window", "idle"]
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Accepted(NamedTuple):
    """The accepted tuples of a batch of source records."""

    tuples: pa.RecordBatch
    batch: Batch
    classified: RecordClassification
    previous_max: int | None
    """Largest event time in ms before the batch."""


class _Header(NamedTuple):
    """The other fields of `HeldAgain`, as the key of its record."""

    records: int
    tuples: int
    openings: dict[int, Opening]


class HeldAgain(NamedTuple):
    """Tuples that were read again on assignment, because they were held at the last commit."""

    records: int
    """Number of records that were read."""
    tuples: int
    openings: Mapping[int, Opening]
    rows: pa.Table

    def to_state(self) -> Sequence[tuple[bytes, bytes]]:
        """Return the tuples as state of a partition."""
        if not self.tuples:
            return ()
        header = _Header(self.records, self.tuples, dict(self.openings))
        return [(msgspec.json.encode(header), write_table(self.rows))]

    @classmethod
    def from_state(cls, state: Sequence[tuple[bytes, bytes]]) -> HeldAgain | None:
        """Return the tuples in the state of a partition; None if there are none."""
        if not state:
            return None
        ((key, value),) = state
        return cls(*msgspec.json.decode(key, type=_Header), read_table(value))


class LocalRows:
    """Mode `none`: each tuple is sent. Base class of the other modes."""

    window_ms: int | None = None
    """Length of a local window; None if no tuples are held beyond a commit."""

    def __init__(self, row_format: RowFormat) -> None:
        self._format = row_format
        self._held_again: dict[TopicPartition, Flush] = {}
        """Tuples that another mode has held. They are sent before all others of their partition."""
        self._partitions: set[TopicPartition] = set()
        self._records_read_again = 0
        self._tuples = self._rows = 0
        """Tuples and rows that were flushed since the process started, for the metrics."""
        self._flushes: Counter[Cause] = Counter(dict.fromkeys(CAUSES, 0))

    def assign(self, partition: TopicPartition, held: Held | None, again: HeldAgain | None) -> None:
        """Start a partition. `again` are the tuples of `held`, as `restore` has read them."""
        self._partitions.add(partition)
        if again is not None:
            self._records_read_again += again.records
            self._hold_again(partition, held, again)

    def _hold_again(self, partition: TopicPartition, held: Held | None, again: HeldAgain) -> None:  # noqa: ARG002 - for `windows`
        self._held_again[partition] = Flush(again.rows, again.tuples)

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the tuples of a partition, which are not sent."""
        self._partitions.discard(partition)
        self._held_again.pop(partition, None)

    def take_held_again(self, partition: TopicPartition) -> list[Flush]:
        """Take the tuples that must be sent before all others of the partition."""
        again = self._held_again.pop(partition, None)
        return [] if again is None else [self._counted(again, "commit")]

    def add(self, partition: TopicPartition, accepted: Accepted) -> bool:  # noqa: ARG002 - for the other modes
        """Hold tuples. Returns False if they must be sent as they are."""
        return False

    def take_full(self, partition: TopicPartition, watermark: int | None) -> list[Flush]:  # noqa: ARG002 - for the other modes
        """Take the rows that must be sent now, because there are too many. `watermark` is that of the partition."""
        return []

    def take_due(self, partition: TopicPartition, watermark: int | None, rest: Cause | None) -> list[Flush]:  # noqa: ARG002 - as above
        """Take the rows that must be in this commit. `rest` is the reason to take all of them, if there is one."""
        return self.take_held_again(partition)

    def state(self, partition: TopicPartition, own: WatermarkState) -> WatermarkState:  # noqa: ARG002 - for `windows`
        """Return the state of a partition that later stages may know, while tuples are held. `own` is its state."""
        return own

    def held(self, partition: TopicPartition, end: int, settings: str) -> Held | None:  # noqa: ARG002 - for `windows`
        """Return what a restart must read again of a partition whose last record was the one before `end`."""
        return None

    def records(self, target: int, flushes: Sequence[Flush], headers: OwnHeaders) -> Iterator[OutputRecord]:
        """Yield the rows of at least one flush for a partition of `tuples`.

        `headers` are the headers of the last record in addition to those of rows: the watermark after all rows.
        """
        *first_flushes, last_flush = flushes
        for flush in first_flushes:
            yield from self._format.records("tuples", target, self._format.from_partials(flush.rows), ())
        rows = self._format.from_partials(last_flush.rows)
        yield from self._format.records("tuples", target, rows, headers)

    def _counted(self, flush: Flush, cause: Cause) -> Flush:
        self._tuples += flush.tuples
        self._rows += flush.rows.num_rows
        self._flushes[cause] += 1
        return flush

    def _size(self) -> int:
        """Return the number of rows in memory, and of tuples that are not reduced."""
        return 0

    def _is_active(self, partition: TopicPartition) -> bool:  # noqa: ARG002 - for the other modes
        """Return whether the tuples of a partition are aggregated."""
        return False

    def collect_metrics(self, label_of: Callable[[TopicPartition], str]) -> Iterator[Sample]:
        """Yield what was aggregated, and the state of the partitions. `label_of` returns the label of a partition."""
        yield Sample("skewless_splitter_local_tuples_total", (), self._tuples)
        yield Sample("skewless_splitter_local_rows_total", (), self._rows)
        yield Sample("skewless_splitter_local_buffer_rows", (), self._size())
        yield Sample("skewless_splitter_local_reread_records_total", (), self._records_read_again)
        for cause, flushes in self._flushes.items():
            yield Sample("skewless_splitter_local_flushes_total", (cause,), flushes)
        for partition in sorted(self._partitions):
            yield Sample("skewless_splitter_local_active", (label_of(partition),), int(self._is_active(partition)))


class BufferedRows(LocalRows):
    """Mode `buffer`: one buffer for each source partition, which is empty after each commit."""

    def __init__(self, rules: LocalRules, row_format: RowFormat) -> None:
        super().__init__(row_format)
        self._rules = rules
        self._buffers: dict[TopicPartition, LocalBuffer] = {}

    def assign(self, partition: TopicPartition, held: Held | None, again: HeldAgain | None) -> None:
        """Start a partition with an empty buffer."""
        super().assign(partition, held, again)
        self._buffers[partition] = LocalBuffer(self._rules)

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the tuples of a partition, which are not committed."""
        super().revoke(partition)
        self._buffers.pop(partition, None)

    def add(self, partition: TopicPartition, accepted: Accepted) -> bool:
        """Add tuples to the buffer. Returns False if it is switched off."""
        return self._buffers[partition].add(accepted.tuples)

    def take_full(self, partition: TopicPartition, watermark: int | None) -> list[Flush]:  # noqa: ARG002 - for `windows`
        """Take all rows of a buffer that is full."""
        buffer = self._buffers[partition]
        return [self._counted(buffer.take(), "size")] if buffer.is_full else []

    def take_due(self, partition: TopicPartition, watermark: int | None, rest: Cause | None) -> list[Flush]:
        """Take all rows."""
        flushes = super().take_due(partition, watermark, rest)
        buffer = self._buffers[partition]
        return [*flushes, self._counted(buffer.take(), "commit")] if len(buffer) else flushes

    def _size(self) -> int:
        return sum(map(len, self._buffers.values()))

    def _is_active(self, partition: TopicPartition) -> bool:
        return self._buffers[partition].active


class WindowRows(LocalRows):
    """Mode `windows`: tuples are held until the watermark of their partition passes the end of their local window."""

    def __init__(self, rules: LocalRules, row_format: RowFormat, lateness_ms: int) -> None:
        super().__init__(row_format)
        self.window_ms = rules.pane_ms
        self._rules = rules
        self._lateness_ms = lateness_ms
        self._windows: dict[TopicPartition, LocalWindows] = {}

    def assign(self, partition: TopicPartition, held: Held | None, again: HeldAgain | None) -> None:
        """Start a partition with the tuples that were held at the last commit."""
        self._windows[partition] = LocalWindows(self._rules, self._lateness_ms)
        super().assign(partition, held, again)

    def _hold_again(self, partition: TopicPartition, held: Held | None, again: HeldAgain) -> None:
        if held is None or held.window_ms != self.window_ms:
            # The tuples before the end of a closed window were sent. It may be in the middle of a longer window.
            super()._hold_again(partition, held, again)
        else:
            self._windows[partition].restore(again.rows, again.tuples, again.openings, held.floor)

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the tuples of a partition. Its next owner reads them again."""
        super().revoke(partition)
        self._windows.pop(partition, None)

    def add(self, partition: TopicPartition, accepted: Accepted) -> bool:
        """Hold tuples."""
        hold(self._windows[partition], accepted)
        return True

    def take_full(self, partition: TopicPartition, watermark: int | None) -> list[Flush]:
        """Take the rows of closed windows, and then all others if they are still too many."""
        windows = self._windows[partition]
        if not windows.is_full:
            return []
        return self._taken(windows, watermark, lambda: "size" if windows.is_full else None)

    def take_due(self, partition: TopicPartition, watermark: int | None, rest: Cause | None) -> list[Flush]:
        """Take the rows of closed windows, and all others if there is a reason."""
        taken = self._taken(self._windows[partition], watermark, lambda: rest)
        return [*super().take_due(partition, watermark, rest), *taken]

    def _taken(self, windows: LocalWindows, watermark: int | None, rest: Callable[[], Cause | None]) -> list[Flush]:
        taken: list[tuple[Flush | None, Cause]] = [(windows.close(watermark), "window")]
        cause = rest()
        if cause is not None:
            taken.append((windows.take(), cause))
        return [self._counted(flush, reason) for flush, reason in taken if flush is not None]

    def state(self, partition: TopicPartition, own: WatermarkState) -> WatermarkState:
        """Return the state of a partition with a watermark that closes no window of a held tuple."""
        largest = self._windows[partition].max_watermark()
        if largest is None or own.watermark is None:
            return own
        return own._replace(watermark=min(own.watermark, largest))

    def held(self, partition: TopicPartition, end: int, settings: str) -> Held | None:
        """Return what a restart must read again of a partition."""
        windows = self._windows[partition]
        first = windows.first_held()
        if first is None:
            return None
        return Held(first.offset, end, first.max_time, windows.floor, windows.tuples, settings, self._rules.pane_ms)

    def _size(self) -> int:
        return sum(map(len, self._windows.values()))

    def _is_active(self, partition: TopicPartition) -> bool:
        return partition in self._windows


def hold(windows: LocalWindows, accepted: Accepted) -> None:
    """Hold tuples, and note where those of new windows begin."""
    openings: dict[int, Opening] = {}
    if first_of_new := windows.first_of_new(accepted.tuples["time"].to_numpy()):
        records = accepted.classified.records_of_tuples
        max_times = accepted.classified.max_times_before(accepted.previous_max)
        for start, index in first_of_new.items():
            record = int(records[index])
            max_time = int(max_times[record])
            openings[start] = Opening(accepted.batch.offsets[record], None if max_time == NO_TIME else max_time)
    windows.add(accepted.tuples, openings)
