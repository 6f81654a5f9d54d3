"""CONSISTENT: consistent hashing with bounded loads (Mirrokni et al., SODA 2018, arXiv 1608.01350)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.algorithms.grouping.base import Grouping, KeyBatch, array_of
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import GroupingOptions
from skewless.algorithms.hashing import hashes_of_keys


class ConsistentGrouping(Grouping):
    """A tuple goes to the first worker clockwise from its key's place on a ring that is below capacity.

    Load is tuples sent; capacity is (1 + slack) x the average load with this tuple, rounded up. Each worker has as many
    points on the ring as the options say, and they stay where they are when other workers come and go.
    """

    name: ClassVar[str] = "consistent"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._options = options.consistent
        self._sent = np.zeros(workers, dtype=np.int64)
        self._places, self._owners = _ring(workers, self._options.points)

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - time plays no part
        """Walk the ring for every tuple, past workers that are full."""
        starts = np.searchsorted(self._places, hashes_of_keys(batch.keys, HOME_SEED)) % len(self._places)
        return _first_with_room(batch.codes, starts, self._owners, 1.0 + self._options.slack, self._sent)

    def resize(self, workers: int) -> None:
        """Start all loads at zero again: with those of before, new workers would be far below capacity for long."""
        super().resize(workers)
        self._sent = np.zeros(workers, dtype=np.int64)
        self._places, self._owners = _ring(workers, self._options.points)

    def snapshot(self) -> dict[str, object]:
        """Tell the tuples sent to each worker; the ring follows from the number of workers."""
        return super().snapshot() | {"sent": self._sent.tobytes()}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on with the loads of the snapshot."""
        super().restore(snapshot)
        self._sent = array_of(snapshot.get("sent"), np.int64, self._workers)
        self._places, self._owners = _ring(self._workers, self._options.points)


def _ring(workers: int, points: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Places of all points on the circle of 64-bit hashes in clockwise order, and the workers that they belong to."""
    names = [f"worker {worker} point {point}" for worker in range(workers) for point in range(points)]
    places = hashes_of_keys(names, HOME_SEED)
    order = np.argsort(places, kind="stable")
    return places[order], (order // points).astype(np.int32)


@compiled
def _first_with_room(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    owners: NDArray[np.int32],
    excess: float,
    sent: NDArray[np.int64],
) -> NDArray[np.int32]:
    """One worker per tuple; counts it in `sent`."""
    chosen = np.empty(len(codes), dtype=np.int32)
    total = sent.sum()
    for row, code in enumerate(codes):
        total += 1
        capacity = np.ceil(excess * total / len(sent))
        point = starts[code]
        while sent[owners[point]] >= capacity:
            point = (point + 1) % len(owners)
        sent[owners[point]] += 1
        chosen[row] = owners[point]
    return chosen
