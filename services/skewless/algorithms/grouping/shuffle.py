"""SHUFFLE: round robin, independent of the key. Perfect balance, but every key is sent to every worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import Grouping, KeyBatch, whole_number
from skewless.algorithms.grouping.options import GroupingOptions


class ShuffleGrouping(Grouping):
    """Workers in turn, beginning with worker 0."""

    name: ClassVar[str] = "shuffle"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._next = 0

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - does not depend on time
        """Return the next workers of the round, one per tuple."""
        end = self._next + len(batch.codes)
        workers = np.arange(self._next, end, dtype=np.int64) % self._workers
        self._next = end % self._workers
        return workers.astype(np.int32)

    def resize(self, workers: int) -> None:
        """Continue with the same worker if it still exists."""
        super().resize(workers)
        self._next %= workers

    def snapshot(self) -> dict[str, object]:
        """Return the number of workers and the next worker."""
        return super().snapshot() | {"next": self._next}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Continue with the next worker of the snapshot."""
        super().restore(snapshot)
        self._next = whole_number(snapshot.get("next"))
