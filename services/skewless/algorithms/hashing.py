"""Which worker or partition a key hashes to: 128-bit murmur3 (x64), first 64-bit word, of the key's UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.murmur import hashes_of_column

PARTITION_SEED = 29
"""Seed of `partition_of_keys`. It differs from every seed of a grouping, so that the keys of one worker spread over all
partitions, and it may never change: partial results of one key have to meet in one partition for ever."""


def hash64(key: str, seed: int) -> int:
    """First 64-bit word of murmur3 x64 128 over the UTF-8 bytes of `key`, as a signed long."""
    return int(mmh3.hash64(key, seed, x64arch=True)[0])


def worker_of(hash_value: int, workers: int) -> int:
    """Absolute value mod `workers`; unlike in Java the smallest long too has an absolute value, 2^63."""
    return abs(hash_value) % workers


def hashes_of_keys(keys: Sequence[str], seed: int) -> NDArray[np.int64]:
    """`hash64(key, seed)` for every key, at once."""
    digests = b"".join(map(mmh3.hash_bytes, keys, repeat(seed), repeat(True)))
    return np.frombuffer(digests, dtype="<i8")[::2]


def workers_of_keys(keys: Sequence[str], seed: int, workers: int) -> NDArray[np.int32]:
    """`worker_of(hash64(key, seed), workers)` for every key, at once."""
    return _workers_of_hashes(hashes_of_keys(keys, seed), workers)


def partition_of_keys(keys: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int32]:
    """Find the partition of the aggregator's input that owns each key, a function of key and partition count alone.

    `keys` is a column of strings without nulls. No Python string is made of any of them.
    """
    return _workers_of_hashes(hashes_of_column(keys, PARTITION_SEED), partitions)


def _workers_of_hashes(hashes: NDArray[np.int64], workers: int) -> NDArray[np.int32]:
    # abs() leaves the smallest long as it is; read as unsigned its bits are 2^63, what Python's abs() gives.
    magnitudes = np.abs(hashes).view(np.uint64)
    homes: NDArray[np.int32] = (magnitudes % np.uint64(workers)).astype(np.int32)
    return homes
