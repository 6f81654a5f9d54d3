"""Compiled functions that the scans of the binary formats share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit


@jit
def varint(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return the 64 bits of an integer and the position after it; position -1 if it does not end."""
    value, shift = np.uint64(0), np.uint64(0)
    for _ in range(10):
        if position >= end:
            return np.int64(0), np.int64(-1)  # type: ignore[return-value]  # numba's integers
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return np.int64(value), np.int64(position)  # type: ignore[return-value]  # as above
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)  # type: ignore[return-value]  # as above


@jit
def zigzag(bits: int) -> int:
    """Return the signed integer that has these bits in zigzag encoding."""
    return np.int64(np.uint64(bits) >> np.uint64(1)) ^ -(np.int64(bits) & np.int64(1))  # type: ignore[return-value]  # as above


@jit
def drop_record(
    record: int,
    before: NDArray[np.int64],
    slot_levels: NDArray[np.int64],
    counts: NDArray[np.int64],
    tags: NDArray[np.int32],
) -> None:
    """Remove the elements of a record from the output of a scan. `before` are the counts before the record."""
    for slot in range(len(slot_levels)):
        level = slot_levels[slot]
        if level > 0:
            tags[slot, before[level] : counts[level]] = 0
        else:
            tags[slot, record] = 0
    counts[:] = before


@jit
def gather(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint8]
) -> None:
    """Copy texts one after another to `out`, which has a NUL after each."""
    position = 0
    for text in range(len(starts)):
        for i in range(lengths[text]):
            out[position + i] = data[starts[text] + i]
        position += lengths[text] + 1
