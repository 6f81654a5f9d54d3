"""128-bit murmur3 (x64) of a whole Arrow column of strings at once: a fifth of the time of a call per key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

CHUNK_ROWS = 65_536
"""Rows that are hashed at once, so that the arrays in between stay small."""
BLOCK = 16
"""Bytes of a block, two words."""

Words = NDArray[np.uint64]

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ADD1, _ADD2, _FIVE = np.uint64(0x52DCE729), np.uint64(0x38495AB5), np.uint64(5)
_HALF = np.uint64(33)
_KEPT = np.tril(np.full((BLOCK, BLOCK), 255, dtype=np.uint8), -1).view("<u8")
"""Masks of a block by the number of its bytes that belong to the key."""


def hashes_of_column(keys: pa.Array | pa.ChunkedArray, seed: int) -> NDArray[np.int64]:
    """First 64-bit word of the hash of every key, as a signed long; strings without nulls."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    cut = [chunk.slice(first, CHUNK_ROWS) for chunk in chunks for first in range(0, len(chunk), CHUNK_ROWS)]
    return np.concatenate([np.empty(0, dtype=np.int64), *(_hashes(chunk, seed) for chunk in cut)])


def _hashes(keys: pa.Array, seed: int) -> NDArray[np.int64]:
    blocks, starts, sizes = _blocks(keys)
    first = np.full(len(sizes), seed, dtype=np.uint64)
    second = first.copy()
    full = sizes // BLOCK
    rows = np.flatnonzero(full)
    for number in range(int(full.max(initial=0))):
        rows = rows[full[rows] > number]
        words = blocks[starts[rows] + number * BLOCK].view("<u8")
        mixed = _rotated(first[rows] ^ _scrambled(words[:, 0], _C1, 31, _C2), 27) + second[rows]
        first[rows] = mixed = mixed * _FIVE + _ADD1
        second[rows] = (_rotated(second[rows] ^ _scrambled(words[:, 1], _C2, 33, _C1), 31) + mixed) * _FIVE + _ADD2
    tails = blocks[starts + full * BLOCK].view("<u8") & _KEPT[sizes % BLOCK]
    lengths = sizes.astype(np.uint64)
    second ^= _scrambled(tails[:, 1], _C2, 33, _C1) ^ lengths
    first ^= _scrambled(tails[:, 0], _C1, 31, _C2) ^ lengths
    first += second
    second += first
    return (_finished(first) + _finished(second)).view(np.int64)


def _blocks(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the 16 bytes from every byte on, where each key starts, and how many bytes it has."""
    _, offsets, data = keys.buffers()
    width = np.dtype(np.int64 if pa.types.is_large_string(keys.type) else np.int32)
    ends = np.frombuffer(offsets, width, len(keys) + 1, keys.offset * width.itemsize).astype(np.int64)
    text = np.frombuffer(data or b"", np.uint8, int(ends[-1] - ends[0]), int(ends[0]))
    padded = np.concatenate((text, np.zeros(BLOCK, dtype=np.uint8)))  # a key's last block reaches beyond it
    return sliding_window_view(padded, BLOCK), ends[:-1] - ends[0], np.diff(ends)


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _scrambled(words: Words, before: np.uint64, bits: int, after: np.uint64) -> Words:
    return _rotated(words * before, bits) * after


def _finished(words: Words) -> Words:
    words = (words ^ (words >> _HALF)) * _F1
    words = (words ^ (words >> _HALF)) * _F2
    return words ^ (words >> _HALF)
