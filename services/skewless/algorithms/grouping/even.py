"""EVEN: each key gets as many workers as its share needs, and no more. The project's own grouping.

Keys are hashed into buckets, and each bucket has a fixed order of all workers, the same in every router. A bucket uses
the first `width` workers of its order: as many as its recent share is worth, and more only while all of them are
overloaded. How much overload it bears before it takes another worker falls with its share: moving one heavy key evens
out more, for one more replica, than moving many light ones. docs/explanation/even.md has the reasons and the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import gcd
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.algorithms.grouping.base import Grouping, KeyBatch, Widths, array_of, whole_number
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

Orders = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""One entry per distinct key: its bucket, and the home and stride of the bucket's order of workers."""
Entry = np.dtype([("count", np.float32), ("width", np.int16), ("place", np.int16), ("epoch", np.int32)])
"""A bucket: its aged count, its width, the place in its order of the worker it used last, and the epoch in which its
width was looked at last. One record, so that a tuple costs one access to memory."""


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
        self._table = np.zeros(self._buckets, dtype=Entry)
        self._table["width"] = 1

    def _epoch_tuples(self) -> int:
        return SHRINK_AFTER * self._memory * self._workers

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - it ages by tuples, not by time
        """Choose a worker of the set of each tuple's bucket, and widen the set where that is needed."""
        buckets = workers_of_keys(batch.keys, HOME_SEED, self._buckets)
        strides = _strides(self._workers)
        orders = (buckets, buckets % self._workers, strides[buckets // self._workers % len(strides)])
        rules = (self._tolerance, 1.0 + 1.0 / (self._memory * self._workers), self._epoch_tuples())
        return _choose(batch.codes, orders, self._loads, self._weights, self._epoch, self._table, rules)

    def resize(self, workers: int) -> None:
        """Keep the shares of the buckets; all workers start level, and every bucket at the first of a new order."""
        super().resize(workers)
        self._loads = np.full(workers, self._weights[0] / workers)
        self._epoch = np.array([0, self._epoch_tuples()], dtype=np.int64)
        self._table["width"], self._table["place"], self._table["epoch"] = 1, 0, 0

    def widths(self) -> Widths:
        """Tell the widths of the buckets."""
        return Widths(1, self._table["width"].copy())

    def hottest_shares(self, most: int) -> NDArray[np.float64]:
        """Shares of the buckets, aged as all weights are."""
        total = self._weights[0]
        return np.sort(self._table["count"])[::-1][:most] / total if total else np.zeros(0)

    def snapshot(self) -> dict[str, object]:
        """Tell loads, weights and the table of the buckets."""
        return super().snapshot() | {
            "buckets": self._buckets,
            "loads": self._loads.tobytes(),
            "weights": self._weights.tobytes(),
            "epoch": self._epoch.tobytes(),
            "table": self._table.tobytes(),
        }

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on with the loads and sets of the snapshot; its number of buckets must be that of the options."""
        if whole_number(snapshot.get("buckets")) != self._buckets:
            raise TypeError(f"the snapshot has {snapshot['buckets']} buckets, not {self._buckets}")
        super().restore(snapshot)
        self._loads = array_of(snapshot.get("loads"), np.float64, self._workers)
        self._weights = array_of(snapshot.get("weights"), np.float64, 2)
        self._epoch = array_of(snapshot.get("epoch"), np.int64, 2)
        self._table = array_of(snapshot.get("table"), Entry, self._buckets)


@cache
def _strides(workers: int) -> NDArray[np.int32]:
    """List the steps that visit all workers before any of them twice."""
    return np.array([step for step in range(1, workers + 1) if gcd(step, workers) == 1], dtype=np.int32)


@compiled
def _choose(  # noqa: PLR0913, PLR0917 - compiled code takes arrays and numbers, no objects
    codes: NDArray[np.int32],
    orders: Orders,
    loads: NDArray[np.float64],
    weights: NDArray[np.float64],
    epoch: NDArray[np.int64],
    table: NDArray[Any],
    rules: tuple[int, float, int],
) -> NDArray[np.int32]:
    """Decide tuple by tuple; `weights` is (all loads, the next tuple), `epoch` is (number, tuples until the next)."""
    buckets, homes, strides = orders
    tolerance, ageing, epoch_tuples = rules
    workers = len(loads)
    total, weight = weights
    number, left = epoch
    chosen = np.empty(len(codes), dtype=np.int32)
    for row, code in enumerate(codes):
        entry, worker = table[buckets[code]], homes[code]
        entry.count += weight
        mean = total * (1.0 / workers)
        worth = mean + UNKNOWN * weight
        at_home = entry.width == 1 and entry.epoch == number and entry.count <= worth
        if not at_home or loads[worker] > mean + 0.5 * tolerance * weight:
            worker = _spread(entry, loads, worker, strides[code], mean, entry.count / worth, tolerance * weight, number)
        chosen[row] = worker
        loads[worker] += weight
        total += weight
        weight *= ageing
        left -= 1
        if left <= 0:
            number, left = number + 1, epoch_tuples
        if weight > HEAVY:
            loads /= weight
            for each in table:
                each.count /= weight
            total, weight = total / weight, 1.0
    weights[:] = total, weight
    epoch[:] = number, left
    return chosen


@compiled
def _spread(  # noqa: PLR0913, PLR0917 - as above
    entry: Any,
    loads: NDArray[np.float64],
    home: int,
    stride: int,
    mean: float,
    share: float,
    tolerance: float,
    number: int,
) -> int:
    """Choose a worker for a bucket that is wide, was not looked at in this epoch, or may be too much for its home."""
    workers = len(loads)
    if share > entry.width or entry.epoch != number:
        needed = max(1, min(workers, int(np.ceil(share))))
        entry.width = needed + (max(0, entry.width - needed) >> min(number - entry.epoch, 31))
        entry.epoch = number
        entry.place = min(entry.place, entry.width - 1)
    bears = tolerance / (1.0 + share)
    place, worker = _least_loaded(loads, home, stride, entry.place, entry.width, mean + ACCEPTED * bears)
    if loads[worker] > mean + bears:
        further = _relief(loads, home, stride, entry.width, loads[worker] - bears)
        if further > 0:
            place, worker = further, (home + further * stride) % workers
            entry.width = place + 1
    entry.place = place
    return worker


@compiled
def _least_loaded(  # noqa: PLR0913, PLR0917 - as above
    loads: NDArray[np.float64], home: int, stride: int, place: int, width: int, accepted: float
) -> tuple[int, int]:
    """Place and worker of the first at most `accepted` full, from the one used last on; else of the least loaded."""
    worker = (home + place * stride) % len(loads) if place else home
    least, chosen, load = place, worker, loads[worker]
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
            least, chosen, load = place, worker, loads[worker]
    return least, chosen


@compiled
def _relief(loads: NDArray[np.float64], home: int, stride: int, width: int, limit: float) -> int:
    """Place of the next worker that is at most `limit` full, among as many as the set has already; 0 if none is."""
    for place in range(width, min(2 * width, len(loads))):
        if loads[(home + place * stride) % len(loads)] <= limit:
            return place
    return 0
