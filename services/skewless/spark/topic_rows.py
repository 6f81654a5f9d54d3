"""Counts the tuples and rows of a pipeline's internal topics, as rows by key, worker and event time. For `mapInArrow`.

Each input row is one Kafka record. Output rows are summed up within a record. Watermark records, and records that the
topic's stage would reject, yield no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.errors import BadRecordError
from skewless.wire.changelog import decode_chunk_key
from skewless.wire.columns import read_table
from skewless.wire.partials import read_partials
from skewless.wire.rows import is_rows, keys_panes_and_counts
from skewless.wire.tuples import Int64, keys_and_times

CELLS = ("bucket", "key", "worker", "tuples", "rows", "first_at", "last_at")
"""Tuples and rows of a key at a worker in a bucket of event time (its start in ms), with the Kafka timestamps of the
first and last record. A tuple is a row, unless the splitter has aggregated it with others to one row."""
CHANGELOG_ROWS = ("window", "compacted", "key", "tuples", "timestamp_ms", "offset")
"""Rows of the aggregator's changelog: the growth of a key's count with one changelog record.

`compacted` is 1 if a compaction wrote the record, otherwise 0; `timestamp_ms` is the Kafka timestamp of the record.
"""
PARTIAL_ROWS = "window long, worker int, at long, rows long, tuples long"
"""Number of partial results of a worker in a window, and of their tuples, in a record with the Kafka timestamp `at`."""
WORKER_PROGRESS = "worker int, at long, arrived long, completed long"
"""Tuples that reached the queue of a worker, and tuples that it completed, in records with the Kafka timestamp `at`."""


class _TupleTime(msgspec.Struct):
    """The only field of a single tuple that is read here."""

    time: Int64


_tuple_decoder = msgspec.json.Decoder(_TupleTime)


def cells(batches: Iterator[pa.RecordBatch], bucket_ms: int) -> Iterator[pa.RecordBatch]:
    """Count the tuples and rows of records of `worker-input` or `tuples` (CELLS).

    Input columns: key, value, worker, timestamp_ms. Records of one tuple each have a key.
    """
    for batch in batches:
        yield from _cells_of_columns(batch, bucket_ms)
        yield from _cells_of_single_tuples(batch, bucket_ms)


def _cells_of_columns(batch: pa.RecordBatch, bucket_ms: int) -> Iterator[pa.RecordBatch]:
    rows = zip(*(batch[name].to_pylist() for name in ("key", "value", "worker", "timestamp_ms")), strict=True)
    for key, value, worker, timestamp_ms in rows:
        if key is None:
            for columns in _read_columns(value):
                yield _count(columns, bucket_ms, worker, timestamp_ms)


def _cells_of_single_tuples(batch: pa.RecordBatch, bucket_ms: int) -> Iterator[pa.RecordBatch]:
    """Count tuples of the encoding `record`: every record contains one tuple and is decoded separately."""
    with_key = batch.filter(batch["key"].is_valid())
    decoded = [_decode_tuple(value) for value in with_key["value"].to_pylist()]
    valid_rows = [row for row, record in enumerate(decoded) if record is not None]
    if not valid_rows:
        return
    valid = with_key.take(pa.array(valid_rows))
    times = np.array([record.time for record in decoded if record is not None], dtype=np.int64)
    ones = np.ones(len(valid_rows), dtype=np.int64)
    workers, timestamps = valid["worker"].to_numpy(), valid["timestamp_ms"].to_numpy()
    buckets, keys = times // bucket_ms * bucket_ms, valid["key"].cast(pa.string())
    yield _cell_batch(buckets, keys, workers, (ones, ones), timestamps)


def _decode_tuple(value: bytes | None) -> _TupleTime | None:
    try:
        return _tuple_decoder.decode(value or b"")
    except msgspec.DecodeError:
        return None


def _read_columns(value: bytes | None) -> Sequence[pa.RecordBatch]:
    """Return the columns of tuples or rows: the key, the time or pane, and for rows the number of tuples."""
    try:
        table = read_table(value)
        batches = keys_panes_and_counts(table) if is_rows(table) else keys_and_times(table)
    except BadRecordError:
        return ()
    return [batch for batch in batches if batch.num_rows]


def _count(columns: pa.RecordBatch, bucket_ms: int, worker: int, timestamp_ms: int) -> pa.RecordBatch:
    keys, times, *counts = columns.columns
    buckets = times.to_numpy() // bucket_ms
    # One integer per (bucket, key): the bucket relative to the first one, times the number of keys, plus the key index.
    first_bucket, key_count = int(buckets.min()), len(keys.dictionary)
    codes, cell_of, rows = np.unique(
        (buckets - first_bucket) * key_count + keys.indices.to_numpy(), return_inverse=True, return_counts=True
    )
    tuples = rows
    if counts:
        tuples = np.zeros(len(codes), dtype=np.int64)
        np.add.at(tuples, cell_of, counts[0].to_numpy())
    return _cell_batch(
        (codes // key_count + first_bucket) * bucket_ms,
        keys.dictionary.take(pa.array(codes % key_count)),
        np.full(len(codes), worker, dtype=np.int32),
        (tuples, rows),
        np.full(len(codes), timestamp_ms, dtype=np.int64),
    )


def _cell_batch(
    buckets: NDArray[np.int64],
    keys: pa.Array,
    workers: NDArray[np.int32],
    counts: tuple[NDArray[Any], NDArray[Any]],
    timestamps: NDArray[np.int64],
) -> pa.RecordBatch:
    tuples, rows = (count.astype(np.int64) for count in counts)
    columns = (buckets, keys, workers, tuples, rows, timestamps, timestamps)
    return pa.record_batch([pa.array(column) for column in columns], CELLS)


def merged_cells(cells: pa.Table) -> pa.Table:
    """Merge the rows of the same bucket, key and worker."""
    groups = cells.group_by(["bucket", "key", "worker"], use_threads=False)
    merged = groups.aggregate([("tuples", "sum"), ("rows", "sum"), ("first_at", "min"), ("last_at", "max")])
    return merged.rename_columns(CELLS)


def last_cells(cells: pa.Table) -> pa.Table:
    """Merge the rows of the same bucket and key over all workers; for use of the last timestamp."""
    groups = cells.group_by(["bucket", "key"], use_threads=False)
    sums = [("tuples", "sum"), ("rows", "sum")]
    merged = groups.aggregate([("worker", "min"), *sums, ("first_at", "min"), ("last_at", "max")])
    return merged.rename_columns(CELLS)


def arrivals(cells: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the progress of workers (WORKER_PROGRESS) that consists of unmerged cells of `worker-input`."""
    sums = pa.Table.from_batches([cells]).group_by(["worker", "first_at"], use_threads=False)
    counted = sums.aggregate([("tuples", "sum")])
    zeros = np.zeros(counted.num_rows, dtype=np.int64)
    return _progress(counted["worker"], counted["first_at"], counted["tuples_sum"], pa.array(zeros))


def completions(partials: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the progress of workers (WORKER_PROGRESS) that consists of partial results (PARTIAL_ROWS)."""
    zeros = np.zeros(partials.num_rows, dtype=np.int64)
    return _progress(partials["worker"], partials["at"], pa.array(zeros), partials["tuples"])


def _progress(workers: pa.Array, times: pa.Array, arrived: pa.Array, completed: pa.Array) -> list[pa.RecordBatch]:
    columns = {"worker": workers.cast(pa.int32()), "at": times, "arrived": arrived, "completed": completed}
    return pa.table(columns).to_batches()  # type: ignore[no-any-return]


def changelog_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read records of the aggregator's changelog (CHANGELOG_ROWS). Without LOAD_COLUMN a row counts as 1.

    Input columns: key, value, timestamp_ms, offset.
    """
    for batch in batches:
        rows = zip(*(batch[name].to_pylist() for name in ("key", "value", "timestamp_ms", "offset")), strict=True)
        for key, value, timestamp_ms, offset in rows:
            if key is not None and (table := _read_table(value)) is not None and table.num_rows:
                window, chunk = decode_chunk_key(key)
                yield _changelog_batch(table, window, int(chunk.compacted), timestamp_ms, offset)


def _read_table(value: bytes | None) -> pa.Table | None:
    try:
        return read_table(value) if value else None
    except BadRecordError:
        return None


def _changelog_batch(table: pa.Table, window: int, compacted: int, timestamp_ms: int, offset: int) -> pa.RecordBatch:
    size = table.num_rows
    name = LOAD_COLUMN.name
    counts = table[name].to_numpy() if name in table.column_names else np.ones(size, dtype=np.int64)
    windows, compactions, timestamps, offsets = (
        pa.array(np.full(size, value, dtype=np.int64)) for value in (window, compacted, timestamp_ms, offset)
    )
    keys = table["key"].combine_chunks()
    return pa.record_batch([windows, compactions, keys, pa.array(counts), timestamps, offsets], CHANGELOG_ROWS)


def unmerged(rows: pa.Table) -> pa.Table:
    """Return the rows as they are: rows of the changelog are not merged before the shuffle."""
    return rows


def partial_rows(batches: Iterator[pa.RecordBatch], windows: WindowAssigner) -> Iterator[pa.RecordBatch]:
    """Count the rows and tuples of records of `partials` (PARTIAL_ROWS). Input columns: value, timestamp_ms.

    `windows` must not overlap.
    """
    for batch in batches:
        for value, timestamp_ms in zip(batch["value"].to_pylist(), batch["timestamp_ms"].to_pylist(), strict=True):
            try:
                partials = read_partials(value, ("pane", "worker"), (LOAD_COLUMN,))
            except BadRecordError:
                continue
            starts = pa.array(windows.slices(partials["pane"].to_numpy()))
            groups = partials.append_column("start", starts).group_by(["start", "worker"], use_threads=False)
            sums = groups.aggregate([([], "count_all"), (LOAD_COLUMN.name, "sum")])
            times = pa.array(np.full(sums.num_rows, timestamp_ms, dtype=np.int64))
            columns = (sums["start"], sums["worker"], times, sums["count_all"], sums[f"{LOAD_COLUMN.name}_sum"])
            yield from pa.table(columns, ["window", "worker", "at", "rows", "tuples"]).to_batches()
