"""Partial results as Arrow tables: tuples into partials, partials into fewer partials. Exact, in any order and cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from skewless.algorithms.aggregates.base import PartialColumn
from skewless.algorithms.windows import pane_starts


def to_partials(batches: Sequence[pa.RecordBatch], pane_ms: int, columns: Sequence[PartialColumn]) -> pa.Table:
    """Reduce tuples to one row per (pane, key): `pane` (its start, int64 ms), `key` (utf8), the partial columns.

    A batch has `key` (dictionary<int32, utf8>, each batch with its own), `value` and `time` (int64). Rows come in any
    order.
    """
    tuples = pa.Table.from_batches(batches)
    times = tuples["time"].to_numpy()
    ones = pa.array(np.ones(len(tuples), dtype=np.int64))
    sources = {"one": ones, "value": tuples["value"]}
    prepared = {column.name: sources[column.source] for column in columns}
    table = pa.table({"pane": pane_starts(times, pane_ms), "key": tuples["key"].cast(pa.string()), **prepared})
    return merge_partials([table], ["pane", "key"], columns)


def merge_partials(tables: Sequence[pa.Table], by: Sequence[str], columns: Sequence[PartialColumn]) -> pa.Table:
    """Merge partials to one row per distinct combination of the columns `by`. Rows come in any order."""
    grouped = pa.concat_tables(tables).group_by(list(by), use_threads=False)
    merged = grouped.aggregate([(column.name, column.merge) for column in columns])
    return merged.rename_columns([*by, *(column.name for column in columns)])
