"""DYNAMIC_KEY (DKG): a slice of a ring of workers per key, wider for hot keys (as in DynamicKeyGrouping for Storm)."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.algorithms.grouping.base import Grouping, KeyBatch, Widths, array_of, whole_number
from skewless.algorithms.grouping.keyspace import HotKey, KeySpace
from skewless.algorithms.grouping.keytable import BABY, NEVER, NONE, OLD, Keys, KeyTable
from skewless.algorithms.grouping.options import GroupingOptions


class DynamicKeyGrouping(Grouping):
    """Each tuple goes to the least loaded of its key's pool: the workers from the key's home on.

    A pool has `initial_workers` at first, and never fewer.
    A load is a worker's share of this router's tuples in percent. Keys in the key space are checked now and then: one
    of the old generation whose pool is overloaded gets one more worker, one that can do without one of its workers
    loses it.

    What it remembers is bounded by `distinct_keys` and the new keys between two promotions, these by `overfill`, beyond
    which new keys are not counted until the next promotion. A check is forgotten with its key's place in the key space.
    A pool that has grown outlives it: by the published rules until its key had no tuple for `evict_after_s`, by the
    reference's for ever, at most one pool for each place in the old generation and promotion to it.
    """

    name: ClassVar[str] = "dynamic_key"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._options = options.dynamic_key
        self._sent = np.zeros(workers, dtype=np.int64)
        self._sent_before = 0
        """Tuples before the last change of W."""
        self._begin_at_zero()

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:
        """Choose the worker of every tuple; promotions due at or before its time come before it."""
        chosen = np.empty(len(batch.codes), dtype=np.int32)
        if len(chosen) == 0:
            return chosen
        times = self.times_of(batch, now)
        if self._space.start == NEVER:
            self._space.start = int(times[0])
        slots = self._table.slots_of(batch.keys)
        slot_of_each, promotions, row = slots[batch.codes], self._space.promotions, 0
        while row < len(chosen):
            self._space.promote_until(int(times[row]))
            row = _route(slot_of_each, times, chosen, row, self._state())
        self._table.release(slots if promotions == self._space.promotions else slice(None))
        return chosen

    def hottest_keys(self) -> list[HotKey]:
        """Keys of the old generation with their tuples and number of workers, the one with most tuples first."""
        return self._space.hottest()

    def widths(self) -> Widths:
        """Tell the pools."""
        pools, initial = self._table.columns.pool, self._table.initial_pool
        return Widths(min(initial, self._workers), np.minimum(pools, self._workers))

    def hottest_shares(self, most: int) -> NDArray[np.float64]:
        """Shares of the keys of the old generation; their tuples count from when they were last new to the router."""
        keys, total = self._table.columns, self._sent_before + int(self._sent.sum())
        tuples = np.sort(keys.tuples[keys.generation == OLD])[::-1][:most].astype(np.float64)
        return np.minimum(tuples / max(1, total), np.ones(1))

    def resize(self, workers: int) -> None:
        """Start all loads at zero again, among the new workers; the key space stays, pools are clipped."""
        super().resize(workers)
        self._sent_before += int(self._sent.sum())
        self._sent = np.zeros(workers, dtype=np.int64)
        self._table.resize(workers)

    def snapshot(self) -> dict[str, object]:
        """Tell the tuples sent to each worker, the time of the next promotion, and all that is known of keys."""
        space = {"start": self._space.start, "promotions": self._space.promotions}
        return super().snapshot() | {"sent": self._sent.tobytes()} | space | self._table.snapshot()

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on with the loads and the keys of the snapshot."""
        super().restore(snapshot)
        self._begin_at_zero()
        self._sent = array_of(snapshot.get("sent"), np.int64, self._workers)
        self._space.start = whole_number(snapshot.get("start"))
        self._space.promotions = whole_number(snapshot.get("promotions"))
        self._table.restore(snapshot)

    def _begin_at_zero(self) -> None:
        self._table = KeyTable(self._workers, self._options.initial_workers)
        self._space = KeySpace(self._table, self._options)

    def _state(self) -> _State:
        whole = self._options.rules == "reference"
        enough, spare = _thresholds(self._workers, whole=whole)
        rules = _Rules(
            whole=whole,
            enough=enough,
            spare=spare,
            check_interval=self._options.check_interval_s * 1_000,
            warm_at=self._space.start + self._options.warm_up_s * 1_000,
            due=self._space.due,
            overfill=self._options.overfill,
            initial_pool=self._options.initial_workers,
        )
        return _State(self._table.columns, self._sent, rules)


class _Rules(NamedTuple):
    """Loads in percent, times in milliseconds."""

    whole: bool
    """Whether loads are truncated to whole numbers."""
    enough: float
    """The least load at which a worker is overloaded."""
    spare: float
    """A worker with a lower load is not needed."""
    check_interval: int
    warm_at: int
    due: int
    overfill: int
    initial_pool: int


class _State(NamedTuple):
    keys: Keys
    sent: NDArray[np.int64]
    rules: _Rules


def _thresholds(workers: int, *, whole: bool) -> tuple[float, float]:
    """Two loads, of a worker overloaded and of one not needed; the reference truncates, and uses the first for both."""
    ideal = 100 / workers
    above, below = ideal + sqrt(ideal), ideal - sqrt(ideal)
    return (float(int(above)), float(int(above))) if whole else (above, below)


@compiled
def _route(
    slots: NDArray[np.int32], times: NDArray[np.int64], chosen: NDArray[np.int32], row: int, state: _State
) -> int:
    """Choose for the tuples from `row` on and count them, up to the next promotion; the row at which it is due."""
    keys, sent, rules = state
    total = sent.sum()
    babies = (keys.generation == BABY).sum()
    while row < len(slots) and times[row] < rules.due:
        slot, time = slots[row], times[row]
        worker = _least_loaded(slot, total, state)
        if keys.generation[slot] != NONE and (
            keys.checked[slot] == NEVER or time - keys.checked[slot] > rules.check_interval
        ):
            keys.checked[slot] = time
            worker = _scale(slot, time, worker, total, state)
        chosen[row] = worker
        sent[worker] += 1
        total += 1
        if keys.generation[slot] == NONE and babies < rules.overfill:
            keys.generation[slot] = BABY
            babies += 1
        if keys.generation[slot] != NONE:
            keys.tuples[slot] += 1
            keys.used[slot, worker >> 3] |= 1 << (worker & 7)
        keys.seen[slot] = max(keys.seen[slot], time)
        row += 1
    return row


@compiled
def _scale(slot: int, time: int, least: int, total: int, state: _State) -> int:
    """Widen or narrow the key's pool by one if its loads ask for it; the worker that gets the tuple then."""
    keys, sent, rules = state
    load, pool = _load(least, total, state), keys.pool[slot]
    if time > rules.warm_at and load >= rules.enough and keys.generation[slot] == OLD and pool < len(sent):
        candidate = (keys.home[slot] + pool) % len(sent)
        if _load(candidate, total, state) < load:
            keys.pool[slot] += 1
            return int(candidate)
    elif pool > rules.initial_pool:
        unneeded = 0
        for step in range(pool):
            unneeded += _load((keys.home[slot] + step) % len(sent), total, state) < rules.spare
        if unneeded >= 2:
            keys.pool[slot] -= 1
            return _least_loaded(slot, total, state)
    return least


@compiled
def _least_loaded(slot: int, total: int, state: _State) -> int:
    """Find the candidate of the key with the least load, the first on a tie."""
    keys, sent, _ = state
    worker = best = keys.home[slot]
    least = _load(best, total, state)
    for _ in range(1, keys.pool[slot]):
        worker = worker + 1 if worker + 1 < len(sent) else 0
        load = _load(worker, total, state)
        if load < least:
            best, least = worker, load
    return int(best)


@compiled
def _load(worker: int, total: int, state: _State) -> float:
    """Tell the worker's tuples in percent of all, 0 before the first."""
    if total == 0:
        return 0.0
    load = 100.0 * state.sent[worker] / total
    return float(np.floor(load)) if state.rules.whole else float(load)
