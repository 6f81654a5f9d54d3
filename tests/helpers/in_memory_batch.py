"""Batch of records without Kafka, for tests of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.wire.record import Headers, OutputRecord


@dataclass(slots=True)
class InMemoryBatch:
    """Output records in the form of an input batch: implements `Batch` without Kafka."""

    partition: int
    outputs: Sequence[OutputRecord]
    offsets: Sequence[int] = ()
    """Offsets of the records; by default 0, 1, 2 and so on."""
    topic: str = "source"

    def __post_init__(self) -> None:
        self.offsets = self.offsets or range(len(self.outputs))

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, filter(None, self.values)))

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values of the records."""
        return [output.value for output in self.outputs]

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys of the records."""
        return [output.key for output in self.outputs]

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Timestamps of the records in ms; 0 if a record has none."""
        return np.array([output.timestamp or 0 for output in self.outputs], dtype=np.int64)

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of the records."""
        return [output.headers for output in self.outputs]
