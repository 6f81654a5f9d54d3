"""Step of the worker: aggregates the tuples of worker partitions into partials by pane and key.

A row in which the splitter has aggregated tuples is merged into the partial of its pane and key.

Each commit emits the partials of the tuples since the last commit. They are the only state between two commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.algorithms.aggregates import LOAD_COLUMN, ROWS_COLUMN, PartialColumn
from skewless.algorithms.hashing import partition_of_keys
from skewless.algorithms.partials import merge_partials, merge_rows, to_worker_partials
from skewless.algorithms.record_size import split_by_size
from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState, WatermarkTracker
from skewless.engine.step import Sample, Step
from skewless.errors import BadRecordError
from skewless.wire.columns import WriteColumns, write_packed
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import (
    WATERMARK,
    newest_read_time,
    read_time_header,
    require_schema,
    schema_header,
    update_watermarks,
    watermark_records,
)
from skewless.wire.partials import PARTIALS, with_rows, write_partials
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.rows import ROWS, RowFormat
from skewless.wire.tuples import TupleFormat

BUFFER_ROWS = 262_144
"""Maximum buffered tuples and rows of all partitions. With more, they are reduced to partials."""
BUFFER_BYTES = 32 * 2**20
"""Maximum bytes of the records of these tuples and rows, which keep the memory of their records."""
HELD_ROWS = 400_000
"""Partials of all partitions above which the step requests a commit. A commit holds each row up to four times: reduced,
merged, by partition, and as a record in the producer's queue."""
HELD_BYTES = 48 * 2**20
"""Bytes of partials above which the step requests a commit. This limit matters for long keys and large binary
partials."""


@dataclass(slots=True)
class _Input:
    """State of one worker partition: watermarks of its source partitions, and its input since the last commit."""

    watermarks: WatermarkTracker
    tuples: list[pa.RecordBatch] = field(default_factory=list)
    """Buffered tuples, which are not yet reduced to partials."""
    rows: list[pa.Table] = field(default_factory=list)
    """Buffered rows of the splitter, which are not yet merged."""
    last_forwarded: WatermarkState = NOTHING_REPORTED
    """Last state that was reported downstream."""
    newest_pane: int | None = None
    """Start of the newest pane in ms."""
    keys: int = 0
    """Rows of the last commit that had any."""
    read_time: int | None = None
    """Newest read time of the tuples since the last commit."""


class WorkerStep(Step):
    """Aggregates tuples into tumbling panes. Each commit emits the partials of the tuples since the last one."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        columns: Sequence[PartialColumn],
        tuple_format: TupleFormat,
        row_format: RowFormat,
        *,
        pane_ms: int,
        source_partitions: int,
        aggregator_partitions: int,
        topic: str,
        write: WriteColumns = write_packed,
    ) -> None:
        self._columns = tuple(columns)
        self._write = write
        self._tuples = tuple_format
        self._rows = row_format
        self._pane_ms = pane_ms
        self._source_partitions = source_partitions
        self._aggregator_partitions = aggregator_partitions
        self._topic = topic
        self._inputs: dict[int, _Input] = {}
        self._buffered_rows = self._buffered_bytes = 0
        """Number of buffered tuples and rows of all partitions, and the bytes of their records."""
        self._reduced: list[pa.Table] = []
        """Partials of all partitions since the last commit, with the column `worker`: the number of the partition."""
        self._tuples_in: Counter[int] = Counter()
        """Tuples received by worker partition, for the metrics."""
        self._rows_in: Counter[int] = Counter()
        """Tuples and rows received by worker partition, for the metrics."""
        self._partials_out: Counter[int] = Counter()
        """Partials emitted by worker partition, for the metrics."""
        self._json_decoder = msgspec.json.Decoder(tuple_format.read_type)

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002
        """Restore the committed watermarks."""
        watermarks = WatermarkTracker(self._source_partitions)
        if checkpoint:
            watermarks.decode(checkpoint)
            watermarks.restart()
        self._inputs[partition] = _Input(watermarks)

    def revoke(self, partition: int) -> None:
        """Drop the partition with its uncommitted partials."""
        self._reduce()
        self._inputs.pop(partition, None)
        self._reduced = [table.filter(pc.not_equal(table["worker"], partition)) for table in self._reduced]

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - event time only
        """Buffer the tuples and rows of a batch, and update the watermarks."""
        input_ = self._inputs[batch.partition]
        single_tuples: list[tuple[Any, ...]] = []
        columns_names, record_names = self._tuples.columns_names, self._tuples.record_names
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                schema = require_schema(headers, *columns_names, *record_names, ROWS, WATERMARK)
                tuples = self._tuples.read(value) if schema in columns_names else []
                rows = self._rows.read(value, headers) if schema == ROWS else None
                single = [self._read_single_tuple(batch.keys[index], value)] if schema in record_names else []
                if len(headers) > 1:  # the schema alone reports nothing
                    update_watermarks(input_.watermarks, headers)
                if single:
                    single_tuples += single
                elif rows is None:
                    self._buffer(batch.partition, input_, tuples, len(value or b""))
                else:
                    self._buffer_rows(batch.partition, input_, rows, len(value or b""))
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
        read_time = newest_read_time(batch.headers)
        if read_time is not None:
            input_.read_time = max(read_time, input_.read_time or 0)
        if single_tuples:
            tuples = self._tuples.from_rows(single_tuples)
            self._buffer(batch.partition, input_, [tuples], tuples.nbytes)

    @property
    def wants_commit(self) -> bool:
        """Whether the step holds more partials than one commit should write."""
        rows: int = sum(table.num_rows for table in self._reduced)
        size: int = sum(table.nbytes for table in self._reduced)
        return rows > HELD_ROWS or size > HELD_BYTES

    def _read_single_tuple(self, key: bytes | None, value: bytes | None) -> tuple[Any, ...]:
        """Return key, values and time of a record with one tuple (`worker_input.encoding: record`)."""
        try:
            record = self._json_decoder.decode(value or b"")
            return (key or b"").decode(), *msgspec.structs.astuple(record)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecordError(f"not a {self._tuples.record_name}") from error

    def _buffer(self, partition: int, input_: _Input, batches: Sequence[pa.RecordBatch], record_bytes: int) -> None:
        input_.tuples += batches
        tuples = sum(batch.num_rows for batch in batches)
        self._count_input(partition, tuples, tuples, record_bytes)

    def _buffer_rows(self, partition: int, input_: _Input, rows: pa.Table, record_bytes: int) -> None:
        input_.rows.append(rows)
        tuples = int(rows[LOAD_COLUMN.name].to_numpy().sum())
        self._count_input(partition, tuples, rows.num_rows, record_bytes)

    def _count_input(self, partition: int, tuples: int, rows: int, record_bytes: int) -> None:
        """Count what was added to the buffer of a partition, and reduce the buffers if they are full."""
        self._buffered_rows += rows
        self._buffered_bytes += record_bytes
        self.tuples += tuples
        self._tuples_in[partition] += tuples
        self._rows_in[partition] += rows
        if self._buffered_rows > BUFFER_ROWS or self._buffered_bytes > BUFFER_BYTES:
            self._reduce()

    def _reduce(self) -> None:
        """Reduce the buffered tuples and rows to partials."""
        # Those of all partitions at once: with many workers, each has few tuples per commit.
        tuples = {partition: input_.tuples for partition, input_ in self._inputs.items() if input_.tuples}
        rows = {partition: input_.rows for partition, input_ in self._inputs.items() if input_.rows}
        if tuples:
            self._reduced.append(to_worker_partials(tuples, self._pane_ms, self._columns))
        if rows:
            self._reduced.append(merge_rows(rows, self._columns))
        for input_ in self._inputs.values():
            input_.tuples, input_.rows = [], []
        self._buffered_rows = self._buffered_bytes = 0

    def flush(self, now: int) -> Iterable[OutputRecord]:  # noqa: ARG002 - event time only
        """Emit the partials since the last commit, then the watermarks that changed. Drop the partials."""
        yield from self._partial_records()
        changed = {}
        for partition, input_ in self._inputs.items():
            state = input_.watermarks.state()
            if state not in (NOTHING_REPORTED, input_.last_forwarded):
                changed[partition] = input_.last_forwarded = state
        if changed:
            yield from watermark_records("partials", range(self._aggregator_partitions), changed)

    def _partial_records(self) -> Iterator[OutputRecord]:
        self._reduce()
        tables, self._reduced = self._reduced, []
        if not tables:
            return
        partials = self._merged(tables)
        self._count_output(partials)
        targets = partition_of_keys(partials["key"], self._aggregator_partitions)
        headers = [schema_header(PARTIALS), *read_time_header(self._take_read_time())]
        for target in range(self._aggregator_partitions):
            rows = np.flatnonzero(targets == target)
            if len(rows):
                for part in split_by_size(partials.take(pa.array(rows)).combine_chunks()):
                    yield OutputRecord("partials", write_partials(part, self._write), partition=target, headers=headers)

    def _take_read_time(self) -> int | None:
        """Return the newest read time since the last commit, and forget all of them."""
        read_times = [input_.read_time for input_ in self._inputs.values() if input_.read_time is not None]
        for input_ in self._inputs.values():
            input_.read_time = None
        return max(read_times, default=None)

    def _merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return one partial per pane, worker and key. It has ROWS_COLUMN if one of the tables does."""
        if len(tables) == 1:
            return tables[0]
        has_rows = any(ROWS_COLUMN.name in table.column_names for table in tables)
        columns = (*self._columns, ROWS_COLUMN) if has_rows else self._columns
        by = ("pane", "key", "worker")
        names = [*by, *(column.name for column in columns)]
        return merge_partials([with_rows(table, columns).select(names) for table in tables], by, columns)

    def _count_output(self, partials: pa.Table) -> None:
        """Update the metrics for partials that are about to be emitted."""
        workers, panes = partials["worker"].to_numpy(), partials["pane"].to_numpy()
        for partition in np.unique(workers).tolist():
            own, input_ = panes[workers == partition], self._inputs[partition]
            input_.keys, newest = len(own), int(own.max())
            input_.newest_pane = newest if input_.newest_pane is None else max(newest, input_.newest_pane)
            self._partials_out[partition] += len(own)

    def max_event_time(self, partition: int) -> int | None:
        """Return the start in ms of the newest pane that was emitted."""
        return self._inputs[partition].newest_pane

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the load of each worker partition."""
        for partition, tuples in self._tuples_in.items():
            yield Sample("skewless_worker_tuples_total", (str(partition),), tuples)
        for partition, rows in self._rows_in.items():
            yield Sample("skewless_worker_rows_total", (str(partition),), rows)
        for partition, rows in self._partials_out.items():
            yield Sample("skewless_worker_partials_total", (str(partition),), rows)
        for partition, input_ in self._inputs.items():
            yield Sample("skewless_worker_keys", (str(partition),), input_.keys)

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: the watermark and the idle flag of each source partition."""
        return self._inputs[partition].watermarks.encode()

    def watermark(self, partition: int) -> int | None:
        """Return the watermark of the partition: the minimum over the source partitions."""
        return self._inputs[partition].watermarks.watermark()

    def idle(self, partition: int) -> bool:
        """Return whether all source partitions are idle."""
        return self._inputs[partition].watermarks.state().idle

    def finished(self, partition: int) -> bool:
        """Return whether the end of the partition was reported to the aggregators."""
        input_ = self._inputs[partition]
        state = input_.watermarks.state()
        return state.watermark == MAX_WATERMARK and state == input_.last_forwarded
