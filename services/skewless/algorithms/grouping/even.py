"""EVEN: each key gets as many workers as its share needs, and no more. The project's own grouping.

The grouping hashes keys into buckets. Each bucket has a fixed order of all workers, the same in every router. A bucket
uses the first `width` workers of its order: as many as its recent share needs, and more only while the loads of all of
them lead the mean load by more than the bucket allows. The allowed lead decreases with the share of the bucket, because
one more replica of a heavy key moves more load than one more replica of a light key. docs/explanation/even.md has the
reasons and the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import gcd
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import Grouping, KeyBatch, Widths, array_of, whole_number
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import GroupingOptions
from skewless.algorithms.hashing import workers_of_keys
from skewless.algorithms.jit import jit

PRIOR_TUPLES = 8.0
"""Tuples per worker that are assumed before the first tuple, because the shares of a new stream are noise."""
LAST_WORKER_EPOCHS = 4
"""In each epoch (the tuples of one memory) a bucket removes half of the workers that its share does not need. The last
such worker is removed only after this many epochs, because a light bucket often needs it again."""
MANY_WORKERS = 50
"""The setting `tolerance` applies unchanged for this many workers or more."""
MAX_TOLERANCE_FACTOR = 2.0
"""With fewer workers the tolerance is up to this many times the setting."""
MIN_MEMORY_TOLERANCES = 10.0
"""The memory, in tuples per worker, is at least this many tolerances."""
HEAVY_LENIENCE = 1.5
"""A bucket allows a lead of up to this many tolerances more, in proportion to the load share of heavy buckets. A heavy
bucket needs more than one worker. It avoids a worker with a lead, so that the lead is gone after a few tuples."""
MAX_DEFICIT = 0.5
"""The load of a worker is at most this many tolerances below the mean: a lower load is raised to this limit. Without
it, a worker that was idle for a while would receive the missed tuples on top of its present load."""
LEAD_THRESHOLD, HEAVY_LEAD_THRESHOLD = 0.25, 0.75
"""A bucket uses the first worker of its set whose lead is at most this fraction of the allowed lead. A heavy bucket
allows a small lead and has many workers: with the lower threshold it would check all of them for each tuple."""
REDUCED_BUCKETS = 3 * 2**16
"""Number of buckets in a reduced snapshot, which has 3.3 MB with them."""
RESCALE_WEIGHT = 1e6
"""Weight of a tuple above which the router divides all weights by it."""

Orders = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""Per distinct key: its bucket, and the home and stride of the bucket's order of workers."""
Entry = np.dtype([("count", np.float64), ("width", np.int16), ("place", np.int16), ("epoch", np.int32)])
"""A bucket: decayed count, width, place of the last used worker in the bucket's order, epoch of the last review. One
record, so that a tuple costs one memory access."""


class EvenGrouping(Grouping):
    """Decays loads and shares by the number of tuples, not by time: forward decay (Cormode et al., ICDE 2009)."""

    name: ClassVar[str] = "even"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._buckets = options.even.hash_buckets
        self._tolerance = options.even.overload_tolerance
        self._memory = options.even.decay_tuples
        self._loads = np.zeros(workers, dtype=np.float64)
        self._weights = np.array([0.0, 1.0, 0.0])
        self._epoch = np.array([0, self._epoch_tuples()], dtype=np.int64)
        self._table = self._empty_table()

    def _empty_table(self) -> NDArray[Any]:
        table = np.zeros(self._buckets, dtype=Entry)
        table["width"] = 1
        return table

    def _epoch_tuples(self) -> int:
        return self._memory * self._workers

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - decays with tuples, not with time
        """Return a worker from the set of each tuple's bucket, and widen the set if necessary."""
        buckets = workers_of_keys(batch.keys, HOME_SEED, self._buckets)
        strides = _coprime_strides(self._workers)
        orders = (buckets, buckets % self._workers, strides[buckets // self._workers % len(strides)])
        tolerance = _effective_tolerance(self._tolerance, self._workers, self._memory)
        rules = (tolerance, 1.0 + 1.0 / (self._memory * self._workers), self._epoch_tuples())
        return _choose(batch.codes, orders, self._loads, self._weights, self._epoch, self._table, rules)

    def resize(self, workers: int) -> None:
        """Keep the shares of the buckets. All loads become equal; every bucket restarts at the home of a new order."""
        super().resize(workers)
        self._loads = np.full(workers, self._weights[0] / workers)
        self._epoch = np.array([0, self._epoch_tuples()], dtype=np.int64)
        self._table["width"], self._table["place"], self._table["epoch"] = 1, 0, 0

    def widths(self) -> Widths:
        """Return the widths of the buckets."""
        return Widths(1, self._table["width"].copy())

    def top_key_shares(self, limit: int) -> NDArray[np.float64]:
        """Return the shares of the buckets, decayed like all weights."""
        total = self._weights[0]
        return np.sort(self._table["count"])[::-1][:limit] / total if total else np.zeros(0)

    def snapshot(self) -> dict[str, object]:
        """Return loads, weights and the table of the buckets."""
        return super().snapshot() | {
            "buckets": self._buckets,
            "loads": self._loads.tobytes(),
            "weights": self._weights.tobytes(),
            "epoch": self._epoch.tobytes(),
            "table": self._table.tobytes(),
        }

    def reduced_snapshot(self) -> dict[str, object]:
        """Return a snapshot with the heaviest buckets. The others restart at their home, without a share."""
        stored = np.zeros(self._buckets, dtype=np.bool_)
        stored[np.argsort(self._table["count"])[-REDUCED_BUCKETS:]] = True
        return self.snapshot() | {"stored": np.packbits(stored).tobytes(), "table": self._table[stored].tobytes()}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the loads and sets. Raises TypeError if the number of buckets differs from the options."""
        if whole_number(snapshot.get("buckets")) != self._buckets:
            raise TypeError(f"a grouping's snapshot has {snapshot['buckets']} buckets, not {self._buckets}")
        super().restore(snapshot)
        self._loads = array_of(snapshot.get("loads"), np.float64, self._workers)
        self._weights = array_of(snapshot.get("weights"), np.float64, 3)
        self._epoch = array_of(snapshot.get("epoch"), np.int64, 2)
        # With smaller `decay_tuples` than before, the epoch ends earlier.
        self._epoch[1] = min(self._epoch[1], self._epoch_tuples())
        stored = np.ones(self._buckets, dtype=np.bool_)
        if "stored" in snapshot:
            bits = array_of(snapshot["stored"], np.uint8, len(np.packbits(stored)))
            stored = np.unpackbits(bits, count=self._buckets).view(np.bool_)
        self._table = self._empty_table()
        self._table[stored] = array_of(snapshot.get("table"), Entry, int(stored.sum()))


def _effective_tolerance(setting: int, workers: int, memory: int) -> float:
    """Return the tolerance for this number of workers, in tuples."""
    # Each correction of a lead costs a replica. With fewer workers a lead is a smaller part of the load of each worker,
    # so it may be larger; the upper limit keeps queues short. A lasting lead is an excess load of lead / memory.
    return min(setting * min(MAX_TOLERANCE_FACTOR, max(1.0, MANY_WORKERS / workers)), memory / MIN_MEMORY_TOLERANCES)


@cache
def _coprime_strides(workers: int) -> NDArray[np.int32]:
    """Return the strides that visit every worker once per round."""
    return np.array([step for step in range(1, workers + 1) if gcd(step, workers) == 1], dtype=np.int32)


@jit
def _choose(  # noqa: PLR0913, PLR0917 - compiled code takes arrays and numbers, no objects
    codes: NDArray[np.int32],
    orders: Orders,
    loads: NDArray[np.float64],
    weights: NDArray[np.float64],
    epoch: NDArray[np.int64],
    table: NDArray[Any],
    rules: tuple[float, float, int],
) -> NDArray[np.int32]:
    """Return the worker of each tuple, and update all arrays.

    `weights` is (all tuples, the next tuple, tuples of heavy buckets); `epoch` is (number, tuples until the next).
    """
    buckets, homes, strides = orders
    tolerance, growth, epoch_tuples = rules
    workers = len(loads)
    total, weight, heavy = weights
    number, remaining = epoch
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
            # The epochs of the buckets end one after the other. If many widths shrank at once, workers would be idle.
            current = number + (bucket * epoch_tuples < (epoch_tuples - remaining) * len(table))
            lead = tolerance * weight * (1.0 + HEAVY_LENIENCE * heavy / (total + weight))
            worker = _choose_in_set(entry, loads, worker, strides[code], mean, entry.count / fair_share, lead, current)
        chosen[row] = worker
        loads[worker] = max(loads[worker], mean - MAX_DEFICIT * tolerance * weight) + weight
        total += weight
        weight *= growth
        remaining -= 1
        if remaining <= 0:
            number, remaining = number + 1, epoch_tuples
        if weight > RESCALE_WEIGHT:
            loads /= weight
            for table_entry in table:
                table_entry.count /= weight
            total, heavy, weight = total / weight, heavy / weight, 1.0
    weights[:] = total, weight, heavy
    epoch[:] = number, remaining
    return chosen


@jit
def _choose_in_set(  # noqa: PLR0913, PLR0917 - as above
    entry: Any,
    loads: NDArray[np.float64],
    home: int,
    stride: int,
    mean: float,
    share: float,
    lead: float,
    epoch: int,
) -> int:
    """Return a worker for a bucket that is wide, needs to be wider, or has a home with a lead. Reviews the width.

    `share` is in units of one worker's fair share; `lead` is the allowed lead of the lightest bucket.
    """
    workers = len(loads)
    if share > entry.width or entry.epoch < epoch:
        required = max(1, min(workers, int(np.ceil(share))))
        excess, epochs = max(0, entry.width - required), max(0, epoch - entry.epoch)
        if excess != 1 or epochs >= LAST_WORKER_EPOCHS:
            entry.width = required + (excess >> min(epochs, 31))
            entry.epoch = max(entry.epoch, epoch)
            entry.place = min(entry.place, entry.width - 1)
    allowed = lead / (1.0 + share)
    accepted = allowed * (HEAVY_LEAD_THRESHOLD if share > 1.0 else LEAD_THRESHOLD)
    place, worker = _least_loaded(loads, home, stride, entry.place, entry.width, mean + accepted)
    if loads[worker] > mean + allowed:
        next_place = _find_less_loaded(loads, home, stride, entry.width, loads[worker] - allowed)
        if next_place > 0:
            place, worker = next_place, (home + next_place * stride) % workers
            entry.width, entry.epoch = place + 1, epoch + 1
    entry.place = place
    return worker


@jit
def _least_loaded(  # noqa: PLR0913, PLR0917 - as above
    loads: NDArray[np.float64], home: int, stride: int, place: int, width: int, limit: float
) -> tuple[int, int]:
    """Return place and worker of the first load of at most `limit`, from `place` on, or of the lowest load if none."""
    worker = (home + place * stride) % len(loads) if place else home
    best_place, best_worker, lowest = place, worker, loads[worker]
    for _ in range(width - 1):
        if lowest <= limit:
            break
        place += 1
        worker += stride
        if place == width:
            place, worker = 0, home
        if worker >= len(loads):
            worker -= len(loads)
        if loads[worker] < lowest:
            best_place, best_worker, lowest = place, worker, loads[worker]
    return best_place, best_worker


@jit
def _find_less_loaded(loads: NDArray[np.float64], home: int, stride: int, width: int, limit: float) -> int:
    """Return the place of the next worker with at most this load, among `width` workers after the set; 0 if none."""
    for place in range(width, min(2 * width, len(loads))):
        if loads[(home + place * stride) % len(loads)] <= limit:
            return place
    return 0
