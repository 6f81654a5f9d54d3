"""Reduces tuples to partial results, and merges partial results. Exact for any order and any split into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import ROWS_COLUMN, BinaryColumn, PartialColumn, Tuples, as_arrow
from skewless.algorithms.aggregates.partial_column import in_present_groups


def to_partials(batches: Sequence[pa.RecordBatch], pane_ms: int, columns: Sequence[PartialColumn]) -> pa.Table:
    """Return one row per (pane, key), by pane: `pane` (its start, int64 ms), `key` (utf8), the partial columns.

    A batch has the columns `key` (dictionary<int32, utf8>; dictionaries may differ), `time` (int64), and one for each
    value.
    """
    return to_worker_partials({0: batches}, pane_ms, columns).drop_columns("worker")


def to_worker_partials(
    batches_by_worker: Mapping[int, Sequence[pa.RecordBatch]], pane_ms: int, columns: Sequence[PartialColumn]
) -> pa.Table:
    """Return one row per (pane, worker, key), as `to_partials` does, with the column `worker` (int32)."""
    non_empty = [
        (worker, batch) for worker, batches in batches_by_worker.items() for batch in batches if batch.num_rows
    ]
    if not non_empty:
        none = np.empty(0, dtype=np.int64)
        return _table(none, pa.array([], pa.string()), [column.unset(0) for column in columns], columns, none)
    table = pa.Table.from_batches([batch for _, batch in non_empty]).unify_dictionaries()
    keys: pa.DictionaryArray = table["key"].combine_chunks()
    panes, pane_of = _distinct(table["time"].to_numpy() // pane_ms)
    workers, worker_of_batch = np.unique([worker for worker, _ in non_empty], return_inverse=True)
    worker_of = np.repeat(worker_of_batch, [batch.num_rows for _, batch in non_empty])
    # One number per (pane, worker, key) makes each group an index into plain arrays. This is faster than Arrow's
    # group_by over these columns: about twice as fast for a single batch.
    groups, group_of = _distinct((pane_of * len(workers) + worker_of) * len(keys.dictionary) + keys.indices.to_numpy())
    place_of_group, key_of_group = np.divmod(groups, len(keys.dictionary))
    pane_of_group, worker_of_group = np.divmod(place_of_group, len(workers))
    partials = prepare_partials(table, group_of, len(groups), columns)
    keys_of_groups = keys.dictionary.take(pa.array(key_of_group))
    return _table(panes[pane_of_group] * pane_ms, keys_of_groups, partials, columns, workers[worker_of_group])


def prepare_partials(
    tuples: pa.Table | pa.RecordBatch, group_of: NDArray[np.int64], groups: int, columns: Sequence[PartialColumn]
) -> list[NDArray[Any]]:
    """Return the partials of each column for groups of tuples, which have the columns `key`, `time` and the values."""
    return [_prepare(tuples, group_of, groups, column) for column in columns]


def _prepare(
    tuples: pa.Table | pa.RecordBatch, group_of: NDArray[np.int64], groups: int, column: PartialColumn
) -> NDArray[Any]:
    if column.optional:
        rows = np.flatnonzero(tuples[column.value].is_valid())
        tuples = tuples.take(pa.array(rows))
        own = _tuples(tuples, column)
        return in_present_groups(column, groups, group_of[rows], lambda dense, count: column.prepare(own, dense, count))
    return column.prepare(_tuples(tuples, column), group_of, groups)


def _tuples(tuples: pa.Table | pa.RecordBatch, column: PartialColumn) -> Tuples:
    values: Any = None
    if column.value is not None:
        values = _combined(tuples[column.value])
        values = values if pa.types.is_dictionary(values.type) else values.to_numpy()
    return Tuples(_combined(tuples["key"]), values, tuples["time"].to_numpy())


def _combined(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def merge_partials(tables: Sequence[pa.Table], by: Sequence[str], columns: Sequence[PartialColumn]) -> pa.Table:
    """Merge partials to one row per distinct combination of the columns `by`. The order of the rows is undefined.

    There must be at least one table; it may be empty. The result has the columns `by` and `columns` only.
    """
    grouped = pa.concat_tables(tables).unify_dictionaries().group_by(list(by), use_threads=False)
    merged = grouped.aggregate([(column.name, _arrow_function(column)) for column in columns])
    merged = merged.rename_columns([*by, *(column.name for column in columns)])
    for column in columns:
        if isinstance(column, BinaryColumn):
            partials = column.merge_lists(merged[column.name].combine_chunks())
            index = merged.schema.get_field_index(column.name)
            merged = merged.set_column(index, column.name, as_arrow(column, partials))
    return merged


def merge_rows(rows_by_worker: Mapping[int, Sequence[pa.Table]], columns: Sequence[PartialColumn]) -> pa.Table:
    """Merge rows to one per pane, worker and key, with ROWS_COLUMN: the number of rows of each.

    Rows are partials whose `key` is a dictionary. The result is like that of `to_worker_partials`, in an undefined
    order.
    """
    rows = pa.concat_tables(table for tables in rows_by_worker.values() for table in tables)
    counts = [sum(table.num_rows for table in tables) for tables in rows_by_worker.values()]
    workers = np.repeat(np.array(list(rows_by_worker), dtype=np.int32), counts)
    rows = rows.append_column(ROWS_COLUMN.name, pa.array(np.ones(rows.num_rows, dtype=np.int64)))
    rows = rows.append_column("worker", pa.array(workers))
    merged = merge_partials([rows], ("pane", "key", "worker"), (*columns, ROWS_COLUMN))
    return merged.set_column(1, "key", merged["key"].cast(pa.string()))


def _arrow_function(column: PartialColumn) -> str:
    """Return the function of Arrow that merges a column, or that collects the values which the column merges itself."""
    return "list" if isinstance(column, BinaryColumn) else column.merge


def _distinct(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values in ascending order, and the index of each value among them."""
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest >= 8 * len(values):
        return np.unique(values, return_inverse=True)
    # Dense values are counted instead of sorted, which takes a fraction of the time. Memory stays bounded.
    offsets = values - lowest
    distinct = np.flatnonzero(np.bincount(offsets))
    index = np.empty(highest - lowest + 1, dtype=np.int64)
    index[distinct] = np.arange(len(distinct))
    return distinct + lowest, index[offsets]


def _table(
    panes: NDArray[np.int64],
    keys: pa.Array,
    partials: Sequence[NDArray[Any]],
    columns: Sequence[PartialColumn],
    workers: NDArray[np.int64],
) -> pa.Table:
    arrays = {column.name: as_arrow(column, values) for column, values in zip(columns, partials, strict=True)}
    return pa.table({"pane": panes, "key": keys, **arrays, "worker": workers.astype(np.int32)})


def newest_pane(partials: pa.Table, previous: int | None) -> int | None:
    """Return the start (ms) of the newest pane: the newest of these partials, or `previous` if that is newer."""
    if not partials.num_rows:
        return previous
    newest = int(partials["pane"].to_numpy().max())
    return newest if previous is None else max(newest, previous)
