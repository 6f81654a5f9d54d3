"""Columns of 128-bit integers, as arrays of shape (n, 2): the low 64 bits and the high 64 bits of each number.

This is the memory layout of Arrow's decimal128, so both share their memory. A sum of at most 2^63 values of 64 bits has
at most 126 bits. It fits into 128 bits and into the 38 digits of decimal128, so no sum overflows.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Int128: TypeAlias = NDArray[np.int64]
"""Array of shape (n, 2). The number is high * 2^64 + low, with low as an unsigned number."""

TYPE = pa.decimal128(38, 0)
_WORD = 2**64


def full(rows: int, number: int) -> Int128:
    """Return an array with the same number in each row."""
    high, low = divmod(number, _WORD)
    array = np.empty((rows, 2), dtype=np.int64)
    array[:, 0], array[:, 1] = np.uint64(low).astype(np.int64), high
    return array


def widen(numbers: NDArray[np.int64]) -> Int128:
    """Return 64-bit integers as 128-bit integers."""
    return np.stack((numbers, numbers >> 63), axis=1)


def fits_64_bits(numbers: Int128) -> bool:
    """Return whether all numbers fit into 64 bits."""
    return bool(np.array_equal(numbers[:, 1], numbers[:, 0] >> 63))


def add(left: Int128, right: Int128) -> Int128:
    """Return the sums row by row."""
    total = left + right
    total[:, 1] += total[:, 0].view(np.uint64) < left[:, 0].view(np.uint64)
    return total


def is_less(left: Int128, right: Int128) -> NDArray[np.bool_]:
    """Return for each row whether the left number is less than the right one."""
    is_low_less = left[:, 0].view(np.uint64) < right[:, 0].view(np.uint64)
    less: NDArray[np.bool_] = (left[:, 1] < right[:, 1]) | ((left[:, 1] == right[:, 1]) & is_low_less)
    return less


def to_ints(numbers: Int128) -> list[int]:
    """Return the numbers as Python integers."""
    if fits_64_bits(numbers):
        narrow: list[int] = numbers[:, 0].tolist()
        return narrow
    low, high = numbers[:, 0].view(np.uint64).tolist(), numbers[:, 1].tolist()
    return [high_word * _WORD + low_word for low_word, high_word in zip(low, high, strict=True)]


def to_arrow(numbers: Int128, decimals: int = 0) -> pa.Array:
    """Return the numbers, divided by 10 to the power of `decimals`, as decimals with this many decimal places."""
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.decimal128(38, decimals), len(numbers), [None, buffer])


def from_arrow(array: pa.Array | pa.ChunkedArray) -> Int128:
    """Return the numbers of an array without nulls: decimals without decimal places, or 64-bit integers."""
    chunk = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_int64(chunk.type):
        return widen(chunk.to_numpy())
    if not len(chunk):
        return np.empty((0, 2), dtype=np.int64)
    words = np.frombuffer(chunk.buffers()[1], dtype=np.int64).reshape(-1, 2)
    return words[chunk.offset : chunk.offset + len(chunk)]


def narrowed(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return decimals without decimal places as 64-bit integers if all of them fit, otherwise unchanged."""
    numbers = from_arrow(array)
    return pa.array(np.ascontiguousarray(numbers[:, 0])) if fits_64_bits(numbers) else to_arrow(numbers)
