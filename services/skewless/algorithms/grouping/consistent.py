"""CONSISTENT: consistent hashing with bounded loads (Mirrokni et al., SODA 2018, arXiv 1608.01350)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import KeyBatch, LoadGrouping
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import GroupingOptions
from skewless.algorithms.hashing import hashes_of_keys
from skewless.algorithms.jit import jit


class ConsistentGrouping(LoadGrouping):
    """Sends a tuple to the first worker below capacity, clockwise from the hash of its key on a ring.

    The load of a worker is the number of tuples sent to it. The capacity is (1 + slack) x the average load including
    this tuple, rounded up. Each worker has `points` points on the ring. They do not move when the number of workers
    changes.
    """

    name: ClassVar[str] = "consistent"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._options = options.consistent
        self._points, self._owners = _ring(workers, self._options.points)

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - does not depend on time
        """Walk the ring for every tuple, past workers that have reached their capacity."""
        starts = np.searchsorted(self._points, hashes_of_keys(batch.keys, HOME_SEED)) % len(self._points)
        return _first_below_capacity(batch.codes, starts, self._owners, 1.0 + self._options.slack, self._sent)

    def resize(self, workers: int) -> None:
        """Reset all loads to zero, and build the ring for the number of workers."""
        super().resize(workers)
        self._points, self._owners = _ring(workers, self._options.points)

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the loads, and build the ring for the number of workers."""
        super().restore(snapshot)
        self._points, self._owners = _ring(self._workers, self._options.points)


def _ring(workers: int, points: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the hashes of all points on the ring of 64-bit hashes in clockwise order, and the worker of each point."""
    names = [f"worker {worker} point {point}" for worker in range(workers) for point in range(points)]
    hashes = hashes_of_keys(names, HOME_SEED)
    order = np.argsort(hashes, kind="stable")
    return hashes[order], (order // points).astype(np.int32)


@jit
def _first_below_capacity(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    capacity_factor: float,
    sent: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return one worker per tuple, and count each tuple in `sent`."""
    chosen = np.empty(len(codes), dtype=np.int32)
    total = sent.sum()
    for row, code in enumerate(codes):
        total += 1
        capacity = np.ceil(capacity_factor * total / len(sent))
        point = starts[code]
        while sent[owners[point]] >= capacity:
            point = (point + 1) % len(owners)
        sent[owners[point]] += 1
        chosen[row] = owners[point]
    return chosen
