"""Partials by window since the last commit, for an output that adds them to what it has stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn
from skewless.algorithms.keyed_table import KeyedTable
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.windowing.assigner import WindowAssigner


class WindowDelta(NamedTuple):
    """Partials of some keys of a window."""

    window: int
    """Start of the window in ms."""
    keys: pa.Array
    data: dict[str, NDArray[Any]]
    """Partials by column, one element per key."""


class WindowDeltas:
    """Merges panes into the windows that contain them. Nothing is kept after `take`."""

    def __init__(self, columns: Sequence[PartialColumn], windows: WindowAssigner) -> None:
        self._columns = tuple(columns)
        self._windows = windows
        self._tables: dict[int, KeyedTable] = {}

    def __len__(self) -> int:
        """Return the number of rows: a key counts once per window."""
        return sum(map(len, self._tables.values()))

    def merge(self, partials: pa.Table) -> None:
        """Merge partials (`pane`, `key` and the columns)."""
        slice_of = self._windows.slices(partials["pane"].to_numpy())
        for slice_start in np.unique(slice_of).tolist():
            rows = pa.array(np.flatnonzero(slice_of == slice_start))
            merged = merge_partials([partials.take(rows)], ("key",), self._columns)
            data = {column.name: column.from_arrow(merged[column.name]) for column in self._columns}
            for start in self._windows.windows_of(slice_start):
                table = self._tables.setdefault(start, KeyedTable(self._columns))
                table.merge(table.rows_of(merged["key"]), data)

    def take(self, rows: int) -> Iterator[WindowDelta]:
        """Yield all partials by window, at most `rows` rows at a time, and remove them."""
        tables, self._tables = self._tables, {}
        for window, table in sorted(tables.items()):
            for first in range(0, len(table), rows):
                part = np.arange(first, min(first + rows, len(table)))
                yield WindowDelta(window, table.keys(part), table.data(part))
