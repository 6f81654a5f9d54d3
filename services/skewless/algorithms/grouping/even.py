"""EVEN: each key gets as many workers as its share needs, and no more. The project's own grouping.

Keys are hashed into buckets, and each bucket has a fixed order of all workers, the same in every router. A bucket uses
the first `width` workers of its order: as many as its recent share is worth, and more only while all of them are
overloaded. How much overload it bears before it takes another worker falls with its share: moving one heavy key evens
out more, for one more replica, than moving many light ones. docs/explanation/even.md has the reasons and the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.algorithms.grouping.base import Grouping, KeyBatch, array_of, whole_number
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import GroupingOptions
from skewless.algorithms.hashing import workers_of_keys

UNKNOWN = 8.0
"""Tuples per worker that count as seen before the first one: shares of a stream that has just begun are noise."""
SHRINK_AFTER = 4
"""Widths that are not needed any more are halved each time this many times the memory has passed."""
ACCEPTED = 0.25
"""A worker of the set is taken while its overload is below this part of what the bucket bears."""
HEAVY = 1e6
"""Weight of a tuple at which all weights are scaled back to 1."""

Table = tuple[NDArray[np.float32], NDArray[np.int16], NDArray[np.int16], NDArray[np.int32]]
"""One entry per bucket: its aged count, its width, the place in its order of the worker it used last, and the epoch in
which it was looked at last."""


class EvenGrouping(Grouping):
    """Loads and shares age by tuples, by forward decay (Cormode et al., ICDE 2009): there is no clock in it."""

    name: ClassVar[str] = "even"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._buckets = options.even.buckets
        self._tolerance = options.even.tolerance
        self._memory = options.even.memory
        self._loads = np.zeros(workers, dtype=np.float64)
        self._weights = np.array([0.0, 1.0])
        self._epoch = np.array([0, self._epoch_tuples()], dtype=np.int64)
        self._table = self._fresh_table()

    def _epoch_tuples(self) -> int:
        return SHRINK_AFTER * self._memory * self._workers

    def _fresh_table(self) -> Table:
        return (
            np.zeros(self._buckets, dtype=np.float32),
            np.ones(self._buckets, dtype=np.int16),
            np.zeros(self._buckets, dtype=np.int16),
            np.zeros(self._buckets, dtype=np.int32),
        )

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - it ages by tuples, not by time
        """Choose a worker of the set of each tuple's bucket, and widen the set where that is needed."""
        buckets = workers_of_keys(batch.keys, HOME_SEED, self._buckets)
        rules = (self._tolerance, 1.0 + 1.0 / (self._memory * self._workers), self._epoch_tuples())
        return _choose(
            batch.codes, buckets, _strides(self._workers), self._loads, self._weights, self._epoch, self._table, rules
        )

    def resize(self, workers: int) -> None:
        """Keep the shares of the buckets; all workers start level, and every bucket at the first of a new order."""
        super().resize(workers)
        self._loads = np.full(workers, self._weights[0] / workers)
        self._epoch = np.array([0, self._epoch_tuples()], dtype=np.int64)
        self._table = (self._table[0], *self._fresh_table()[1:])

    def snapshot(self) -> dict[str, object]:
        """Tell loads, weights and the table of the buckets."""
        counts, widths, places, epochs = self._table
        return super().snapshot() | {
            "buckets": self._buckets,
            "loads": self._loads.tobytes(),
            "weights": self._weights.tobytes(),
            "epoch": self._epoch.tobytes(),
            "counts": counts.tobytes(),
            "widths": widths.tobytes(),
            "places": places.tobytes(),
            "epochs": epochs.tobytes(),
        }

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on with the loads and sets of the snapshot; its number of buckets must be that of the options."""
        if whole_number(snapshot.get("buckets")) != self._buckets:
            raise TypeError(f"the snapshot has {snapshot['buckets']} buckets, not {self._buckets}")
        super().restore(snapshot)
        self._loads = array_of(snapshot.get("loads"), np.float64, self._workers)
        self._weights = array_of(snapshot.get("weights"), np.float64, 2)
        self._epoch = array_of(snapshot.get("epoch"), np.int64, 2)
        self._table = (
            array_of(snapshot.get("counts"), np.float32, self._buckets),
            array_of(snapshot.get("widths"), np.int16, self._buckets),
            array_of(snapshot.get("places"), np.int16, self._buckets),
            array_of(snapshot.get("epochs"), np.int32, self._buckets),
        )


def _strides(workers: int) -> NDArray[np.int64]:
    """List the steps that visit all workers before any of them twice."""
    return np.array([step for step in range(1, workers + 1) if gcd(step, workers) == 1], dtype=np.int64)


@compiled
def _choose(  # noqa: PLR0913, PLR0917 - compiled code takes arrays and numbers, no objects
    codes: NDArray[np.int32],
    buckets: NDArray[np.int32],
    strides: NDArray[np.int64],
    loads: NDArray[np.float64],
    weights: NDArray[np.float64],
    epoch: NDArray[np.int64],
    table: Table,
    rules: tuple[int, float, int],
) -> NDArray[np.int32]:
    """Decide tuple by tuple; `weights` is (all loads, the next tuple), `epoch` is (number, tuples until the next)."""
    counts, widths, places, epochs = table
    tolerance, ageing, epoch_tuples = rules
    workers = len(loads)
    chosen = np.empty(len(codes), dtype=np.int32)
    for row, code in enumerate(codes):
        bucket = buckets[code]
        total, weight = weights
        counts[bucket] += weight
        share = counts[bucket] * workers / (total + UNKNOWN * workers * weight)
        needed = min(workers, int(np.ceil(share)))
        if epochs[bucket] != epoch[0]:
            spare = max(0, widths[bucket] - needed) >> min(epoch[0] - epochs[bucket], 31)
            widths[bucket] = needed + spare
            epochs[bucket] = epoch[0]
            places[bucket] = min(places[bucket], widths[bucket] - 1)
        widths[bucket] = max(widths[bucket], needed)
        mean = total / workers
        bears = tolerance * weight / (1.0 + share)
        home, stride = bucket % workers, strides[bucket // workers % len(strides)]
        place = _least_loaded(loads, home, stride, places[bucket], widths[bucket], mean + ACCEPTED * bears)
        load = loads[(home + place * stride) % workers]
        if load > mean + bears:
            further = _relief(loads, home, stride, widths[bucket], load - bears)
            if further >= 0:
                place = further
                widths[bucket] = place + 1
        places[bucket] = place
        worker = (home + place * stride) % workers
        chosen[row] = worker
        loads[worker] += weight
        weights[0] += weight
        weights[1] *= ageing
        epoch[1] -= 1
        if epoch[1] <= 0:
            epoch[0] += 1
            epoch[1] = epoch_tuples
        if weights[1] > HEAVY:
            loads /= weights[1]
            counts /= weights[1]
            weights /= weights[1]
    return chosen


@compiled
def _least_loaded(  # noqa: PLR0913, PLR0917 - as above
    loads: NDArray[np.float64], home: int, stride: int, place: int, width: int, accepted: float
) -> int:
    """Place of the first worker at most `accepted` full, from the one used last on; else of the least loaded."""
    least = place
    worker = (home + place * stride) % len(loads)
    load = loads[worker]
    for _ in range(width - 1):
        if load <= accepted:
            break
        place += 1
        worker += stride
        if place == width:
            place, worker = 0, home
        if worker >= len(loads):
            worker -= len(loads)
        if loads[worker] < load:
            load, least = loads[worker], place
    return least


@compiled
def _relief(loads: NDArray[np.float64], home: int, stride: int, width: int, limit: float) -> int:
    """Place of the next worker that is at most `limit` full, among as many as the set has already; -1 if none is."""
    for place in range(width, min(2 * width, len(loads))):
        if loads[(home + place * stride) % len(loads)] <= limit:
            return place
    return -1
