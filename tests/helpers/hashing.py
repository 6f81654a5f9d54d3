"""The hash of a single key and the worker that it selects, as the groupings define them."""

from __future__ import annotations

import mmh3


def hash64(key: str, seed: int) -> int:
    """Return the first 64-bit word of murmur3 x64 128 over the UTF-8 bytes of `key`, as a signed long."""
    return int(mmh3.hash64(key, seed, x64arch=True)[0])


def worker_of(hash_value: int, workers: int) -> int:
    """Return the absolute value mod `workers`. Unlike in Java, the absolute value of the smallest long is 2^63."""
    return abs(hash_value) % workers
