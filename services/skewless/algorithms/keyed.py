"""Merged partial columns by key: a table that grows row by row, with whole columns merged into it at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import PartialColumn
from skewless.algorithms.partials import MERGES

FIRST_ROWS = 64


class KeyedTable:
    """One row per key; every column int64, merged as its PartialColumn says."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._columns = tuple(columns)
        self._row_of: dict[str, int] = {}
        self._data = {column.name: self._blank(column, FIRST_ROWS) for column in self._columns}

    @staticmethod
    def _blank(column: PartialColumn, rows: int) -> NDArray[np.int64]:
        return np.full(rows, MERGES[column.merge][1], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._row_of)

    def holds(self, keys: Sequence[str]) -> NDArray[np.bool_]:
        """Tell of each key whether it has a row."""
        return np.fromiter((key in self._row_of for key in keys), dtype=np.bool_, count=len(keys))

    def merge(self, keys: Sequence[str], data: pa.Table) -> NDArray[np.int64]:
        """Merge rows of `data` by their keys, which may repeat; the row of each is returned."""
        row_of = self._row_of
        # A dictionary is the one thing here that knows strings: a look-up per partial, and there are few per tuple.
        rows = np.fromiter((row_of.setdefault(key, len(row_of)) for key in keys), dtype=np.int64, count=len(keys))
        self._reserve(len(row_of))
        for column in self._columns:
            MERGES[column.merge][0].at(self._data[column.name], rows, data[column.name].to_numpy())
        return rows

    def _reserve(self, rows: int) -> None:
        for column in self._columns:
            held = self._data[column.name]
            if rows > len(held):
                room = self._blank(column, max(rows, 2 * len(held)))
                room[: len(held)] = held
                self._data[column.name] = room

    def keys(self) -> list[str]:
        """All keys, by row."""
        return list(self._row_of)

    def data(self, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, NDArray[np.int64]]:
        """Columns of some rows, or of all."""
        used = len(self._row_of)
        return {name: values[:used][rows] for name, values in self._data.items()}

    def table(self) -> pa.Table:
        """All rows as an Arrow table: `key` and the columns."""
        return pa.table({"key": pa.array(self.keys(), pa.string()), **self.data()})
