"""What stands in a pipeline's internal topics, as rows: how many tuples, where and when. For `mapInArrow`.

One row in is one Kafka record; rows out are summed up within each record. Records that hold no rows (progress), or that
are not what the topic's stage would accept, give none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.changelog import window_of
from skewless.errors import BadRecordError
from skewless.public_records import PlainTuple
from skewless.records import read_partials, read_table, read_tuples

CELLS = ("bucket", "key", "worker", "tuples", "first_at", "last_at")
"""Tuples of a key in a span of event time (its start in ms) at a worker; Kafka timestamps of first and last record."""
CHUNKS = ("window", "number", "key", "tuples", "at", "offset")
"""Rows of the aggregator's changelog: by how much a key's count grew with a chunk, with the record's timestamp."""
PARTIAL_ROWS = "bucket long, rows long"
"""Partial results in a span of event time."""

_plain = msgspec.json.Decoder(PlainTuple)


def cells(batches: Iterator[pa.RecordBatch], bucket_ms: int) -> Iterator[pa.RecordBatch]:
    """Count tuples of `worker-input` or `tuples`; takes key, value, worker, at (records of a tuple have a key)."""
    for batch in batches:
        yield from _of_columns(batch, bucket_ms)
        yield from _of_single(batch, bucket_ms)


def _of_columns(batch: pa.RecordBatch, bucket_ms: int) -> Iterator[pa.RecordBatch]:
    rows = zip(*(batch[name].to_pylist() for name in ("key", "value", "worker", "at")), strict=True)
    for key, value, worker, at in rows:
        if key is None:
            for tuples in _tuples(value):
                yield _counted(tuples, bucket_ms, worker, at)


def _of_single(batch: pa.RecordBatch, bucket_ms: int) -> Iterator[pa.RecordBatch]:
    """Count records of one tuple each: per-record work, as the topic was asked to have it."""
    wanted = batch.filter(batch["key"].is_valid())
    read = [_single(value) for value in wanted["value"].to_pylist()]
    rows = [row for row, fact in enumerate(read) if fact is not None]
    if not rows:
        return
    taken = wanted.take(pa.array(rows))
    times = np.array([fact.time for fact in read if fact is not None], dtype=np.int64)
    ones = np.ones(len(rows), dtype=np.int64)
    workers, at = taken["worker"].to_numpy(), taken["at"].to_numpy()
    yield _cells(times // bucket_ms * bucket_ms, taken["key"].cast(pa.string()), workers, ones, at)


def _single(value: bytes | None) -> PlainTuple | None:
    try:
        return _plain.decode(value or b"")
    except msgspec.DecodeError:
        return None


def _tuples(value: bytes | None) -> Sequence[pa.RecordBatch]:
    try:
        return [batch for batch in read_tuples(value) if batch.num_rows]
    except BadRecordError:
        return ()


def _counted(tuples: pa.RecordBatch, bucket_ms: int, worker: int, at: int) -> pa.RecordBatch:
    keys = tuples["key"]
    buckets = tuples["time"].to_numpy() // bucket_ms
    first, size = int(buckets.min()), len(keys.dictionary)
    cell, counts = np.unique((buckets - first) * size + keys.indices.to_numpy(), return_counts=True)
    return _cells(
        (cell // size + first) * bucket_ms,
        keys.dictionary.take(pa.array(cell % size)),
        np.full(len(cell), worker, dtype=np.int32),
        counts,
        np.full(len(cell), at, dtype=np.int64),
    )


def _cells(
    buckets: NDArray[np.int64], keys: pa.Array, workers: NDArray[np.int32], counts: NDArray[Any], at: NDArray[np.int64]
) -> pa.RecordBatch:
    columns = (buckets, keys, workers, counts.astype(np.int64), at, at)
    return pa.record_batch([pa.array(column) for column in columns], CELLS)


def merged_cells(cells: pa.Table) -> pa.Table:
    """Make one row of those of the same span, key and worker."""
    by = cells.group_by(["bucket", "key", "worker"], use_threads=False)
    merged = by.aggregate([("tuples", "sum"), ("first_at", "min"), ("last_at", "max")])
    return merged.rename_columns(CELLS)


def last_cells(cells: pa.Table) -> pa.Table:
    """Make one row of those of the same span and key, whatever the worker; what matters is the last timestamp."""
    by = cells.group_by(["bucket", "key"], use_threads=False)
    merged = by.aggregate([("worker", "min"), ("tuples", "sum"), ("first_at", "min"), ("last_at", "max")])
    return merged.rename_columns(CELLS)


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the aggregator's changelog; takes key, value, at, offset. Without counts a row counts as 1."""
    for batch in batches:
        rows = zip(*(batch[name].to_pylist() for name in ("key", "value", "at", "offset")), strict=True)
        for key, value, at, offset in rows:
            if key is not None and (table := _table(value)) is not None and table.num_rows:
                yield _chunk(table, window_of(key), int(key.partition(b"/")[2]), at, offset)


def _table(value: bytes | None) -> pa.Table | None:
    try:
        return read_table(value) if value else None
    except BadRecordError:
        return None


def _chunk(table: pa.Table, window: int, number: int, at: int, offset: int) -> pa.RecordBatch:
    size = table.num_rows
    counts = table["count"].to_numpy() if "count" in table.column_names else np.ones(size, dtype=np.int64)
    same = [pa.array(np.full(size, value, dtype=np.int64)) for value in (window, number, at, offset)]
    keys = table["key"].combine_chunks()
    return pa.record_batch([*same[:2], keys, pa.array(counts), *same[2:]], CHUNKS)


def as_they_are(rows: pa.Table) -> pa.Table:
    """Merge nothing: rows of the changelog are one each."""
    return rows


def partial_rows(batches: Iterator[pa.RecordBatch], bucket_ms: int) -> Iterator[pa.RecordBatch]:
    """Count the rows of `partials` by span of event time; takes value."""
    for batch in batches:
        panes = [_panes(value) for value in batch["value"].to_pylist() if value]
        if panes:
            buckets, counts = np.unique(np.concatenate(panes) // bucket_ms * bucket_ms, return_counts=True)
            yield pa.record_batch({"bucket": pa.array(buckets), "rows": pa.array(counts.astype(np.int64))})


def _panes(value: bytes) -> NDArray[np.int64]:
    try:
        panes: NDArray[np.int64] = read_partials(value, ("pane",))["pane"].to_numpy()
    except BadRecordError:
        return np.zeros(0, dtype=np.int64)
    return panes
