"""Numbers the keys of each window of a stream whose tuples may arrive in any order of their windows.

A row is a key in an open window. Several `Spread`s of one stream have the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit

T = TypeVar("T", bound=np.generic)

OPEN_BYTES = 2**28
"""Approximate maximum of the bytes of the open windows, and of what all users need for them."""
KEPT = 0.75
"""Share of the bytes that remains when windows are closed, so that they are closed seldom."""
OWN_ROW_BYTES = 56
"""Approximate bytes of a row in the arrays and in the hash table of the open windows, part of which are unused."""
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio."""
HASH_SHIFT = np.uint64(32)
EMPTY = -1
"""Value of a slot, and of a key's latest row, if there is no row."""

Close = Callable[[NDArray[np.bool_], NDArray[np.bool_]], None]
"""Called before rows and windows are removed: which ones. The others get new numbers, in the same order."""


class WindowRows(NamedTuple):
    """Numbers of the row and of the open window of each tuple. They are valid until windows are closed."""

    rows: NDArray[np.int64]
    windows: NDArray[np.int64]


class OpenWindows:
    """The open windows of event time, and the keys in each.

    Windows are closed only for the limit of memory, the oldest ones first. A tuple that is older than all open windows
    counts in the oldest of them.
    """

    def __init__(self, window_ms: int, open_bytes: int = OPEN_BYTES) -> None:
        self._window_ms = window_ms
        self._open_bytes = open_bytes
        self._closes: list[Close] = []
        self._row_bytes, self._window_bytes = OWN_ROW_BYTES, 0
        self._numbers: dict[int, int] = {}
        """Number of each open window, by its index in event time."""
        self._oldest = np.iinfo(np.int64).min
        """Index of the oldest window that is open, if windows have been closed."""
        self.keys = 0
        """Largest key + 1."""
        self.rows = 0
        self._key_of_row = np.zeros(1024, dtype=np.int64)
        self._index_of_row = np.zeros(1024, dtype=np.int64)
        """Index of the row's window in event time."""
        self._window_of_row = np.zeros(1024, dtype=np.int64)
        self._latest = np.full(1024, EMPTY, dtype=np.int32)
        """Row of the last tuple of each key. Most tuples have the same window as that one."""
        self._slots = np.full(4096, EMPTY, dtype=np.int32)
        """Hash table of the rows, at most half full."""

    @property
    def windows(self) -> int:
        """Number of open windows."""
        return len(self._numbers)

    @property
    def key_of_row(self) -> NDArray[np.int64]:
        """Key of each row."""
        return self._key_of_row[: self.rows]

    @property
    def window_of_row(self) -> NDArray[np.int64]:
        """Number of the window of each row."""
        return self._window_of_row[: self.rows]

    def register(self, close: Close, *, row_bytes: int, window_bytes: int) -> None:
        """Add a user, which needs memory for each row and each open window."""
        self._closes.append(close)
        self._row_bytes += row_bytes
        self._window_bytes += window_bytes

    def rows_of(self, keys: NDArray[np.int64], times: NDArray[np.int64]) -> WindowRows:
        """Return the rows of tuples, and add those that are new; times are in ms."""
        self.keys = max(self.keys, int(keys.max(initial=-1)) + 1)
        self._latest = ensure_capacity(self._latest, self.keys, EMPTY)
        first, most = self.rows, self.rows + len(keys)
        self._key_of_row = ensure_capacity(self._key_of_row, most)
        self._index_of_row = ensure_capacity(self._index_of_row, most)
        self._window_of_row = ensure_capacity(self._window_of_row, most)
        if 2 * most > len(self._slots):
            self._slots = np.full(1 << (2 * most).bit_length(), EMPTY, dtype=np.int32)
            _insert(self._slots, self.key_of_row, self._index_of_row)
        rows = np.empty(len(keys), dtype=np.int64)
        indices = np.maximum(times // self._window_ms, self._oldest)
        self.rows = _find_or_add(
            keys, indices, self._latest, self._slots, self._key_of_row, self._index_of_row, first, rows
        )
        self._number_windows(first)
        return WindowRows(rows, self._window_of_row[rows])

    def close_oldest(self) -> None:
        """Close the oldest windows if the open ones need too much memory. The newest one always remains open."""
        if self.rows * self._row_bytes + self.windows * self._window_bytes <= self._open_bytes:
            return
        indices = np.array(list(self._numbers), dtype=np.int64)
        needed = np.bincount(self.window_of_row, minlength=self.windows) * self._row_bytes + self._window_bytes
        newest_first = np.argsort(indices)[::-1]
        kept = newest_first[np.cumsum(needed[newest_first]) <= KEPT * self._open_bytes]
        closed = np.ones(self.windows, dtype=np.bool_)
        closed[kept if len(kept) else newest_first[:1]] = False
        if closed.any():
            self._remove(closed, indices)

    def _remove(self, closed: NDArray[np.bool_], indices: NDArray[np.int64]) -> None:
        rows = closed[self.window_of_row]
        for close in self._closes:
            close(rows, closed)
        remaining = self.rows - int(rows.sum())
        number_of_window = np.cumsum(~closed) - 1
        self._window_of_row[:remaining] = number_of_window[self.window_of_row[~rows]]
        self._key_of_row[:remaining] = self.key_of_row[~rows]
        self._index_of_row[:remaining] = self._index_of_row[: self.rows][~rows]
        self.rows = remaining
        self._numbers = {index: number for number, index in enumerate(indices[~closed].tolist())}
        self._oldest = min(self._numbers)
        self._latest[:] = EMPTY
        self._slots[:] = EMPTY
        _insert(self._slots, self.key_of_row, self._index_of_row)

    def _number_windows(self, first: int) -> None:
        """Give numbers to the windows of the new rows, from this one on."""
        if first == self.rows:
            return
        indices, position = np.unique(self._index_of_row[first : self.rows], return_inverse=True)
        numbers = [self._numbers.setdefault(index, len(self._numbers)) for index in indices.tolist()]
        self._window_of_row[first : self.rows] = np.array(numbers, dtype=np.int64)[position]


def ensure_capacity(array: NDArray[T], size: int, fill: int = 0) -> NDArray[T]:
    """Return the array if it has `size` rows, else a copy of at least twice the size with `fill` in the new rows."""
    if size <= len(array):
        return array
    larger = np.full((max(size, 2 * len(array)), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@jit
def _first_slot(key: int, index: int, slots: int) -> int:
    hashed = (np.uint64(index) * HASH_FACTOR + np.uint64(key)) * HASH_FACTOR
    return int(hashed >> HASH_SHIFT) & (slots - 1)


@jit
def _insert(slots: NDArray[np.int32], keys: NDArray[np.int64], indices: NDArray[np.int64]) -> None:
    """Insert the row of each key and window into the first empty slot."""
    for row, key in enumerate(keys):
        slot = _first_slot(key, indices[row], len(slots))
        while slots[slot] != EMPTY:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = row


@jit
def _find_or_add(  # noqa: PLR0913, PLR0917 - compiled code takes arrays, not objects
    keys: NDArray[np.int64],
    indices: NDArray[np.int64],
    latest: NDArray[np.int32],
    slots: NDArray[np.int32],
    key_of_row: NDArray[np.int64],
    index_of_row: NDArray[np.int64],
    rows: int,
    found: NDArray[np.int64],
) -> int:
    """Find the row of each key and window, and add those that are missing. Returns the number of rows."""
    for tuple_, key in enumerate(keys):
        index, row = indices[tuple_], latest[key]
        if row == EMPTY or index_of_row[row] != index:
            slot = _first_slot(key, index, len(slots))
            row = slots[slot]
            while row != EMPTY and (key_of_row[row] != key or index_of_row[row] != index):
                slot = (slot + 1) & (len(slots) - 1)
                row = slots[slot]
            if row == EMPTY:
                row = slots[slot] = rows
                key_of_row[row], index_of_row[row] = key, index
                rows += 1
            latest[key] = row
        found[tuple_] = row
    return rows
