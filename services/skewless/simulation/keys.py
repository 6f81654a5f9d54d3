"""Dense numbers for keys: a hash table of 12 bytes a slot, since the keys themselves are not needed again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


class KeyNumbers:
    """Numbers keys in the order in which they come.

    Keys are told apart by a 64-bit hash (FNV-1a, with the finalizer of murmur3): among 10 million keys, two share a
    number with probability 3 in a million.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(4096, dtype=np.uint64)
        self._numbers = np.full(4096, -1, dtype=np.int32)
        self._used = 0

    def of(self, keys: pa.StringArray) -> NDArray[np.int64]:
        """Give the number of each key."""
        _, offsets, data = keys.buffers()
        text = np.frombuffer(data or b"", dtype=np.uint8)
        hashes = _hashes_of(np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1], text)
        self._reserve(self._used + len(keys))
        numbers, self._used = _number(hashes, self._hashes, self._numbers, self._used)
        return numbers

    def _reserve(self, keys: int) -> None:
        """Keep a third of the slots free."""
        size = len(self._hashes)
        while keys * 3 > size * 2:
            size *= 2
        if size > len(self._hashes):
            hashes, numbers = np.zeros(size, dtype=np.uint64), np.full(size, -1, dtype=np.int32)
            _move(self._hashes, self._numbers, hashes, numbers)
            self._hashes, self._numbers = hashes, numbers


@compiled
def _hashes_of(offsets: NDArray[np.int32], text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for row in range(len(hashes)):
        value = _OFFSET
        for at in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(text[at])) * _PRIME
        value = (value ^ (value >> _SHIFT)) * _MIX_1
        value = (value ^ (value >> _SHIFT)) * _MIX_2
        hashes[row] = value ^ (value >> _SHIFT)
    return hashes


@compiled
def _slot(value: np.uint64, hashes: NDArray[np.uint64], numbers: NDArray[np.int32]) -> int:
    """Find the slot of a hash, or the free one where it belongs."""
    slot = np.int64(value & np.uint64(len(hashes) - 1))
    while numbers[slot] >= 0 and hashes[slot] != value:
        slot = (slot + 1) & (len(hashes) - 1)
    return int(slot)


@compiled
def _number(
    wanted: NDArray[np.uint64], hashes: NDArray[np.uint64], numbers: NDArray[np.int32], used: int
) -> tuple[NDArray[np.int64], int]:
    """Look up, or number, each hash; also tells how many there are then."""
    found = np.empty(len(wanted), dtype=np.int64)
    for row, value in enumerate(wanted):
        slot = _slot(value, hashes, numbers)
        if numbers[slot] < 0:
            hashes[slot], numbers[slot] = value, used
            used += 1
        found[row] = numbers[slot]
    return found, used


@compiled
def _move(
    hashes: NDArray[np.uint64],
    numbers: NDArray[np.int32],
    new_hashes: NDArray[np.uint64],
    new_numbers: NDArray[np.int32],
) -> None:
    for old, number in enumerate(numbers):
        if number >= 0:
            slot = _slot(hashes[old], new_hashes, new_numbers)
            new_hashes[slot], new_numbers[slot] = hashes[old], number
