"""Assigns dense indices to keys, with a hash table of 12 bytes per slot that does not store the keys themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.jit import jit

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


class KeyIndexer:
    """Assigns the indices 0, 1, ... to keys in the order of their first occurrence.

    Keys are identified by a 64-bit hash (FNV-1a with the finalizer of murmur3). Among 10 million keys, two keys share
    an index with a probability of 3 in a million.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(4096, dtype=np.uint64)
        self._indices = np.full(4096, -1, dtype=np.int32)
        self._used = 0

    def of(self, keys: pa.StringArray) -> NDArray[np.int64]:
        """Return the index of each key."""
        _, offsets, data = keys.buffers()
        text = np.frombuffer(data or b"", dtype=np.uint8)
        hashes = _hashes_of(np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1], text)
        self._reserve(self._used + len(keys))
        indices, self._used = _find_or_add(hashes, self._hashes, self._indices, self._used)
        return indices

    def _reserve(self, keys: int) -> None:
        """Grow the table so that a third of the slots stays free with so many keys."""
        size = len(self._hashes)
        while keys * 3 > size * 2:
            size *= 2
        if size > len(self._hashes):
            hashes, indices = np.zeros(size, dtype=np.uint64), np.full(size, -1, dtype=np.int32)
            _rehash(self._hashes, self._indices, hashes, indices)
            self._hashes, self._indices = hashes, indices


@jit
def _hashes_of(offsets: NDArray[np.int32], text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for row in range(len(hashes)):
        value = _OFFSET
        for offset in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(text[offset])) * _PRIME
        value = (value ^ (value >> _SHIFT)) * _MIX_1
        value = (value ^ (value >> _SHIFT)) * _MIX_2
        hashes[row] = value ^ (value >> _SHIFT)
    return hashes


@jit
def _find_slot(value: np.uint64, hashes: NDArray[np.uint64], indices: NDArray[np.int32]) -> int:
    """Return the slot of a hash, or the free slot for it (linear probing; the index of a free slot is -1)."""
    slot = np.int64(value & np.uint64(len(hashes) - 1))
    while indices[slot] >= 0 and hashes[slot] != value:
        slot = (slot + 1) & (len(hashes) - 1)
    return int(slot)


@jit
def _find_or_add(
    keys: NDArray[np.uint64], hashes: NDArray[np.uint64], indices: NDArray[np.int32], used: int
) -> tuple[NDArray[np.int64], int]:
    """Return the index of each hash in `keys`, and the number of indices in use. Unknown hashes get a new index."""
    key_indices = np.empty(len(keys), dtype=np.int64)
    for row, value in enumerate(keys):
        slot = _find_slot(value, hashes, indices)
        if indices[slot] < 0:
            hashes[slot], indices[slot] = value, used
            used += 1
        key_indices[row] = indices[slot]
    return key_indices, used


@jit
def _rehash(
    hashes: NDArray[np.uint64],
    indices: NDArray[np.int32],
    new_hashes: NDArray[np.uint64],
    new_indices: NDArray[np.int32],
) -> None:
    """Copy all entries into a new table."""
    for old_slot, index in enumerate(indices):
        if index >= 0:
            slot = _find_slot(hashes[old_slot], new_hashes, new_indices)
            new_hashes[slot], new_indices[slot] = hashes[old_slot], index
