"""How far records are behind the newest one before them in their partition: what a splitter judges them by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Lateness:
    """Keeps the newest event time of each partition."""

    def __init__(self, partitions: int) -> None:
        self._newest = np.full(partitions, np.iinfo(np.int64).min, dtype=np.int64)

    def add(self, partitions: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return by how many ms each of the next records is older than the newest before it, 0 if it is not."""
        behind = np.zeros(len(times), dtype=np.int64)
        for partition in np.unique(partitions).tolist():
            mine = np.flatnonzero(partitions == partition)
            newest = np.maximum.accumulate(np.concatenate((self._newest[[partition]], times[mine])))
            behind[mine] = np.maximum(newest[:-1], times[mine]) - times[mine]
            self._newest[partition] = newest[-1]
        return behind
