"""EVEN: each key gets as many workers as its share needs, and no more. The project's own grouping.

The grouping hashes keys into buckets. Each bucket has a fixed order of all workers, the same in every router. A bucket
uses the first `width` workers of its order: as many as its recent share needs, and one more only while all of them lead
the mean load. The lead that a bucket allows falls with its share: to move one heavy key costs one more replica and
moves more load than to move many light ones. docs/explanation/even.md has the reasons and the bounds.
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

PRIOR_TUPLES = 8.0
"""Tuples per worker that count as seen before the first tuple: the shares of a new stream are noise."""
LAST_EPOCHS = 4
"""A bucket halves the part of its width that its share does not need in each epoch, of one memory; but it gives up the
last such worker only after so many epochs, since a light bucket often takes it again."""
MANY_WORKERS = 50
"""The setting `tolerance` is for so many workers or more."""
MOST_TOLERANCES = 2.0
"""With fewer workers the tolerance is up to this many times the setting."""
LEAST_MEMORIES = 10.0
"""The memory, in tuples per worker, is at least this many tolerances."""
HEAVY_LENIENCE = 1.5
"""A bucket allows up to this many tolerances more, in proportion to the share of heavy buckets in the load. A heavy
bucket needs more than one worker, so it avoids a worker that leads, and the lead is gone after a few tuples."""
CATCH_UP = 0.5
"""A worker can be behind the mean by at most this many tolerances; the router forgets the rest. Without this limit a
worker that was idle for a while gets what it missed on top of its present load."""
THRESHOLD, HEAVY_THRESHOLD = 0.25, 0.75
"""A bucket takes the first worker of its set whose lead is at most this part of what it allows. A heavy bucket allows
little and has many workers: with the lower threshold it would look at all of them for each tuple."""
RESCALE_WEIGHT = 1e6
"""Weight of a tuple at which the router divides all weights by it."""

Orders = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""One entry per distinct key: its bucket, and the home and stride of the bucket's order of workers."""
Entry = np.dtype([("count", np.float32), ("width", np.int16), ("place", np.int16), ("epoch", np.int32)])
"""A bucket: its aged count, its width, the place in its order of the worker it used last, and the epoch of its last
review. One record, so that a tuple costs one access to memory."""


class EvenGrouping(Grouping):
    """Loads and shares age by tuples, by forward decay (Cormode et al., ICDE 2009): there is no clock in it."""

    name: ClassVar[str] = "even"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._buckets = options.even.buckets
        self._tolerance = options.even.tolerance
        self._memory = options.even.memory
        self._loads = np.zeros(workers, dtype=np.float64)
        self._weights = np.array([0.0, 1.0, 0.0])
        self._epoch = np.array([0, self._epoch_tuples()], dtype=np.int64)
        self._table = np.zeros(self._buckets, dtype=Entry)
        self._table["width"] = 1

    def _epoch_tuples(self) -> int:
        return self._memory * self._workers

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - it ages by tuples, not by time
        """Choose a worker of the set of each tuple's bucket, and widen the set where that is needed."""
        buckets = workers_of_keys(batch.keys, HOME_SEED, self._buckets)
        strides = _coprime_strides(self._workers)
        orders = (buckets, buckets % self._workers, strides[buckets // self._workers % len(strides)])
        tolerance = _tolerance(self._tolerance, self._workers, self._memory)
        rules = (tolerance, 1.0 + 1.0 / (self._memory * self._workers), self._epoch_tuples())
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
        self._weights = array_of(snapshot.get("weights"), np.float64, 3)
        self._epoch = array_of(snapshot.get("epoch"), np.int64, 2)
        self._table = array_of(snapshot.get("table"), Entry, self._buckets)


def _tolerance(tuples: int, workers: int, memory: int) -> float:
    """Compute the tolerance for this number of workers, in tuples.

    To correct a lead costs a replica. A lead is a smaller part of each worker's load where there are fewer workers, so
    it can be larger there; the limit keeps queues short. A lead that stays is an excess of lead / memory.
    """
    return min(tuples * min(MOST_TOLERANCES, max(1.0, MANY_WORKERS / workers)), memory / LEAST_MEMORIES)


@cache
def _coprime_strides(workers: int) -> NDArray[np.int32]:
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
    rules: tuple[float, float, int],
) -> NDArray[np.int32]:
    """Choose tuple by tuple.

    `weights` is (all tuples, the next tuple, tuples of heavy buckets); `epoch` is (number, tuples until the next).
    """
    buckets, homes, strides = orders
    tolerance, ageing, epoch_tuples = rules
    workers = len(loads)
    total, weight, heavy = weights
    number, left = epoch
    chosen = np.empty(len(codes), dtype=np.int32)
    for row, code in enumerate(codes):
        bucket, worker = buckets[code], homes[code]
        entry = table[bucket]
        entry.count += weight
        mean = total * (1.0 / workers)
        fair_share = mean + PRIOR_TUPLES * weight
        if entry.count > fair_share:
            heavy += weight
        if entry.width > 1 or entry.count > fair_share or loads[worker] > mean + 0.5 * tolerance * weight:
            # The epochs of the buckets end one after the other: many widths that shrink at once would empty workers.
            current = number + (bucket * epoch_tuples < (epoch_tuples - left) * len(table))
            lead = tolerance * weight * (1.0 + HEAVY_LENIENCE * heavy / (total + weight))
            worker = _spread(entry, loads, worker, strides[code], mean, entry.count / fair_share, lead, current)
        chosen[row] = worker
        loads[worker] = max(loads[worker], mean - CATCH_UP * tolerance * weight) + weight
        total += weight
        weight *= ageing
        left -= 1
        if left <= 0:
            number, left = number + 1, epoch_tuples
        if weight > RESCALE_WEIGHT:
            loads /= weight
            for each in table:
                each.count /= weight
            total, heavy, weight = total / weight, heavy / weight, 1.0
    weights[:] = total, weight, heavy
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
    lead: float,
    epoch: int,
) -> int:
    """Choose a worker for a bucket that is wide, needs more than its width, or has a home that leads the mean.

    `share` is in units of one worker's share; `lead` is what the lightest bucket allows.
    """
    workers = len(loads)
    if share > entry.width or entry.epoch < epoch:
        needed = max(1, min(workers, int(np.ceil(share))))
        excess, epochs = max(0, entry.width - needed), max(0, epoch - entry.epoch)
        if excess != 1 or epochs >= LAST_EPOCHS:
            entry.width = needed + (excess >> min(epochs, 31))
            entry.epoch = max(entry.epoch, epoch)
            entry.place = min(entry.place, entry.width - 1)
    allowed = lead / (1.0 + share)
    accepted = allowed * (HEAVY_THRESHOLD if share > 1.0 else THRESHOLD)
    place, worker = _least_loaded(loads, home, stride, entry.place, entry.width, mean + accepted)
    if loads[worker] > mean + allowed:
        further = _find_less_loaded(loads, home, stride, entry.width, loads[worker] - allowed)
        if further > 0:
            place, worker = further, (home + further * stride) % workers
            entry.width, entry.epoch = place + 1, epoch + 1
    entry.place = place
    return worker


@compiled
def _least_loaded(  # noqa: PLR0913, PLR0917 - as above
    loads: NDArray[np.float64], home: int, stride: int, place: int, width: int, accepted: float
) -> tuple[int, int]:
    """Find place and worker of the first whose load is at most `accepted`, from the last used on; else the least."""
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
def _find_less_loaded(loads: NDArray[np.float64], home: int, stride: int, width: int, limit: float) -> int:
    """Find the place of the next worker with at most this load, among as many as the set has already; 0 for none."""
    for place in range(width, min(2 * width, len(loads))):
        if loads[(home + place * stride) % len(loads)] <= limit:
            return place
    return 0
