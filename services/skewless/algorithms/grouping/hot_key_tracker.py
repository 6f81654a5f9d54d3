"""Tracks hot keys in three generations, like a generational garbage collector: the key space of DYNAMIC_KEY."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import HotKey, whole_number
from skewless.algorithms.grouping.key_load_table import BABY, NEVER, NONE, OLD, TEENAGE, KeyTable
from skewless.algorithms.grouping.options import DynamicKeyOptions

TEENAGE_CYCLE = 4
"""Teenage keys are promoted at every 4th promotion of baby keys."""


class KeySpace:
    """Three generations of keys. New keys are baby. Keys with most tuples are promoted to teenage, and then to old.

    Promotions are due at a fixed interval, the first one at the start. In a promotion, keys of a generation are in the
    order of their counts, descending, and ties by key. The published rules evict teenage and old keys without a tuple
    for `evict_after_s`.
    """

    def __init__(self, table: KeyTable, options: DynamicKeyOptions) -> None:
        capacity = options.distinct_keys
        self._capacities = {BABY: capacity * 5 // 10, TEENAGE: capacity * 4 // 10, OLD: capacity // 10}
        self._interval = options.promotion_interval_s * 1_000
        self._evict_after = options.evict_after_s * 1_000 if options.rules == "published" else None
        self._table = table
        self.start = NEVER
        self.promotions = 0
        self.promoted = NEVER
        """Time of the last promotion."""

    @property
    def due(self) -> int:
        """Time of the next promotion, in milliseconds."""
        return self.promoted + self._interval

    def begin(self, now: int) -> None:
        """Start at the time of a tuple. Keys with the times of another clock are seen now, and were never checked."""
        self.start, self.promoted = now, now - self._interval
        self._table.columns.seen[self._table.columns.home >= 0] = now
        self._table.columns.checked[:] = NEVER

    def snapshot(self) -> dict[str, object]:
        """Return the times and the number of the promotions."""
        return {"start": self.start, "promotions": self.promotions, "promoted": self.promoted}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the promotions, after the keys of the table. A changed interval applies from the next one on."""
        self.start = whole_number(snapshot.get("start"))
        self.promotions = whole_number(snapshot.get("promotions"))
        # Version 0.3 stored no time of the last promotion. It was before the last tuple, also with another interval.
        scheduled = self.start + max(0, self.promotions - 1) * self._interval
        latest = int(self._table.columns.seen.max(initial=self.start))
        self.promoted = whole_number(snapshot.get("promoted", min(scheduled, latest)))

    def hottest(self, limit: int) -> list[HotKey]:
        """Return the first `limit` keys of the old generation, the key with most tuples first."""
        names, columns, old = self._table.names, self._table.columns, self._slots(OLD)
        hottest = old[self._are_hottest(old, limit)].tolist()
        slots = sorted(hottest, key=lambda slot: (-columns.tuples[slot], names[slot]))
        workers = np.bitwise_count(columns.used[slots]).sum(axis=1, dtype=np.int64)
        return [
            HotKey(names[slot], int(columns.tuples[slot]), int(used)) for slot, used in zip(slots, workers, strict=True)
        ]

    def promote_until(self, now: int) -> None:
        """Run all promotions due at or before `now`, in order."""
        # After a long time without tuples, promotions that change nothing are skipped up to the next eviction.
        unchanged = 0
        while self.due <= now:
            previous = self._table.columns.generation.copy()
            self._run_promotion()
            unchanged = unchanged + 1 if np.array_equal(previous, self._table.columns.generation) else 0
            if unchanged == TEENAGE_CYCLE:
                until = min(now, self._next_eviction(now))
                skipped = max(0, (until - self.due) // self._interval + 1)
                self.promotions += skipped
                self.promoted += skipped * self._interval
                unchanged = 0

    def _run_promotion(self) -> None:
        self._evict_unseen(self.due)
        self._evict_excess_babies()
        self._move(BABY, TEENAGE)
        self.promoted = self.due
        self.promotions += 1
        if self.promotions % TEENAGE_CYCLE == 0:
            self._move(TEENAGE, OLD)

    def _evict_unseen(self, now: int) -> None:
        if self._evict_after is None:
            return
        keys = self._table.columns
        unseen = keys.seen < now - self._evict_after
        self._table.evict(np.flatnonzero(unseen & (keys.generation >= TEENAGE)))
        keys.pool[unseen & (keys.generation == NONE)] = self._table.initial_pool

    def _next_eviction(self, default: int) -> int:
        """Return the last time at which `_evict_unseen` changes nothing, or `default` if it never changes anything."""
        keys = self._table.columns
        evictable = (keys.generation >= TEENAGE) | ((keys.generation == NONE) & (keys.pool > self._table.initial_pool))
        if self._evict_after is None or not evictable.any():
            return default
        return int(keys.seen[evictable].min()) + self._evict_after

    def _evict_excess_babies(self) -> None:
        """Evict the baby keys with fewest tuples beyond the capacity."""
        babies, capacity = self._slots(BABY), self._capacities[BABY]
        if len(babies) > capacity:
            self._table.evict(babies[~self._are_hottest(babies, capacity)])

    def _move(self, lower: int, upper: int) -> None:
        source, target, keys = self._slots(lower), self._slots(upper), self._table.columns
        added, swapped = count_promoted(keys.tuples[source], keys.tuples[target], self._capacities[upper])
        if added + swapped:
            keys.generation[source[self._are_hottest(source, added + swapped)]] = upper
        if swapped:
            keys.generation[target[~self._are_hottest(target, len(target) - swapped)]] = lower

    def _slots(self, generation: int) -> NDArray[np.intp]:
        return np.flatnonzero(self._table.columns.generation == generation)

    def _are_hottest(self, slots: NDArray[np.intp], limit: int) -> NDArray[np.bool_]:
        """Return whether each slot is among the `limit` first ones by count. Only ties at the limit compare keys."""
        if not 0 < limit < len(slots):
            return np.full(len(slots), limit > 0)
        counts, names = self._table.columns.tuples[slots], self._table.names
        lowest = np.partition(counts, -limit)[-limit]
        hottest: NDArray[np.bool_] = counts > lowest
        ties, places = slots[counts == lowest].tolist(), limit - int(np.count_nonzero(hottest))
        if places < len(ties):
            # For few of many keys, a heap is faster than a sort.
            is_few = places < len(ties) // 10
            ties = (
                nsmallest(places, ties, names.__getitem__) if is_few else sorted(ties, key=names.__getitem__)[:places]
            )
        hottest[np.searchsorted(slots, ties)] = True
        return hottest


def count_promoted(source: NDArray[np.int64], target: NDArray[np.int64], capacity: int) -> tuple[int, int]:
    """Return how many keys move from `source` to free places of `target`, and how many to places of others.

    Both are counts of tuples. At most `capacity` keys move, those with most tuples first. While `target` has less than
    `capacity` keys, they are added. After that each replaces the key with fewest tuples in `target` that was there
    before, as long as it has more tuples. The replaced key moves to `source`.
    """
    added = min(len(source), max(0, capacity - len(target)))
    pairs = min(len(source) - added, len(target), capacity - added)
    if pairs == 0 or (added == 0 and source.max() <= target.min()):
        return added, 0
    hottest, coldest = np.sort(source)[::-1][added : added + pairs], np.sort(target)[:pairs]
    return added, int(np.count_nonzero(hottest > coldest))
