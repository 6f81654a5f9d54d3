"""Merged partial columns by key: a table that grows row by row, with whole columns merged into it at once.

Keys are bytes in one buffer, found by an open-addressing hash table of row numbers, all in numpy arrays. A dictionary
of Python strings would take three times the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import PartialColumn
from skewless.algorithms.partials import MERGES
from skewless.errors import LimitError

FIRST_ROWS = 64
GROWTH = 1.5
"""A full array is replaced with one of this many times the size."""
SLOTS_PER_ROW = 2
"""At least this many slots per row: at most half of the slots are in use, so that searches stay short."""
HASHED_KEYS = 8_192
"""Keys that are Python strings at the same time, to be hashed."""
TEXT_BYTES = 2**31 - 1
"""The offsets of Arrow's strings end here."""
EMPTY = -1
"""Content of a slot without a row."""

Number = TypeVar("Number", bound=np.generic)


class Columns:
    """Columns of numbers that grow and merge row by row, as their PartialColumn says."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._columns = tuple(columns)
        self._data = {column.name: _neutral(column, FIRST_ROWS) for column in self._columns}

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, with their room for more rows."""
        return sum(values.nbytes for values in self._data.values())

    def make_room(self, used: int, rows: int) -> None:
        """Make room for so many rows, of which the first ones are used."""
        for column in self._columns:
            held = self._data[column.name]
            if rows > len(held):
                self._data[column.name] = _neutral(column, _size_for(rows, len(held)))
                self._data[column.name][:used] = held[:used]

    def merge(self, rows: NDArray[np.int64], data: Mapping[str, NDArray[np.int64]]) -> None:
        """Merge numbers into distinct rows."""
        for column in self._columns:
            held = self._data[column.name]
            held[rows] = MERGES[column.merge][0](held[rows], data[column.name])

    def data(self, rows: NDArray[np.int64] | slice) -> dict[str, NDArray[np.int64]]:
        """Return the columns of some rows."""
        return {name: values[rows] for name, values in self._data.items()}


class KeyedTable:
    """One row per key, with columns that merge."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._rows = 0
        self._columns = Columns(columns)
        self._hashes = np.empty(FIRST_ROWS, dtype=np.int64)
        self._text = np.empty(0, dtype=np.uint8)
        """The keys' UTF-8 bytes, one key after the other."""
        self._ends = np.zeros(FIRST_ROWS + 1, dtype=np.int32)
        """The end of each key in the text, after a 0: Arrow's offsets."""
        self._slots = np.full(_slots_for(FIRST_ROWS), EMPTY, dtype=np.int32)

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, with their room for more rows."""
        arrays: tuple[NDArray[Any], ...] = (self._hashes, self._text, self._ends, self._slots)
        return self._columns.nbytes + sum(array.nbytes for array in arrays)

    def rows_of(self, keys: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the row of each key, which must be distinct; keys that have none are added."""
        plain = keys.combine_chunks()
        hashes = hashes_of(plain)
        rows = self._find(plain, hashes)
        new = np.flatnonzero(rows == EMPTY)
        if len(new):
            self._make_room(len(new))
            rows[new] = np.arange(self._rows, self._rows + len(new))
            self._append(plain.take(pa.array(new, pa.int64())), hashes[new])
            self._enter(rows[new])
        return rows

    def merge(self, rows: NDArray[np.int64], data: Mapping[str, NDArray[np.int64]]) -> None:
        """Merge numbers into distinct rows."""
        self._columns.merge(rows, data)

    def keys(self, rows: NDArray[np.int64]) -> pa.Array:
        """Return the keys of some rows as an Arrow array."""
        return self._texts().take(pa.array(rows, pa.int64()))

    def data(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the columns of some rows."""
        return self._columns.data(rows)

    def table(self) -> pa.Table:
        """Return all rows as an Arrow table: `key` and the columns. It shares memory with this object."""
        return pa.table({"key": self._texts(), **self._columns.data(slice(self._rows))})

    def _find(self, keys: pa.Array, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each key its row, or EMPTY."""
        rows, slots = np.full(len(keys), EMPTY, dtype=np.int64), self._first_slots(hashes)
        left = np.arange(len(keys))
        while len(left):
            self._find_hashes(hashes, rows, slots, left)
            found = left[rows[left] != EMPTY]
            # Two keys may have the same hash: only equal bytes make them the same key.
            equal = np.asarray(pc.equal(self.keys(rows[found]), keys.take(pa.array(found, pa.int64()))))
            left = found[~equal]
            rows[left] = EMPTY
            slots[left] = self._next_slots(slots[left], hashes[left])
        return rows

    def _find_hashes(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int64], slots: NDArray[np.int64], left: NDArray[np.int64]
    ) -> None:
        """Find for the hashes at `left` the next row of this hash from `slots` on, and note both."""
        while len(left):
            at = self._slots[slots[left]]
            same = (self._hashes[at] == hashes[left]) & (at != EMPTY)
            rows[left[same]] = at[same]
            left = left[(at != EMPTY) & ~same]
            slots[left] = self._next_slots(slots[left], hashes[left])

    def _first_slots(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        return hashes & (len(self._slots) - 1)

    def _next_slots(self, slots: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        # Double hashing: steps of one form long runs of full slots. An odd step visits all slots.
        return (slots + (hashes >> 32 | 1)) & (len(self._slots) - 1)

    def _enter(self, rows: NDArray[np.int64]) -> None:
        """Put rows into the first empty slot for their hashes."""
        hashes = self._hashes[rows]
        slots = self._first_slots(hashes)
        while len(rows):
            free = self._slots[slots] == EMPTY
            self._slots[slots[free]] = rows[free]
            # Of rows that wanted the same slot, the one that was written last has it.
            left = self._slots[slots] != rows
            rows, hashes, slots = rows[left], hashes[left], self._next_slots(slots[left], hashes[left])

    def _append(self, keys: pa.Array, hashes: NDArray[np.int64]) -> None:
        text, ends = _text_and_ends(keys)
        first, start = self._rows, int(self._ends[self._rows])
        if start + len(text) > TEXT_BYTES:
            raise LimitError(
                f"the keys of one window have more than {TEXT_BYTES} bytes in one partition: take more "
                "topics.aggregator_partitions for a new pipeline, or shorter windows"
            )
        self._rows += len(keys)
        self._text = _grown(self._text, start, start + len(text))
        self._text[start : start + len(text)] = text
        self._ends[first + 1 : self._rows + 1] = start + ends
        self._hashes[first : self._rows] = hashes

    def _make_room(self, more: int) -> None:
        """Make room for so many more rows."""
        rows = self._rows + more
        self._hashes = _grown(self._hashes, self._rows, rows)
        self._ends = _grown(self._ends, self._rows + 1, rows + 1)
        self._columns.make_room(self._rows, rows)
        if _slots_for(rows) > len(self._slots):
            self._slots = np.full(_slots_for(rows), EMPTY, dtype=np.int32)
            self._enter(np.arange(self._rows))

    def _texts(self) -> pa.Array:
        """Return all keys as an Arrow array that shares memory with this object."""
        ends = self._ends[: self._rows + 1]
        # Without the room behind the last key: it would be written with the keys.
        text = self._text[: ends[-1]]
        return pa.StringArray.from_buffers(self._rows, pa.py_buffer(ends), pa.py_buffer(text))


class Changes:
    """The numbers that were merged into some rows of a table since they were last taken."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._columns = tuple(columns)
        self._index_of = np.empty(0, dtype=np.int32)
        """The place of each row of the table among the changed ones, or EMPTY."""
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._rows = np.empty(FIRST_ROWS, dtype=np.int64)
        self._data = Columns(self._columns)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, with their room for more rows."""
        return self._index_of.nbytes + self._rows.nbytes + self._data.nbytes

    def unchanged(self, rows: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Return for each row of a table of this size whether it has not changed yet."""
        if size > len(self._index_of):
            used = len(self._index_of)
            self._index_of = _grown(self._index_of, used, size)
            self._index_of[used:] = EMPTY
        unchanged: NDArray[np.bool_] = self._index_of[rows] == EMPTY
        return unchanged

    def merge(self, rows: NDArray[np.int64], data: Mapping[str, NDArray[np.int64]], size: int) -> None:
        """Merge numbers into distinct rows of a table of this size."""
        new = rows[self.unchanged(rows, size)]
        before, self._count = self._count, self._count + len(new)
        self._rows = _grown(self._rows, before, self._count)
        self._data.make_room(before, self._count)
        self._rows[before : self._count] = new
        self._index_of[new] = np.arange(before, self._count)
        self._data.merge(self._index_of[rows].astype(np.int64), data)

    def take(self) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
        """Return the changed rows, in the order in which they first changed, and their numbers; begin again."""
        rows, data = self._rows[: self._count], self._data.data(slice(self._count))
        self._index_of[rows] = EMPTY
        self._begin()
        return rows, data


def hashes_of(keys: pa.Array) -> NDArray[np.int64]:
    """Hash keys for this process alone: Python's hash has a secret, so that nobody can choose keys that collide."""
    hashes = np.empty(len(keys), dtype=np.int64)
    for first in range(0, len(keys), HASHED_KEYS):
        some = keys.slice(first, HASHED_KEYS).to_pylist()
        hashes[first : first + len(some)] = np.fromiter(map(hash, some), dtype=np.int64, count=len(some))
    return hashes


def _text_and_ends(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of keys, one after the other, and the end of each key in them."""
    _, offsets, text = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    used = np.frombuffer(text or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    return used, ends[1:] - ends[0]


def _neutral(column: PartialColumn, rows: int) -> NDArray[np.int64]:
    return np.full(rows, MERGES[column.merge][1], dtype=np.int64)


def _grown(array: NDArray[Number], used: int, size: int) -> NDArray[Number]:
    """Return the array, or a longer copy of its first `used` entries if it is shorter than `size`."""
    if size <= len(array):
        return array
    longer = np.empty(_size_for(size, len(array)), dtype=array.dtype)
    longer[:used] = array[:used]
    return longer


def _size_for(needed: int, before: int) -> int:
    return max(needed, int(GROWTH * before))


def _slots_for(rows: int) -> int:
    """Return the number of slots for so many rows: a power of two."""
    return 1 << (SLOTS_PER_ROW * rows - 1).bit_length()
