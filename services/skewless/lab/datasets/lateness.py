"""Computes the lateness of records: the time from their deadline to the newest earlier record of their partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.watermark import Deadlines


class LatenessTracker:
    """Tracks the newest event time of each partition."""

    def __init__(self) -> None:
        self.newest_ms: dict[int, int] = {}

    def add(self, partitions: NDArray[np.int64], times: NDArray[np.int64], deadlines: Deadlines) -> NDArray[np.int64]:
        """Add the next records (partition and event time of each) and return the lateness of each in ms."""
        lateness = np.zeros(len(times), dtype=np.int64)
        for partition in np.unique(partitions).tolist():
            rows = partitions == partition
            lateness[rows] = self.add_to(partition, times[rows], deadlines)
        return lateness

    def add_to(self, partition: int, times: NDArray[np.int64], deadlines: Deadlines | None = None) -> NDArray[np.int64]:
        """Add the next event times of a partition, at least one, and return the lateness of each in ms.

        It is the allowed lateness with which a record is not late: 0 if no earlier record of its partition is newer
        than its deadline. `deadlines` is that of `EventTimeRules`; None: the event times themselves.
        """
        first = self.newest_ms.get(partition, int(times[0]))
        newest = np.maximum.accumulate(np.concatenate((np.array([first]), times)))
        self.newest_ms[partition] = int(newest[-1])
        return np.maximum(newest[:-1] - (times if deadlines is None else deadlines(times)), 0)
