"""Splits a batch into slices of bounded size, which limits the memory of parsing for any number of polled records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from skewless.parsing.source_records import DerivedRecords
from skewless.wire.record import Batch

SLICE_BYTES = 2 * 2**20
"""Maximum bytes of values that are parsed at once. A text that is split into words takes about 30 times its bytes."""


class Slice(DerivedRecords):
    """Consecutive records of a batch. Implements `Batch`."""

    offsets: Sequence[int]

    def __init__(self, batch: Batch, first: int, end: int) -> None:
        super().__init__(batch, itemgetter(slice(first, end)))
        self.topic = batch.topic

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, filter(None, self.values)))


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
