"""Table of merged partial columns by key. It grows row by row; whole columns are merged into it at once.

Keys are stored as bytes in one buffer. An open-addressing hash table maps them to row numbers. Everything is in numpy
arrays, because a dictionary of Python strings would take three times the memory. Binary partials are `bytes` objects:
they change their sizes at every merge.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.algorithms.aggregates import BinaryColumn, PartialColumn, Partials
from skewless.errors import LimitError

FIRST_ROWS = 64
GROWTH = 1.5
"""A full array is replaced by one of this many times the size. The system provides memory for spare entries only when
they are written, so `nbytes` does not count them."""
MAPPED_BYTES = 2**18
"""Size from which on an array has memory of its own."""
SLOTS_PER_ROW = 1.5
"""Minimum slots per row. At most two thirds of the slots are in use, so that searches stay short."""
INSERTED_ROWS = 65_536
"""Maximum rows that are inserted into the slots at once. It bounds the temporary arrays."""
HASH_MASK = 2**32 - 1
"""The table stores and uses 32 bits of a hash."""
STEP_SHIFT = 16
"""The step from slot to slot is computed from the other bits of a hash than the first slot of a small table."""
WORD_BYTES = 8
VECTOR_BYTES = 128
"""Longer keys are hashed one by one."""
WORD_MASKS = np.array([(1 << 8 * used) - 1 for used in range(WORD_BYTES + 1)], dtype="<u8").astype(np.uint64)
"""Mask of a word of which only the first bytes belong to the key, by their number."""
SHIFT = np.uint64(32)
SECRET = np.array([hash(("keyed_table", number)) for number in range(3)]).view(np.uint64) | np.uint64(1)
"""Seed and multipliers of the hashes, from the secret seed of Python's hashes of strings. They are odd, so that each
step is invertible."""
TEXT_BYTES = 2**31 - 1
"""Maximum bytes of all keys: the largest 32-bit offset of an Arrow string array."""
BYTES_OBJECT = 40
"""Approximate bytes of a `bytes` object in addition to its content: header and alignment."""
EMPTY = -1
"""Value of a slot without a row."""

Number = TypeVar("Number", bound=np.generic)


class Columns:
    """Partial columns that grow, and merge row by row with the operation of their PartialColumn."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._columns = tuple(columns)
        self._data: dict[str, NDArray[Any]] = {column.name: column.unset(FIRST_ROWS) for column in self._columns}
        self._rows = 0
        self._object_bytes = 0
        """Bytes of the `bytes` objects in binary columns."""

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self._object_bytes + sum(values[: self._rows].nbytes for values in self._data.values())

    def extend(self, rows: int) -> None:
        """Add rows without a partial, up to this number of rows."""
        for column in self._columns:
            values = self._data[column.name] = _grown(self._data[column.name], self._rows, rows)
            values[self._rows : rows] = column.unset(rows - self._rows)
        self._rows = rows

    def merge(self, rows: NDArray[np.int64], data: Partials) -> None:
        """Merge partials into distinct rows."""
        for column in self._columns:
            values = self._data[column.name]
            stored: NDArray[Any] = values[rows]
            combined: NDArray[Any] = column.combine(stored, data[column.name])
            values[rows] = combined
            if isinstance(column, BinaryColumn):
                self._object_bytes += _object_bytes(combined) - _object_bytes(stored)

    def data(self, rows: NDArray[np.int64] | slice) -> dict[str, NDArray[Any]]:
        """Return the columns of some rows."""
        return {name: values[rows] for name, values in self._data.items()}


class KeyedTable:
    """One row per key, with columns that merge."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._rows = 0
        self._columns = Columns(columns)
        self._hashes = np.empty(FIRST_ROWS, dtype=np.uint32)
        self._text = np.empty(0, dtype=np.uint8)
        """UTF-8 bytes of all keys, concatenated."""
        self._ends = np.zeros(FIRST_ROWS + 1, dtype=np.int32)
        """Arrow offsets of the keys in the text: 0, then the end of each key."""
        self._slots = np.full(_slots_for(FIRST_ROWS), EMPTY, dtype=np.int32)

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of all rows and slots."""
        per_row = self._hashes.itemsize + self._ends.itemsize
        return self._columns.nbytes + self._rows * per_row + int(self._ends[self._rows]) + self._slots.nbytes

    def rows_of(self, keys: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the row of each key, and add a row for each new key. Keys must be distinct."""
        array = keys.combine_chunks()
        hashes = hashes_of(array) & HASH_MASK
        rows = self._find(array, hashes)
        new = np.flatnonzero(rows == EMPTY)
        if len(new):
            self._ensure_capacity(len(new))
            rows[new] = np.arange(self._rows, self._rows + len(new))
            self._append(array.take(pa.array(new, pa.int64())), hashes[new])
            self._insert(rows[new])
        return rows

    def merge(self, rows: NDArray[np.int64], data: Partials) -> None:
        """Merge partials into distinct rows."""
        self._columns.merge(rows, data)

    def keys(self, rows: NDArray[np.int64]) -> pa.Array:
        """Return the keys of some rows as an Arrow array."""
        return self._texts().take(pa.array(rows, pa.int64()))

    def data(self, rows: NDArray[np.int64] | slice) -> dict[str, NDArray[Any]]:
        """Return the columns of some rows."""
        return self._columns.data(rows)

    def _find(self, keys: pa.Array, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key, or EMPTY."""
        rows, slots = np.full(len(keys), EMPTY, dtype=np.int64), self._first_slots(hashes)
        pending = np.arange(len(keys))
        while len(pending):
            self._find_hashes(hashes, rows, slots, pending)
            matched = pending[rows[pending] != EMPTY]
            # Different keys may have the same hash, so the bytes are compared as well.
            matched_keys = keys if len(matched) == len(keys) else keys.take(pa.array(matched, pa.int64()))
            equal = np.asarray(pc.equal(self.keys(rows[matched]), matched_keys))
            pending = matched[~equal]
            rows[pending] = EMPTY
            slots[pending] = self._next_slots(slots[pending], hashes[pending])
        return rows

    def _find_hashes(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int64], slots: NDArray[np.int64], pending: NDArray[np.int64]
    ) -> None:
        """Find the next row with the same hash, from `slots` on, for the keys `pending`. Updates `rows` and `slots`."""
        while len(pending):
            stored = self._slots[slots[pending]]
            same = (self._hashes[stored] == hashes[pending]) & (stored != EMPTY)
            rows[pending[same]] = stored[same]
            pending = pending[(stored != EMPTY) & ~same]
            slots[pending] = self._next_slots(slots[pending], hashes[pending])

    def _first_slots(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        return hashes & (len(self._slots) - 1)

    def _next_slots(self, slots: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        # Double hashing, because linear probing forms long runs of full slots. An odd step visits all slots.
        return (slots + (hashes >> STEP_SHIFT | 1)) & (len(self._slots) - 1)

    def _insert(self, rows: NDArray[np.int64]) -> None:
        """Insert rows into the first empty slot for their hashes."""
        hashes = self._hashes[rows].astype(np.int64)
        slots = self._first_slots(hashes)
        while len(rows):
            free = self._slots[slots] == EMPTY
            self._slots[slots[free]] = rows[free]
            # If several rows were assigned to one slot, the slot has the row that was written last.
            pending = self._slots[slots] != rows
            rows, hashes, slots = rows[pending], hashes[pending], self._next_slots(slots[pending], hashes[pending])

    def _append(self, keys: pa.Array, hashes: NDArray[np.int64]) -> None:
        text, ends = _text_and_ends(keys)
        first, start = self._rows, int(self._ends[self._rows])
        if start + len(text) > TEXT_BYTES:
            raise LimitError(
                f"the keys of one window have more than {TEXT_BYTES} bytes in one partition: use more "
                "topics.aggregator_partitions for a new pipeline, or shorter windows"
            )
        self._rows += len(keys)
        self._columns.extend(self._rows)
        self._text = _grown(self._text, start, start + len(text))
        self._text[start : start + len(text)] = text
        self._ends[first + 1 : self._rows + 1] = start + ends
        self._hashes[first : self._rows] = hashes

    def _ensure_capacity(self, added: int) -> None:
        """Grow the arrays of the keys so that `added` rows fit in."""
        rows = self._rows + added
        self._hashes = _grown(self._hashes, self._rows, rows)
        self._ends = _grown(self._ends, self._rows + 1, rows + 1)
        if _slots_for(rows) > len(self._slots):
            self._slots = np.empty(0, dtype=np.int32)  # frees the memory before the larger array is created
            self._slots = _empty((_slots_for(rows),), self._slots.dtype)
            self._slots[:] = EMPTY
            for first in range(0, self._rows, INSERTED_ROWS):
                self._insert(np.arange(first, min(first + INSERTED_ROWS, self._rows)))

    def _texts(self) -> pa.Array:
        """Return all keys as an Arrow array that shares memory with this object."""
        return pa.StringArray.from_buffers(self._rows, pa.py_buffer(self._ends), pa.py_buffer(self._text))


class Changes:
    """Partials that were merged into rows of a table since the last `take`."""

    def __init__(self, columns: Sequence[PartialColumn]) -> None:
        self._columns = tuple(columns)
        self._reset()

    def _reset(self) -> None:
        self._index_of = np.empty(0, dtype=np.int32)
        """Index of each row of the table among the changed rows, or EMPTY."""
        self._count = 0
        self._rows = np.empty(FIRST_ROWS, dtype=np.int64)
        self._data = Columns(self._columns)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the changed rows, and of the index of all rows."""
        return self._index_of.nbytes + self._rows[: self._count].nbytes + self._data.nbytes

    def unchanged(self, rows: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Return for each row of a table with `size` rows whether it has not changed."""
        if size > len(self._index_of):
            used = len(self._index_of)
            self._index_of = _grown(self._index_of, used, size)
            self._index_of[used:] = EMPTY
        unchanged: NDArray[np.bool_] = self._index_of[rows] == EMPTY
        return unchanged

    def merge(self, rows: NDArray[np.int64], data: Partials, size: int) -> None:
        """Merge partials into distinct rows of a table with `size` rows."""
        new = rows[self.unchanged(rows, size)]
        first, self._count = self._count, self._count + len(new)
        self._rows = _grown(self._rows, first, self._count)
        self._data.extend(self._count)
        self._rows[first : self._count] = new
        self._index_of[new] = np.arange(first, self._count)
        self._data.merge(self._index_of[rows].astype(np.int64), data)

    def take(self) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Return the changed rows, in the order of their first change, and their partials. Resets the changes."""
        rows, data = self._rows[: self._count], self._data.data(slice(self._count))
        self._reset()
        return rows, data


def hashes_of(keys: pa.Array) -> NDArray[np.int64]:
    """Return hashes of keys that are valid in this process only: a secret of the process prevents chosen collisions."""
    text, ends = _text_and_ends(keys)
    starts = np.zeros(len(keys), np.int64)
    starts[1:] = ends[:-1]
    lengths: NDArray[np.int64] = ends - starts
    # Words of 8 bytes that begin at any byte, also at the last one.
    padded = np.zeros(len(text) + WORD_BYTES, np.uint8)
    padded[: len(text)] = text
    words: NDArray[np.uint64] = np.ndarray(len(text) + 1, np.uint64, padded, strides=(1,))
    hashes: NDArray[np.uint64] = SECRET[0] + lengths.astype(np.uint64)
    rows: NDArray[np.int64] | slice = slice(None)
    for first in range(0, min(int(lengths.max(initial=1)), VECTOR_BYTES), WORD_BYTES):
        if first:
            rows = np.flatnonzero(lengths > first)
        used = WORD_MASKS[np.minimum(lengths[rows] - first, WORD_BYTES)]
        # The steps of MurmurHash. The shift prevents that differences in the high bytes of two words cancel out.
        mixed = (hashes[rows] ^ (words[starts[rows] + first] & used)) * SECRET[1]
        hashes[rows] = mixed ^ (mixed >> SHIFT)
    hashes *= SECRET[2]
    result: NDArray[np.int64] = (hashes ^ (hashes >> SHIFT)).view(np.int64)
    for row in np.flatnonzero(lengths > VECTOR_BYTES).tolist():
        result[row] = hash(keys[row].as_py())
    return result


def _text_and_ends(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the concatenated bytes of the keys, and the end of each key in them."""
    _, offsets, text = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    used = np.frombuffer(text or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    return used, ends[1:] - ends[0]


def _object_bytes(partials: NDArray[np.object_]) -> int:
    """Return the approximate bytes of `bytes` objects. None has no bytes."""
    return sum(BYTES_OBJECT + len(partial) for partial in partials.tolist() if partial is not None)


def _grown(array: NDArray[Number], used: int, size: int) -> NDArray[Number]:
    """Return the array, or a longer copy of its first `used` entries if it is shorter than `size`."""
    if size <= len(array):
        return array
    longer = _empty((max(size, int(GROWTH * len(array))), *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array whose memory goes back to the system with it, if it is large."""
    size = math.prod(shape) * dtype.itemsize
    if size < MAPPED_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    # In the heap, each array that has grown would leave a gap that is too small for the next one.
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(private, dtype).reshape(shape)


def _slots_for(rows: int) -> int:
    """Return the number of slots for a number of rows: a power of two."""
    return 1 << (int(SLOTS_PER_ROW * rows) - 1).bit_length()
