"""Tracks hot keys in three generations, like a generational garbage collector: the key space of DYNAMIC_KEY."""

from __future__ import annotations

from collections import deque
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

    Promotions are due at a fixed interval, the first one at the start. Before a promotion, both generations are sorted
    by count, descending, and ties by key. The published rules evict teenage and old keys without a tuple for
    `evict_after_s`.
    """

    def __init__(self, table: KeyTable, options: DynamicKeyOptions) -> None:
        capacity = options.distinct_keys
        self._capacities = {BABY: capacity * 5 // 10, TEENAGE: capacity * 4 // 10, OLD: capacity // 10}
        self._interval = options.promotion_interval_s * 1_000
        self._evict_after = options.evict_after_s * 1_000 if options.rules == "published" else None
        self._table = table
        self.start = NEVER
        self.promotions = 0
        self._promoted = NEVER
        """Time of the last promotion."""

    @property
    def due(self) -> int:
        """Time of the next promotion, in milliseconds."""
        return self._promoted + self._interval

    def begin(self, now: int) -> None:
        """Start at the time of the first tuple. Keys that are restored with the times of another clock are seen now."""
        self.start, self._promoted = now, now - self._interval
        self._table.columns.seen[self._table.columns.home >= 0] = now

    def snapshot(self) -> dict[str, object]:
        """Return the times and the number of the promotions."""
        return {"start": self.start, "promotions": self.promotions, "promoted": self._promoted}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the promotions, after the keys of the table. A changed interval applies from the next one on."""
        self.start = whole_number(snapshot.get("start"))
        self.promotions = whole_number(snapshot.get("promotions"))
        # Version 0.3 stored no time of the last promotion. It was before the last tuple, also with another interval.
        scheduled = self.start + max(0, self.promotions - 1) * self._interval
        latest = int(self._table.columns.seen.max(initial=self.start))
        self._promoted = whole_number(snapshot.get("promoted", min(scheduled, latest)))

    def hottest(self, limit: int) -> list[HotKey]:
        """Return the first `limit` keys of the old generation, the key with most tuples first."""
        names, columns, slots = self._table.names, self._table.columns, self._ranked(OLD)[:limit]
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
                self._promoted += skipped * self._interval
                unchanged = 0

    def _run_promotion(self) -> None:
        self._evict_unseen(self.due)
        self._evict_excess_babies()
        self._move(BABY, TEENAGE)
        self._promoted = self.due
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
        """Evict the baby keys with fewest tuples beyond the capacity. Only ties at the limit are compared by key."""
        keys, capacity = self._table.columns, self._capacities[BABY]
        babies = np.flatnonzero(keys.generation == BABY)
        if len(babies) <= capacity:
            return
        counts = keys.tuples[babies]
        lowest = np.partition(counts, -capacity)[-capacity]
        ties = babies[counts == lowest].tolist()
        retained = nsmallest(capacity - int((counts > lowest).sum()), ties, key=self._table.names.__getitem__)
        evicted = np.setdiff1d(babies[counts <= lowest], np.array(retained, dtype=np.intp))
        self._table.evict(evicted)

    def _move(self, lower: int, upper: int) -> None:
        source, target = deque(self._ranked(lower)), deque(self._ranked(upper))
        promote(source, target, self._capacities[upper], self._table.columns.tuples)
        self._table.columns.generation[list(source)] = lower
        self._table.columns.generation[list(target)] = upper

    def _ranked(self, generation: int) -> list[int]:
        names, counts = self._table.names, self._table.columns.tuples
        slots = np.flatnonzero(self._table.columns.generation == generation).tolist()
        return sorted(slots, key=lambda slot: (-counts[slot], names[slot]))


def promote(source: deque[int], target: deque[int], capacity: int, counts: NDArray[np.int64]) -> None:
    """Move the first slots of `source` to the front of `target`, in at most `capacity` steps.

    While `target` has less than `capacity` slots, they are added. After that each replaces the last of `target`, which
    moves to the end of `source`, as long as it has the greater count. The target is not sorted again in between.
    """
    for _ in range(capacity):
        if not source:
            return
        if len(target) >= capacity:
            if counts[source[0]] <= counts[target[-1]]:
                return
            source.append(target.pop())
        target.appendleft(source.popleft())
