"""Maps keys to workers and partitions: first 64-bit word of 128-bit murmur3 (x64) of the key's UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.murmur import hashes_of_column

PARTITION_SEED = 29
"""Seed of `partition_of_keys`. It differs from the seeds of all groupings, so that the keys of one worker spread over
all partitions. It must never change, because all partial results of a key must be in the same partition."""


def hashes_of_keys(keys: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Return the hash of every key, as a signed long."""
    digests = b"".join(map(mmh3.hash_bytes, keys, repeat(seed), repeat(True)))
    return np.frombuffer(digests, dtype="<i8")[::2]


def workers_of_keys(keys: Sequence[str], seed: int, workers: int) -> NDArray[np.int32]:
    """Return the absolute value of every key's hash mod `workers`."""
    return _workers_of_hashes(hashes_of_keys(keys, seed), workers)


def partition_of_keys(keys: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int32]:
    """Return for each key its partition of the aggregator's input. It depends only on the key and the partition count.

    `keys` is a column of strings without nulls. No Python strings are created.
    """
    return _workers_of_hashes(hashes_of_column(keys, PARTITION_SEED), partitions)


def _workers_of_hashes(hashes: NDArray[np.int64], workers: int) -> NDArray[np.int32]:
    # np.abs() returns the smallest long unchanged. Viewed as unsigned, its bits are 2^63, as in Python but not in Java.
    magnitudes = np.abs(hashes).view(np.uint64)
    remainders: NDArray[np.int32] = (magnitudes % np.uint64(workers)).astype(np.int32)
    return remainders
