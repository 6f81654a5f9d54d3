"""Cuts a batch into slices of bounded bytes, so that parsing one holds little memory, whatever a poll brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from skewless.records import Batch, Headers

SLICE_BYTES = 2 * 2**20
"""Bytes of values that are parsed at once. As words, texts become some 30 times their bytes: strings and arrays."""


class Slice:
    """Successive records of a batch; implements `Batch`."""

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        self.partition = batch.partition
        self._batch = batch
        self._rows = slice(first, end)

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
        """Kafka timestamps in ms."""
        return self._batch.timestamps[self._rows]

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of the records."""
        return self._batch.headers[self._rows]


def slices(batch: Batch, most: int | None = None) -> Iterator[Batch]:
    """Yield the records of a batch in slices of at most `most` bytes (SLICE_BYTES), a larger record alone."""
    limit = SLICE_BYTES if most is None else most
    if sum(map(len, filter(None, batch.values))) <= limit:
        yield batch
        return
    sizes = [len(value or b"") for value in batch.values]
    first = held = 0
    for at, size in enumerate(sizes):
        if at > first and held + size > limit:
            yield Slice(batch, first, at)
            first, held = at, 0
        held += size
    yield Slice(batch, first, len(sizes))
