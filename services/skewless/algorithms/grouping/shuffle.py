"""SHUFFLE: round robin, whatever the key. Perfect balance; every key ends up on every worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import Grouping, KeyBatch, whole_number
from skewless.algorithms.grouping.options import GroupingOptions


class ShuffleGrouping(Grouping):
    """Workers in turn, from worker 0 on."""

    name: ClassVar[str] = "shuffle"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._next = 0

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - time plays no part
        """Take the next workers of the round, one per tuple."""
        end = self._next + len(batch.codes)
        turns = np.arange(self._next, end, dtype=np.int64) % self._workers
        self._next = end % self._workers
        return turns.astype(np.int32)

    def resize(self, workers: int) -> None:
        """Go on with the same worker, if it is still there."""
        super().resize(workers)
        self._next %= workers

    def snapshot(self) -> dict[str, object]:
        """Tell the number of workers and whose turn it is."""
        return super().snapshot() | {"next": self._next}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on where the snapshot was taken."""
        super().restore(snapshot)
        self._next = whole_number(snapshot.get("next"))
