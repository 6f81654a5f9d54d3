"""Partial results as Arrow tables: tuples into partials, partials into fewer partials. Exact, in any order and cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import PartialColumn

_INT64 = np.iinfo(np.int64)
MERGES: Mapping[str, tuple[np.ufunc, int]] = {
    "sum": (np.add, 0),
    "min": (np.minimum, _INT64.max),
    "max": (np.maximum, _INT64.min),
}
"""How each kind of column merges, and the value that changes nothing."""


def to_partials(batches: Sequence[pa.RecordBatch], pane_ms: int, columns: Sequence[PartialColumn]) -> pa.Table:
    """Reduce tuples to one row per (pane, key): `pane` (its start, int64 ms), `key` (utf8), the partial columns.

    A batch has `key` (dictionary<int32, utf8>, each batch with its own), `value` and `time` (int64). Rows come by pane.
    """
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        none = np.empty(0, dtype=np.int64)
        return _table(none, pa.array([], pa.string()), [none] * len(columns), columns)
    tuples = pa.Table.from_batches(filled).unify_dictionaries()
    keys = tuples["key"].combine_chunks()
    panes, pane_of = _distinct(tuples["time"].to_numpy() // pane_ms)
    # One number per (pane, key), so that a group is an index and its partials are slots of plain arrays: faster than
    # Arrow's group_by over both columns, most of all (about twice) for a single batch.
    groups, group_of = _distinct(pane_of * len(keys.dictionary) + keys.indices.to_numpy())
    pane_of_group, key_of_group = np.divmod(groups, len(keys.dictionary))
    values = tuples["value"].to_numpy()
    partials = [_reduce(column, group_of, values, len(groups)) for column in columns]
    return _table(panes[pane_of_group] * pane_ms, keys.dictionary.take(pa.array(key_of_group)), partials, columns)


def merge_partials(tables: Sequence[pa.Table], by: Sequence[str], columns: Sequence[PartialColumn]) -> pa.Table:
    """Merge partials to one row per distinct combination of the columns `by`. Rows come in any order.

    There is at least one table, though it may be empty; columns other than `by` and `columns` are left out.
    """
    grouped = pa.concat_tables(tables).unify_dictionaries().group_by(list(by), use_threads=False)
    merged = grouped.aggregate([(column.name, column.merge) for column in columns])
    return merged.rename_columns([*by, *(column.name for column in columns)])


def _distinct(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the distinct values, ascending, and the index of each value among them."""
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest >= 8 * len(values):
        return np.unique(values, return_inverse=True)
    # Values as dense as this are counted instead of sorted: a fraction of the time, in bounded memory.
    offsets = values - lowest
    distinct = np.flatnonzero(np.bincount(offsets))
    index = np.empty(highest - lowest + 1, dtype=np.int64)
    index[distinct] = np.arange(len(distinct))
    return distinct + lowest, index[offsets]


def _reduce(
    column: PartialColumn, group_of: NDArray[np.int64], values: NDArray[np.int64], groups: int
) -> NDArray[np.int64]:
    merge, neutral = MERGES[column.merge]
    partials = np.full(groups, neutral, dtype=np.int64)
    merge.at(partials, group_of, values if column.source == "value" else 1)
    return partials


def _table(
    panes: NDArray[np.int64], keys: pa.Array, partials: Sequence[NDArray[np.int64]], columns: Sequence[PartialColumn]
) -> pa.Table:
    names = [column.name for column in columns]
    return pa.table({"pane": panes, "key": keys, **dict(zip(names, partials, strict=True))})


def newest_pane(partials: pa.Table, before: int | None) -> int | None:
    """Start (ms) of the newest pane, of these partials or of those before."""
    if not partials.num_rows:
        return before
    newest = int(partials["pane"].to_numpy().max())
    return newest if before is None else max(newest, before)
