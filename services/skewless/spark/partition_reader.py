"""Reads the records of one Spark task without using Spark: Arrow batches of records in, rows of partial results out.

A *split* is the part of a source partition that one task reads in offset order. Lateness depends on the largest event
time of all earlier splits, which a task does not know. A task therefore classifies its records as if its split were the
first one of the source partition. A record that is late by this rule is late in any case, and the largest event time of
the split is correct in any case.

The *head* of a split is its first records, the *tail* is the rest. The head becomes one row per tuple, so that the
driver can classify it again. The tail becomes partial results. A record of the tail can only be late after all if an
earlier split was ahead of the whole head. `resolve_lateness` finds these splits, and Spark reads them a second time
with the largest event time of the earlier splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn, as_arrow
from skewless.algorithms.partials import prepare_partials, to_partials
from skewless.algorithms.watermark import WatermarkGenerator
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules, RecordClassification, classify
from skewless.spark.record_columns import record_columns
from skewless.wire.tuples import TupleFormat

HEAD_RECORDS = 1_000
"""A batch belongs to the head if it begins within the first `HEAD_RECORDS` records of its split."""
BUFFER_TUPLES = 262_144
REDUCE_ROWS = 524_288
TUPLE, PARTIAL, SPLIT = "tuple", "partial", "split"
"""Kinds of rows. `deadline` is that of a tuple, null for other rows. `window` is the start of its window, or a list of
them if windows overlap. `key` of a split is its `SplitStatistics` as JSON."""

SplitId = tuple[int | str, int, int]
"""Source partition, block (of a file; 0 in Kafka) and first offset. The last two order the splits of a partition."""


class SplitStatistics(msgspec.Struct):
    """Counts and event times of a split, for `resolve_lateness` and for the report."""

    records: int = 0
    tuples: int = 0
    """Tuples that are neither late nor invalid, judged by this split alone."""
    late: int = 0
    filtered: int = 0
    """Records that do not meet the conditions of the pipeline."""
    rounded: int = 0
    """Values that have more decimals than the pipeline keeps."""
    invalid: dict[str, int] = {}
    """Invalid records by reason."""
    max_time: int | None = None
    tail_deadline: int | None = None
    """Earliest deadline of the tuples in the tail that are not late, judged by this split alone."""


@dataclass(frozen=True, slots=True)
class PartitionReadPlan:
    """Parameters of reading records as partial results. Spark sends the plan to the tasks."""

    splitter: ParsingSettings
    rules: EventTimeRules
    columns: tuple[PartialColumn, ...]
    windows: WindowAssigner
    pane_ms: int
    """Span of event time that divides all slices of windows."""
    now: int
    """Wall-clock time in ms. Event times more than `max_ahead_ms` after it are invalid."""
    earlier_max_times: Mapping[SplitId, int] | None = None
    """Largest event time of the earlier splits, by split. If set, only these splits are read, and their lateness is
    final."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read a task's records.

        Columns: see `kafka_source`, and optionally `refused`.
        """
        reader = None
        for batch in batches:
            reader = reader or _SplitReader(self, batch.schema.field("source_partition").type)
            for part in _cut_by_block(batch):
                yield from reader.add(part)
        if reader is not None:
            yield from reader.finish()


@dataclass(slots=True)
class _OpenSplit:
    """A split that is being read."""

    id: SplitId
    watermark_generator: WatermarkGenerator
    is_final: bool
    """Whether the largest event time of the earlier splits is known, so that lateness is final."""
    last_offset: int
    statistics: SplitStatistics = field(default_factory=SplitStatistics)
    tuples: list[pa.RecordBatch] = field(default_factory=list)
    buffered_tuples: int = 0
    reduced: list[pa.Table] = field(default_factory=list)
    reduced_rows: int = 0


class _SplitReader:
    """Reads the splits of one task, one after the other."""

    def __init__(self, plan: PartitionReadPlan, source_partition_type: pa.DataType) -> None:
        self._plan = plan
        self._parser = RecordParser(plan.splitter)
        self._tuples = TupleFormat(plan.splitter.value_types)
        self._split: _OpenSplit | None = None
        self._schema = row_schema(source_partition_type, plan)

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Read the next records, all of one source partition and block."""
        offsets = batch["offset"].to_numpy()
        source_partition, block = batch["source_partition"][0].as_py(), batch["block"][0].as_py()
        if self._split is None or self._split.id[:2] != (source_partition, block):
            yield from self.finish()
            self._split = self._open((source_partition, block, int(offsets[0])))
        split = self._split
        if offsets[0] < split.last_offset or np.any(np.diff(offsets) < 0):
            raise ValueError(
                f"records of source partition {source_partition} are not in the order of their offsets: "
                "sort them by block and offset"
            )
        split.last_offset = int(offsets[-1])
        if self._is_selected(split):
            yield from self._read(split, batch)

    def _open(self, split_id: SplitId) -> _OpenSplit:
        earlier_max_time = (self._plan.earlier_max_times or {}).get(split_id)
        watermark_generator = WatermarkGenerator(self._plan.rules.lateness_ms, earlier_max_time)
        return _OpenSplit(split_id, watermark_generator, earlier_max_time is not None, last_offset=split_id[2])

    def _is_selected(self, split: _OpenSplit) -> bool:
        return self._plan.earlier_max_times is None or split.is_final

    def _read(self, split: _OpenSplit, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        statistics = split.statistics
        is_head = not split.is_final and statistics.records < HEAD_RECORDS
        parsed = self._parser.parse(record_columns(batch, split.id[0]))
        classified = classify(
            parsed, self._plan.rules, split.watermark_generator, self._plan.now, _refused_records(batch)
        )
        keys, values, times = classified.tuples()
        _add_counts(statistics, classified, len(times))
        statistics.max_time = split.watermark_generator.max_time
        if is_head:
            yield from self._single_tuples(split, keys, values, times)
            return
        if classified.accepted.any():
            earliest = parsed.times[classified.accepted].min(keepdims=True)
            deadline = int(self._plan.rules.deadlines(earliest)[0])
            previous = statistics.tail_deadline
            statistics.tail_deadline = deadline if previous is None else min(deadline, previous)
        yield from self._buffer(split, keys, values, times)

    def _single_tuples(
        self, split: _OpenSplit, keys: pa.StringArray, values: Mapping[str, pa.Array], times: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        if len(times):
            tuples = self._tuples.batch(keys.dictionary_encode(), values, times)
            rows, columns = np.arange(len(times)), self._plan.columns
            prepared = prepare_partials(tuples, rows, len(rows), columns)
            partials = [as_arrow(column, array) for column, array in zip(columns, prepared, strict=True)]
            deadlines = self._plan.rules.deadlines(times)
            yield self._rows(split, TUPLE, [deadlines, self._windows_of(times), keys, *partials])

    def _buffer(
        self, split: _OpenSplit, keys: pa.StringArray, values: Mapping[str, pa.Array], times: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        if not len(times):
            return
        split.tuples.append(self._tuples.batch(keys.dictionary_encode(), values, times))
        split.buffered_tuples += len(times)
        if split.buffered_tuples > BUFFER_TUPLES:
            self._reduce(split)
        if split.reduced_rows > REDUCE_ROWS:
            yield from self._partials(split)

    def _reduce(self, split: _OpenSplit) -> None:
        reduced = to_partials(split.tuples, self._plan.pane_ms, self._plan.columns)
        slices = pa.array(self._plan.windows.slices(reduced["pane"].to_numpy()))
        reduced = reduced.set_column(reduced.schema.get_field_index("pane"), "pane", slices)
        split.tuples, split.buffered_tuples = [], 0
        split.reduced.append(reduced)
        split.reduced_rows += reduced.num_rows

    def _partials(self, split: _OpenSplit) -> Iterator[pa.RecordBatch]:
        merged = self._plan.windows.merge(split.reduced, self._plan.columns)
        split.reduced, split.reduced_rows = [], 0
        for part in merged.combine_chunks().to_batches(max_chunksize=50_000):
            slices, *columns = part.columns
            no_deadlines = pa.nulls(part.num_rows, pa.int64())
            yield self._rows(split, PARTIAL, [no_deadlines, self._windows_of(slices.to_numpy()), *columns])

    def _windows_of(self, times: NDArray[np.int64]) -> pa.Array:
        """Return for each time the start of its window, or the starts of its windows if windows overlap."""
        counts, starts = self._plan.windows.assign(times)
        if self._plan.windows.overlap == 1:
            return pa.array(starts)
        offsets = np.append(0, np.cumsum(counts))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(starts))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining partial results and the statistics of the current split, and close it."""
        split, self._split = self._split, None
        if split is None or not self._is_selected(split):
            return
        if split.tuples:
            self._reduce(split)
        if split.reduced:
            yield from self._partials(split)
        no_values = [pa.nulls(1, column.type) for column in self._plan.columns]
        statistics = pa.array([msgspec.json.encode(split.statistics).decode()])
        no_windows = pa.nulls(1, self._schema.field("window").type)
        yield self._rows(split, SPLIT, [pa.nulls(1, pa.int64()), no_windows, statistics, *no_values])

    def _rows(self, split: _OpenSplit, kind: str, columns: Sequence[pa.Array | NDArray[np.int64]]) -> pa.RecordBatch:
        size = len(columns[0])
        id_columns = [
            pa.repeat(pa.scalar(value, id_field.type), size)
            for value, id_field in zip(split.id, self._schema, strict=False)
        ]
        return pa.record_batch([*id_columns, pa.repeat(kind, size), *columns], schema=self._schema)


def row_schema(source_partition_type: pa.DataType, plan: PartitionReadPlan) -> pa.Schema:
    """Return the schema of the rows that a `PartitionReadPlan` yields."""
    partials = [(column.name, column.type) for column in plan.columns]
    split_id = [("source_partition", source_partition_type), ("block", pa.int64()), ("first_offset", pa.int64())]
    window = pa.int64() if plan.windows.overlap == 1 else pa.list_(pa.int64())
    times = [("kind", pa.string()), ("deadline", pa.int64()), ("window", window)]
    return pa.schema([*split_id, *times, ("key", pa.string()), *partials])


def _refused_records(batch: pa.RecordBatch) -> dict[int, str]:
    """Return the reasons of the records that the live run has refused, by index; empty without that column."""
    if "refused" not in batch.schema.names:
        return {}
    rows = pc.indices_nonzero(batch["refused"].is_valid())
    return dict(zip(rows.to_pylist(), batch["refused"].take(rows).to_pylist(), strict=True))


def _add_counts(statistics: SplitStatistics, classified: RecordClassification, tuples: int) -> None:
    statistics.records += len(classified.valid)
    statistics.tuples += tuples
    statistics.late += classified.late_tuples
    statistics.filtered += classified.filtered
    statistics.rounded += classified.parsed.rounded
    if classified.invalid:
        statistics.invalid = dict(Counter(statistics.invalid) + Counter(classified.invalid.values()))


def _cut_by_block(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where the source partition or the block changes."""
    source_partitions = batch["source_partition"].dictionary_encode().indices.to_numpy()
    blocks = batch["block"].to_numpy()
    cuts = np.flatnonzero((np.diff(source_partitions) != 0) | (np.diff(blocks) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), batch.num_rows], strict=True):
        if end > start:
            yield batch.slice(start, end - start)


def resolve_lateness(
    splits: Mapping[SplitId, SplitStatistics], lateness_ms: int
) -> tuple[dict[SplitId, int], dict[SplitId, int]]:
    """Return the watermarks at the beginning of the splits, and the splits to read a second time.

    The first result maps each split to the watermark below which its head is late; the first split of a source
    partition is missing there. The second result maps each split whose tail was classified wrongly to the largest
    event time of the earlier splits.
    """
    watermarks: dict[SplitId, int] = {}
    to_reread: dict[SplitId, int] = {}
    max_times: dict[int | str, int] = {}
    for split_id in sorted(splits, key=lambda split_id: split_id[1:]):
        source_partition = split_id[0]
        statistics, earlier_max_time = splits[split_id], max_times.get(source_partition)
        if earlier_max_time is not None:
            watermarks[split_id] = earlier_max_time - lateness_ms
            if statistics.tail_deadline is not None and statistics.tail_deadline < watermarks[split_id]:
                to_reread[split_id] = earlier_max_time
        times = [time for time in (earlier_max_time, statistics.max_time) if time is not None]
        if times:
            max_times[source_partition] = max(times)
    return watermarks, to_reread
