"""Statistics of the tuples of runs by key and worker, computed by an executor for its keys. For `mapInArrow`.

One executor has all cells of a key (see `shuffle`), so it can count the key's replicas. Only sums leave the executor,
except for the cells and keys that are written as Parquet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.spark.shuffle import collect
from skewless.spark.topic_rows import merged_cells

SPANS = ("tick", "window", "run")
"""Spans of event time over which tuples are summed up. A whole run is one span, which starts at 0."""
CELLS = pa.schema(
    {
        "run": pa.string(),
        "grouping": pa.string(),
        "workers": pa.int32(),
        "bucket": pa.int64(),
        "tick": pa.int64(),
        "window": pa.int64(),
        "key": pa.string(),
        "worker": pa.int32(),
        "tuples": pa.int64(),
        "rows": pa.int64(),
        "first_at": pa.int64(),
        "last_at": pa.int64(),
    }
)
KEYS = pa.schema(
    {
        "run": pa.string(),
        "grouping": pa.string(),
        "workers": pa.int32(),
        "key": pa.string(),
        "tuples": pa.int64(),
        "held_by": pa.int64(),
    }
)
SUMS = pa.schema(
    {
        "kind": pa.string(),
        "span": pa.string(),
        "run": pa.int32(),
        "segment": pa.int32(),
        "span_start": pa.int64(),
        "worker": pa.int32(),
        "key_tuples": pa.int64(),
        "tuples": pa.int64(),
        "rows": pa.int64(),
        "first_at": pa.int64(),
        "last_at": pa.int64(),
        "keys": pa.int64(),
        "pairs": pa.int64(),
        "max_workers": pa.int64(),
        "key": pa.string(),
        "held_by": pa.int64(),
    }
)
"""Rows of four kinds; the columns that a kind does not have are null. `run` and `segment` are indices.

- `load`: tuples and rows of a worker, and Kafka timestamps of the first and last record
- `replicas`: number of keys, of (key, worker) pairs, and of the workers of the key that has the most
- `size`: number of `keys` of a run that have `key_tuples` tuples each
- `hottest`: an executor's candidates for the hottest keys, with their tuples and number of workers (`held_by`)
"""


@dataclass(frozen=True, slots=True)
class Labels:
    """Name, spans and segments of a run. Spark sends them to the executors."""

    run: str
    tick_ms: int
    windows: WindowAssigner
    segments: Sequence[tuple[str, int]]
    """Grouping and number of workers; the first segment applies to ticks without a distribution record."""
    observed_ticks: Sequence[tuple[int, int]]
    """Start of each tick with a distribution record, ascending, and the index of its segment."""
    hottest: int
    """Number of hottest keys per span."""

    def segments_of(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the segment index of each tick."""
        if not self.observed_ticks:
            return np.zeros(len(ticks), dtype=np.int64)
        starts, segments = np.array(self.observed_ticks, dtype=np.int64).T
        indices = np.minimum(np.searchsorted(starts, ticks), len(starts) - 1)
        return np.where(starts[indices] == ticks, segments[indices], 0)


def cells(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[pa.RecordBatch]:
    """Yield the cells, one row for each (CELLS)."""
    for run, table in _labelled_cells(batches, labels):
        columns = [*_label_columns(labels[run], table), *(table[name] for name in ("bucket", "tick", "window", "key"))]
        columns += [
            table["worker"].cast(pa.int32()),
            *(table[name] for name in ("tuples", "rows", "first_at", "last_at")),
        ]
        yield from _batches(pa.table(columns, names=CELLS.names))


def keys(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[pa.RecordBatch]:
    """Yield the keys of each run, with their tuples and number of workers (KEYS)."""
    for run, table in _labelled_cells(batches, labels):
        by_key = _by_key(table, "run")
        columns = [*_label_columns(labels[run], by_key), by_key["key"], by_key["tuples"], by_key["held_by"]]
        yield from _batches(pa.table(columns, names=KEYS.names))


def sums(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[pa.RecordBatch]:
    """Yield the sums over the executor's keys (SUMS)."""
    for run, table in _labelled_cells(batches, labels):
        for span in SPANS:
            by_key = _by_key(table, span)
            tables = [("load", _loads(table, span)), ("replicas", _replicas(by_key, span))]
            if span == "run":
                tables.append(("size", _sizes(by_key)))
            tables.append(("hottest", _top_keys(by_key, span, labels[run].hottest)))
            for kind, rows in tables:
                yield from _batches(_with_all_columns(rows, kind, span, run))


def _labelled_cells(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the index of each run, and its merged cells with the starts of their spans and their segment."""
    for run, tables in collect(batches).items():
        label, table = labels[run], merged_cells(tables["cells"])
        buckets = table["bucket"].to_numpy()
        ticks = buckets // label.tick_ms * label.tick_ms
        added_columns = {
            "tick": ticks,
            "window": label.windows.slices(buckets),
            "run": np.zeros(len(buckets), dtype=np.int64),
            "segment": label.segments_of(ticks),
        }
        for name, column in added_columns.items():
            table = table.append_column(name, pa.array(column))
        yield run, table


def _grouped(table: pa.Table, by: Sequence[str], aggregations: dict[str, tuple[str, str]]) -> pa.Table:
    """Group and aggregate rows; `aggregations`: (column, function) by name of the result."""
    rows = table.group_by(list(by), use_threads=False).aggregate(list(aggregations.values()))
    return rows.rename_columns([*by, *aggregations])


def _loads(table: pa.Table, span: str) -> pa.Table:
    times = {"first_at": ("first_at", "min"), "last_at": ("last_at", "max")}
    sums = {"tuples": ("tuples", "sum"), "rows": ("rows", "sum")}
    return _grouped(table, ("segment", span, "worker"), {**sums, **times})


def _by_key(table: pa.Table, span: str) -> pa.Table:
    """Return tuples and number of distinct workers of each key in each span."""
    keys = table["key"].combine_chunks().dictionary_encode()
    indexed = table.append_column("key_index", keys.indices)
    pairs = _grouped(indexed, ("segment", span, "key_index", "worker"), {"tuples": ("tuples", "sum")})
    counts = {"tuples": ("tuples", "sum"), "held_by": ("worker", "count")}
    by_key = _grouped(pairs, ("segment", span, "key_index"), counts)
    return by_key.append_column("key", keys.dictionary.take(by_key["key_index"].combine_chunks()))


def _replicas(by_key: pa.Table, span: str) -> pa.Table:
    counts = {"keys": ("held_by", "count"), "pairs": ("held_by", "sum"), "max_workers": ("held_by", "max")}
    return _grouped(by_key, ("segment", span), counts)


def _sizes(by_key: pa.Table) -> pa.Table:
    """Return how many keys of a run have the same number of tuples."""
    sizes = _grouped(by_key, ("segment", "run", "tuples"), {"keys": ("held_by", "count")})
    return sizes.rename_columns(["segment", "run", "key_tuples", "keys"])


def _top_keys(by_key: pa.Table, span: str, limit: int) -> pa.Table:
    """Return the hottest keys of each span by tuples; ties are ordered by key."""
    order = [("segment", "ascending"), (span, "ascending"), ("tuples", "descending"), ("key", "ascending")]
    rows = by_key.sort_by(order)
    group_columns = rows["segment"].to_numpy(), rows[span].to_numpy()
    is_start = np.any([np.diff(column, prepend=column[0] - 1) for column in group_columns], axis=0)
    starts = np.flatnonzero(is_start)
    ranks = np.arange(rows.num_rows) - np.repeat(starts, np.diff([*starts, rows.num_rows]))
    return rows.filter(pa.array(ranks < limit))


def _with_all_columns(rows: pa.Table, kind: str, span: str, run: int) -> pa.Table:
    """Add kind, span and run to the rows, and null columns for the others of SUMS."""
    constants = {"kind": kind, "span": span, "run": run}
    columns: list[Any] = []
    for field in SUMS:
        name = span if field.name == "span_start" else field.name
        if field.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), rows.num_rows))
        elif name in rows.column_names:
            columns.append(rows[name].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=SUMS)


def _label_columns(label: Labels, table: pa.Table) -> list[pa.Array]:
    """Return name of the run, grouping and number of workers of each row."""
    segments = table["segment"].combine_chunks()
    groupings = pa.array([grouping for grouping, _ in label.segments])
    workers = pa.array([workers for _, workers in label.segments], pa.int32())
    return [pa.repeat(label.run, len(segments)), groupings.take(segments), workers.take(segments)]


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=50_000)
