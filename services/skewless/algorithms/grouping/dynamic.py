"""DYNAMIC_KEY (DKG): a slice of a ring of workers per key, wider for hot keys (as in DynamicKeyGrouping for Storm)."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import HotKey, KeyBatch, LoadGrouping, Widths, whole_number
from skewless.algorithms.grouping.hot_key_tracker import KeySpace
from skewless.algorithms.grouping.key_load_table import BABY, NEVER, NONE, OLD, KeyColumns, KeyTable
from skewless.algorithms.grouping.options import GroupingOptions
from skewless.algorithms.jit import jit


class DynamicKeyGrouping(LoadGrouping):
    """Sends each tuple to the least loaded worker of its key's pool: consecutive workers, beginning with its home.

    A pool has `initial_workers` workers at first, and never fewer. The load of a worker is its share of this router's
    tuples in percent. Keys in the key space are checked at intervals: a key of the old generation with an overloaded
    pool gets one more worker, and a key that does not need one of its workers loses it.

    Memory is bounded by `distinct_keys` and the new keys between two promotions. `max_baby_keys` limits the new keys:
    further ones are not counted until the next promotion. When a key leaves the key space, its check time is deleted.
    A pool that has grown remains: with the published rules until its key had no tuple for `evict_after_s`, with the
    reference's rules permanently. There is at most one such pool per place in the old generation and promotion to it.
    """

    name: ClassVar[str] = "dynamic_key"
    size_setting: ClassVar[str | None] = "router.dynamic_key.distinct_keys"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._options = options.dynamic_key
        self._sent_before_resize = 0
        """Tuples before the last change of W."""
        self._reset_keys()

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:
        """Return the worker of every tuple. Promotions due at or before the time of a tuple run before it."""
        chosen = np.empty(len(batch.codes), dtype=np.int32)
        if len(chosen) == 0:
            return chosen
        times = self.times_of(batch, now)
        # A wall clock that was set back, or is behind that of the process with the snapshot, would stop promotions.
        if self._space.start == NEVER or (now < self._space.promoted and not self._by_event_time):
            self._space.begin(int(times[0]))
        slots = self._table.slots_of(batch.keys)
        tuple_slots, promotions, row = slots[batch.codes], self._space.promotions, 0
        while row < len(chosen):
            self._space.promote_until(int(times[row]))
            row = _route(tuple_slots, times, chosen, row, self._state())
        self._table.release(slots if promotions == self._space.promotions else slice(None))
        return chosen

    def widths(self) -> Widths:
        """Return the pool sizes."""
        pools, initial = self._table.columns.pool, self._table.initial_pool
        return Widths(min(initial, self._workers), np.minimum(pools, self._workers))

    def top_key_shares(self, limit: int) -> NDArray[np.float64]:
        """Return the shares of the old generation. Tuples of a key count since it last entered the key space."""
        keys, total = self._table.columns, self._sent_before_resize + int(self._sent.sum())
        tuples = np.sort(keys.tuples[keys.generation == OLD])[::-1][:limit].astype(np.float64)
        return np.minimum(tuples / max(1, total), np.ones(1))

    def hot_keys(self, limit: int) -> list[HotKey]:
        """Return the hottest keys of the old generation."""
        return self._space.hottest(limit)

    def resize(self, workers: int) -> None:
        """Reset all loads to zero. The key space stays; pools are limited to the new number of workers."""
        self._sent_before_resize += int(self._sent.sum())
        super().resize(workers)
        self._table.resize(workers)

    def snapshot(self) -> dict[str, object]:
        """Return the numbers of sent tuples, the promotions with their clock, and the state of all keys."""
        return self._space_snapshot() | self._table.snapshot()

    def reduced_snapshot(self) -> dict[str, object]:
        """Return a snapshot without baby keys: there may be many, and most of them are evicted at the promotion."""
        return self._space_snapshot() | self._table.reduced_snapshot()

    def _space_snapshot(self) -> dict[str, object]:
        own = {"sent_before_resize": self._sent_before_resize, "by_event_time": self._by_event_time}
        return super().snapshot() | own | self._space.snapshot()

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the loads and the keys. If they have the times of another clock, all times begin again."""
        super().restore(snapshot)
        # Snapshots of version 0.3 do not have it.
        self._sent_before_resize = whole_number(snapshot.get("sent_before_resize", 0))
        self._reset_keys()
        self._table.restore(snapshot)
        if snapshot.get("by_event_time", self._by_event_time) == self._by_event_time:
            self._space.restore(snapshot)

    def _reset_keys(self) -> None:
        self._table = KeyTable(self._workers, self._options.initial_workers)
        self._space = KeySpace(self._table, self._options)

    def _state(self) -> _State:
        truncate = self._options.rules == "reference"
        overloaded_from, unneeded_below = _thresholds(self._workers, truncate=truncate)
        rules = _Rules(
            truncate=truncate,
            overloaded_from=overloaded_from,
            unneeded_below=unneeded_below,
            check_interval=self._options.check_interval_s * 1_000,
            warm_up_end=self._space.start + self._options.warm_up_s * 1_000,
            due=self._space.due,
            max_babies=self._options.max_baby_keys,
            initial_pool=self._options.initial_workers,
        )
        return _State(self._table.columns, self._sent, rules)


class _Rules(NamedTuple):
    """Loads in percent, times in milliseconds."""

    truncate: bool
    """Loads are truncated to whole numbers."""
    overloaded_from: float
    """Minimum load of an overloaded worker."""
    unneeded_below: float
    """A worker with a lower load is not needed."""
    check_interval: int
    warm_up_end: int
    due: int
    """Time of the next promotion."""
    max_babies: int
    initial_pool: int


class _State(NamedTuple):
    keys: KeyColumns
    sent: NDArray[np.int64]
    rules: _Rules


def _thresholds(workers: int, *, truncate: bool) -> tuple[float, float]:
    """Return the load from which a worker is overloaded, and the load below which it is not needed."""
    # The reference program truncates the first load, and uses it for both.
    ideal = 100 / workers
    above, below = ideal + sqrt(ideal), ideal - sqrt(ideal)
    return (float(int(above)), float(int(above))) if truncate else (above, below)


@jit
def _route(
    slots: NDArray[np.int32], times: NDArray[np.int64], chosen: NDArray[np.int32], row: int, state: _State
) -> int:
    """Choose for the tuples from `row` on, and count them. Returns the row at which the next promotion is due."""
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
        if keys.generation[slot] == NONE and babies < rules.max_babies:
            keys.generation[slot] = BABY
            babies += 1
        if keys.generation[slot] != NONE:
            keys.tuples[slot] += 1
            keys.used[slot, worker >> 3] |= 1 << (worker & 7)
        keys.seen[slot] = max(keys.seen[slot], time)
        row += 1
    return row


@jit
def _scale(slot: int, time: int, least_loaded: int, total: int, state: _State) -> int:
    """Add a worker to the key's pool or remove one, if the loads require it. Returns the worker for the tuple."""
    keys, sent, rules = state
    load, pool = _load(least_loaded, total, state), keys.pool[slot]
    if time > rules.warm_up_end and load >= rules.overloaded_from and keys.generation[slot] == OLD and pool < len(sent):
        candidate = (keys.home[slot] + pool) % len(sent)
        if _load(candidate, total, state) < load:
            keys.pool[slot] += 1
            return int(candidate)
    elif pool > rules.initial_pool:
        unneeded = 0
        for step in range(pool):
            unneeded += _load((keys.home[slot] + step) % len(sent), total, state) < rules.unneeded_below
        if unneeded >= 2:
            keys.pool[slot] -= 1
            return _least_loaded(slot, total, state)
    return least_loaded


@jit
def _least_loaded(slot: int, total: int, state: _State) -> int:
    """Return the worker with the lowest load in the key's pool; on a tie, the first."""
    keys, sent, _ = state
    worker = best = keys.home[slot]
    lowest = _load(best, total, state)
    for _ in range(1, keys.pool[slot]):
        worker = worker + 1 if worker + 1 < len(sent) else 0
        load = _load(worker, total, state)
        if load < lowest:
            best, lowest = worker, load
    return int(best)


@jit
def _load(worker: int, total: int, state: _State) -> float:
    """Return the worker's tuples in percent of all tuples; 0 before the first."""
    if total == 0:
        return 0.0
    load = 100.0 * state.sent[worker] / total
    return float(np.floor(load)) if state.rules.truncate else float(load)
