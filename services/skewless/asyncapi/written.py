"""Records as batches without Kafka, for the document's examples and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.records import Headers, Output


@dataclass(slots=True)
class WrittenBatch:
    """What was written as it will be read: implements `Batch` without Kafka."""

    partition: int
    outputs: Sequence[Output]
    offsets: Sequence[int] = ()
    """Their offsets; by default from 0, without gaps."""

    def __post_init__(self) -> None:
        self.offsets = self.offsets or range(len(self.outputs))

    @property
    def values(self) -> Sequence[bytes | None]:
        """Their values."""
        return [output.value for output in self.outputs]

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Their keys."""
        return [output.key for output in self.outputs]

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Their timestamps in ms; 0 where none was given."""
        return np.array([output.timestamp or 0 for output in self.outputs], dtype=np.int64)

    @property
    def headers(self) -> Sequence[Headers]:
        """Their headers."""
        return [output.headers for output in self.outputs]
