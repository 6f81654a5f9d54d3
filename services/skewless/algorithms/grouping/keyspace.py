"""The key space of dynamic key grouping: three generations of keys, after a generational garbage collector."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.keytable import BABY, NEVER, NONE, OLD, TEENAGE, KeyTable
from skewless.algorithms.grouping.options import DynamicKeyOptions

CYCLE = 4
"""Every so many promotions teenage keys are promoted too."""


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key of the old generation, its tuples since it is known, and how many workers got one of these."""

    key: str
    count: int
    workers: int


class KeySpace:
    """New keys are baby; those with most tuples are promoted to teenage at a fixed interval, and from there to old.

    The first promotion is due at the start. Before keys go from one generation to the next, both are sorted by count,
    descending, ties by key. By the published rules, keys of the upper two that had no tuple for `evict_after_s` leave.
    """

    def __init__(self, table: KeyTable, options: DynamicKeyOptions) -> None:
        distinct = options.distinct_keys
        self._capacities = {BABY: distinct * 5 // 10, TEENAGE: distinct * 4 // 10, OLD: distinct // 10}
        self._interval = options.promotion_interval_s * 1_000
        self._evict_after = options.evict_after_s * 1_000 if options.rules == "published" else None
        self._table = table
        self.start = NEVER
        self.promotions = 0

    @property
    def due(self) -> int:
        """Time of the next promotion, in milliseconds."""
        return self.start + self.promotions * self._interval

    def promote_until(self, now: int) -> None:
        """Do all promotions due at or before `now`, in order; of a long time without tuples only those that matter."""
        unchanged = 0
        while self.due <= now:
            before = self._table.columns.generation.copy()
            self._promotion()
            unchanged = unchanged + 1 if np.array_equal(before, self._table.columns.generation) else 0
            if unchanged == CYCLE:
                until = min(now, self._next_eviction(now))
                self.promotions = max(self.promotions, (until - self.start) // self._interval + 1)
                unchanged = 0

    def hottest(self) -> list[HotKey]:
        """Keys of the old generation, the one with most tuples first."""
        keys = self._table.columns
        workers = np.bitwise_count(keys.used).sum(axis=1, dtype=np.int64)
        return [
            HotKey(self._table.names[slot], int(keys.tuples[slot]), int(workers[slot])) for slot in self._ranked(OLD)
        ]

    def _promotion(self) -> None:
        self._evict(self.due)
        self._cut_babies()
        self._move(BABY, TEENAGE)
        self.promotions += 1
        if self.promotions % CYCLE == 0:
            self._move(TEENAGE, OLD)

    def _evict(self, now: int) -> None:
        if self._evict_after is None:
            return
        keys = self._table.columns
        unseen = keys.seen < now - self._evict_after
        self._table.leave(np.flatnonzero(unseen & (keys.generation >= TEENAGE)))
        keys.pool[unseen & (keys.generation == NONE)] = self._table.initial_pool

    def _next_eviction(self, otherwise: int) -> int:
        """Find the last time at which `_evict` still leaves everything as it is."""
        keys = self._table.columns
        evictable = (keys.generation >= TEENAGE) | ((keys.generation == NONE) & (keys.pool > self._table.initial_pool))
        if self._evict_after is None or not evictable.any():
            return otherwise
        return int(keys.seen[evictable].min()) + self._evict_after

    def _cut_babies(self) -> None:
        """Let those babies leave that are beyond the capacity; only ties at the edge are worth comparing as text."""
        keys, room = self._table.columns, self._capacities[BABY]
        babies = np.flatnonzero(keys.generation == BABY)
        if len(babies) <= room:
            return
        counts = keys.tuples[babies]
        least = np.partition(counts, -room)[-room]
        ties = babies[counts == least].tolist()
        staying = nsmallest(room - int((counts > least).sum()), ties, key=self._table.names.__getitem__)
        leaving = np.setdiff1d(babies[counts <= least], np.array(staying, dtype=np.intp))
        self._table.leave(leaving)

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
    """Bring the first of `source` to the front of `target`, in at most `capacity` steps.

    As long as there is a free place they fill it, then they swap with the last, which goes to the end of `source`,
    while they have the greater count. The target is not sorted again in between.
    """
    for _ in range(capacity):
        if not source:
            return
        if len(target) >= capacity:
            if counts[source[0]] <= counts[target[-1]]:
                return
            source.append(target.pop())
        target.appendleft(source.popleft())
