"""Computes the lateness of records: the time from their deadline to the newest earlier record of their partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.watermark import Deadlines


class LatenessTracker:
    """Tracks the newest event time of each partition."""

    def __init__(self, partitions: int) -> None:
        self._newest_ms = np.full(partitions, np.iinfo(np.int64).min, dtype=np.int64)

    def add(self, partitions: NDArray[np.int64], times: NDArray[np.int64], deadlines: Deadlines) -> NDArray[np.int64]:
        """Add the next records (partition and event time of each) and return the lateness of each in ms.

        It is the allowed lateness with which a record is not late: 0 if no earlier record of its partition is newer
        than its deadline. `deadlines` is that of `EventTimeRules`.
        """
        lateness = np.zeros(len(times), dtype=np.int64)
        for partition in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == partition)
            newest = np.maximum.accumulate(np.concatenate((self._newest_ms[[partition]], times[rows])))
            deadline = deadlines(times[rows])
            lateness[rows] = np.maximum(newest[:-1], deadline) - deadline
            self._newest_ms[partition] = newest[-1]
        return lateness
