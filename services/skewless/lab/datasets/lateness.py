"""Computes the lateness of records: their age relative to the newest earlier record of their partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class LatenessTracker:
    """Tracks the newest event time of each partition."""

    def __init__(self, partitions: int) -> None:
        self._newest_ms = np.full(partitions, np.iinfo(np.int64).min, dtype=np.int64)

    def add(self, partitions: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add the next records (partition and event time of each) and return the lateness of each in ms.

        The lateness is 0 for a record that is at least as new as every earlier record of its partition.
        """
        lateness = np.zeros(len(times), dtype=np.int64)
        for partition in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == partition)
            newest = np.maximum.accumulate(np.concatenate((self._newest_ms[[partition]], times[rows])))
            lateness[rows] = np.maximum(newest[:-1], times[rows]) - times[rows]
            self._newest_ms[partition] = newest[-1]
        return lateness
