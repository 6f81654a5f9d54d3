"""Splits a batch into slices of bounded size, which limits the memory of parsing for any number of polled records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from skewless.wire.record import Batch, Headers

SLICE_BYTES = 2 * 2**20
"""Maximum bytes of values that are parsed at once. A text that is split into words takes about 30 times its bytes."""


class Slice:
    """Consecutive records of a batch. Implements `Batch`."""

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        self.topic, self.partition = batch.topic, batch.partition
        self._batch = batch
        self._rows = slice(first, end)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, filter(None, self.values)))

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values of the records."""
        return self._batch.values[self._rows]

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys of the records."""
        return self._batch.keys[self._rows]

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets of the records."""
        return self._batch.offsets[self._rows]

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Kafka timestamps of the records in ms."""
        return self._batch.timestamps[self._rows]

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of the records."""
        return self._batch.headers[self._rows]


def slices(batch: Batch) -> Iterator[Batch]:
    """Yield the records of a batch in slices of at most SLICE_BYTES. A larger record is a slice of its own."""
    if batch.size <= SLICE_BYTES:
        yield batch
        return
    sizes = [len(value or b"") for value in batch.values]
    first = slice_bytes = 0
    for index, size in enumerate(sizes):
        if index > first and slice_bytes + size > SLICE_BYTES:
            yield Slice(batch, first, index)
            first, slice_bytes = index, 0
        slice_bytes += size
    yield Slice(batch, first, len(sizes))
