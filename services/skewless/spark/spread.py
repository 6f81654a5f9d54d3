"""How the tuples of runs were spread: what an executor makes of the cells of its keys. For `mapInArrow`.

All cells of a key are with one executor (see `parts`), so replicas are counted here; what comes out is summed up, but
for the cells and the keys themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.spark.columns import merged_cells
from skewless.spark.parts import gathered

SPANS = ("tick", "window", "run")
"""What tuples are summed up by; a whole run is one span, at 0."""
CELLS = (
    "run string, grouping string, workers int, bucket long, tick long, window long, key string, worker int, "
    "tuples long, first_at long, last_at long"
)
KEYS = "run string, grouping string, workers int, key string, tuples long, held_by long"
SUMS = (
    "kind string, span string, run int, segment int, at long, worker int, tuples long, first_at long, last_at long, "
    "keys long, pairs long, most long"
)
"""Kinds: `load` (of a worker), `replicas`, and `size`: how many keys of a run have as many tuples as `at` says."""
HOTTEST = "span string, run int, segment int, at long, key string, tuples long, held_by long"


@dataclass(frozen=True, slots=True)
class Labels:
    """What the cells of a run belong to. It travels to the executors."""

    run: str
    tick_ms: int
    window_ms: int
    segments: Sequence[tuple[str, int]]
    """Grouping and W; the first are those of ticks of which nothing was told."""
    told: Sequence[tuple[int, int]]
    """Ticks of which something was told, ascending, and the index of their segment."""
    hottest: int
    """How many of the hottest keys are wanted."""

    def segments_of(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the index of the segment of each tick."""
        if not self.told:
            return np.zeros(len(ticks), dtype=np.int64)
        known, segments = np.array(self.told, dtype=np.int64).T
        at = np.minimum(np.searchsorted(known, ticks), len(known) - 1)
        return np.where(known[at] == ticks, segments[at], 0)


def cells(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[pa.RecordBatch]:
    """Give the cells, one row for each (CELLS)."""
    for number, own in _cells(batches, labels):
        label, table = labels[number], own
        columns = [*_named(label, table), *(table[name] for name in ("bucket", "tick", "window", "key"))]
        columns += [table["worker"].cast(pa.int32()), *(table[name] for name in ("tuples", "first_at", "last_at"))]
        yield from _batches(pa.table(columns, names=_names(CELLS)))


def keys(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[pa.RecordBatch]:
    """Give the keys of each run, with tuples and number of workers (KEYS)."""
    for number, table in _cells(batches, labels):
        found = _by_key(table, "run")
        columns = [*_named(labels[number], found), found["key"], found["tuples"], found["held_by"]]
        yield from _batches(pa.table(columns, names=_names(KEYS)))


def sums(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[pa.RecordBatch]:
    """Give the sums of these keys (SUMS), and under kind `hottest` candidates for the hottest keys (HOTTEST)."""
    for number, table in _cells(batches, labels):
        for span in SPANS:
            by_key = _by_key(table, span)
            found = [("load", _loads(table, span)), ("replicas", _replicas(by_key, span))]
            found += [("size", _sizes(by_key))] if span == "run" else []
            found.append(("hottest", _top(by_key, span, labels[number].hottest)))
            for kind, rows in found:
                yield from _batches(_filled(rows, kind, span, number))


ROWS = SUMS + ", key string, held_by long"
"""What `sums` gives."""


def _cells(batches: Iterable[pa.RecordBatch], labels: Sequence[Labels]) -> Iterator[tuple[int, pa.Table]]:
    """Merge the cells of each run, and tell what they belong to."""
    for number, kinds in gathered(batches).items():
        label, table = labels[number], merged_cells(kinds["cells"])
        buckets = table["bucket"].to_numpy()
        ticks = buckets // label.tick_ms * label.tick_ms
        added = {
            "tick": ticks,
            "window": buckets // label.window_ms * label.window_ms,
            "run": np.zeros(len(buckets), dtype=np.int64),
            "segment": label.segments_of(ticks),
        }
        for name, column in added.items():
            table = table.append_column(name, pa.array(column))
        yield number, table


def _grouped(table: pa.Table, by: Sequence[str], sums: dict[str, tuple[str, str]]) -> pa.Table:
    """Sum up: new name to (column, how)."""
    rows = table.group_by(list(by), use_threads=False).aggregate(list(sums.values()))
    return rows.rename_columns([*by, *sums])


def _loads(table: pa.Table, span: str) -> pa.Table:
    times = {"first_at": ("first_at", "min"), "last_at": ("last_at", "max")}
    return _grouped(table, ("segment", span, "worker"), {"tuples": ("tuples", "sum"), **times})


def _by_key(table: pa.Table, span: str) -> pa.Table:
    """Tuples, and number of distinct workers, of each key in each span."""
    keys = table["key"].combine_chunks().dictionary_encode()
    numbered = table.append_column("number", keys.indices)
    pairs = _grouped(numbered, ("segment", span, "number", "worker"), {"tuples": ("tuples", "sum")})
    counts = {"tuples": ("tuples", "sum"), "held_by": ("worker", "count")}
    found = _grouped(pairs, ("segment", span, "number"), counts)
    return found.append_column("key", keys.dictionary.take(found["number"].combine_chunks()))


def _replicas(by_key: pa.Table, span: str) -> pa.Table:
    counts = {"keys": ("held_by", "count"), "pairs": ("held_by", "sum"), "most": ("held_by", "max")}
    return _grouped(by_key, ("segment", span), counts)


def _sizes(by_key: pa.Table) -> pa.Table:
    sizes = _grouped(by_key, ("segment", "tuples"), {"keys": ("held_by", "count")})
    return sizes.rename_columns(["segment", "run", "keys"])


def _top(by_key: pa.Table, span: str, most: int) -> pa.Table:
    """Pick the hottest keys of each span, by tuples; where these tie, by key."""
    order = [("segment", "ascending"), (span, "ascending"), ("tuples", "descending"), ("key", "ascending")]
    rows = by_key.sort_by(order)
    own = rows["segment"].to_numpy(), rows[span].to_numpy()
    begins = np.flatnonzero(np.any([np.diff(column, prepend=column[0] - 1) for column in own], axis=0))
    places = np.arange(rows.num_rows) - np.repeat(begins, np.diff([*begins, rows.num_rows]))
    return rows.filter(pa.array(places < most))


def _filled(rows: pa.Table, kind: str, span: str, number: int) -> pa.Table:
    """Give rows all columns of ROWS, null where they have none."""
    size, schema = rows.num_rows, _schema(ROWS)
    same = {"kind": kind, "span": span, "run": number}
    columns: list[Any] = []
    for field in schema:
        name = span if field.name == "at" else field.name
        if field.name in same:
            columns.append(pa.repeat(pa.scalar(same[field.name], field.type), size))
        elif name in rows.column_names:
            columns.append(rows[name].cast(field.type))
        else:
            columns.append(pa.nulls(size, field.type))
    return pa.table(columns, schema=schema)


def _named(label: Labels, table: pa.Table) -> list[pa.Array]:
    """Name run, grouping and W of each row."""
    segments = table["segment"].combine_chunks()
    groupings = pa.array([grouping for grouping, _ in label.segments])
    workers = pa.array([workers for _, workers in label.segments], pa.int32())
    return [pa.repeat(label.run, len(segments)), groupings.take(segments), workers.take(segments)]


_TYPES = {"string": pa.string(), "int": pa.int32(), "long": pa.int64()}


def _schema(text: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in (part.split(" ") for part in text.split(", "))])


def _names(text: str) -> list[str]:
    return _schema(text).names  # type: ignore[no-any-return]


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=50_000)
