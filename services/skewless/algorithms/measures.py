"""How good a grouping is on a stream: even load, at what price in replicated keys. Exact, batch by batch.

Keys are dense numbers (0, 1, ...) here. What is held grows with keys and (key, worker) pairs alone: a bit for each
worker of each key, and a second one for those of the current window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.algorithms.distribution import TUPLES_TO_JUDGE, imbalance, max_over_avg, std_dev

T = TypeVar("T", bound=np.generic)

BITS = 64
_WINDOW, _WINDOWS, _PAIRS, _KEYS, _FULLEST, _TOTAL_PAIRS, _TOTAL_KEYS, _TOTAL_FULLEST = range(8)
"""What `_hold` counts: number of the current window, windows so far; in the current window, then over all closed ones,
pairs, keys, and tuples of the fullest worker."""
NO_WINDOW = np.iinfo(np.int64).min


class KeyCounts:
    """Tuples of each key of a stream: what does not depend on the grouping."""

    def __init__(self) -> None:
        self._counts = np.zeros(1024, dtype=np.int64)
        self.keys = 0
        self.tuples = 0

    def add(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count tuples of distinct keys."""
        self.keys = max(self.keys, int(keys.max(initial=-1)) + 1)
        self._counts = grown(self._counts, self.keys)
        self._counts[keys] += counts
        self.tuples += int(counts.sum())

    @property
    def p1(self) -> float:
        """Share of the hottest key; 0 without tuples."""
        return int(self._counts.max()) / self.tuples if self.tuples else 0.0

    def replication_bound(self, workers: int) -> float:
        """Give the least mean replication of perfect balance: sum over keys of ceil(p_k W), divided by the keys."""
        if not self.tuples:
            return 0.0
        needed = -(-self._counts[: self.keys] * workers // self.tuples)
        return int(needed.sum()) / self.keys


@dataclass(frozen=True, slots=True)
class SpreadMeasures:
    """Measures of one grouping on one stream; all 0, or 1 for ratios of loads, when there were no tuples.

    A window ends when the first tuple behind its end arrives; what is late counts in the window that is current then.
    """

    imbalance: float
    """I/m: (fullest worker - average) / tuples."""
    imbalance_tuples: float
    """I: fullest worker - average, in tuples."""
    max_over_avg: float
    rate: float
    """Average / fullest: the share of the rate of an even load, where workers are the limit."""
    std_dev: float
    """Population standard deviation over workers of their share in percent."""
    replication: float
    """Mean number of distinct workers per key."""
    replication_max: int
    pairs: int
    """(key, worker) pairs that were ever used."""
    windows: int
    """Windows that have tuples."""
    window_replication: float
    """Mean number of distinct workers per key and window."""
    window_replication_max: float
    """Mean number of distinct workers per key in the window where it is greatest."""
    window_max_over_avg: float
    """Tuples of each window's fullest worker, summed over the windows, by the average worker's tuples."""
    worst_window_max_over_avg: float | None
    """The same of the worst window alone, among those with at least 100 tuples per worker; None when there is none."""
    aggregation_cost: float
    """Partial results per window: its (key, worker) pairs."""
    tuples_by_worker: list[int]


class Spread:
    """Where the tuples of a stream went: takes batches of (key, worker, time), gives `SpreadMeasures`."""

    def __init__(self, workers: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._loads = np.zeros(workers, dtype=np.int64)
        self._window_loads = np.zeros(workers, dtype=np.int64)
        words = -(-workers // BITS)
        self._held = np.zeros((1024, words), dtype=np.uint64)
        self._window_held = np.zeros((1024, words), dtype=np.uint64)
        self._seen = np.full(1024, NO_WINDOW, dtype=np.int64)
        self._counted = np.zeros(8, dtype=np.int64)
        self._counted[_WINDOW] = NO_WINDOW
        self._most = np.zeros(2)
        self._keys = 0

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each worker so far."""
        return self._loads.copy()

    def add(self, keys: NDArray[np.int64], workers: NDArray[np.int32], times: NDArray[np.int64]) -> None:
        """Count tuples, in their order; times are in ms."""
        if not len(keys):
            return
        self._keys = max(self._keys, int(keys.max()) + 1)
        self._held = grown(self._held, self._keys)
        self._window_held = grown(self._window_held, self._keys)
        self._seen = grown(self._seen, self._keys, NO_WINDOW)
        self._loads += np.bincount(workers, minlength=len(self._loads))
        windows = times // self._window_ms
        _hold(
            *(keys, workers, windows, self._held, self._window_held, self._seen),
            *(self._window_loads, self._counted, self._most),
        )

    def measures(self) -> SpreadMeasures:
        """Measure what came so far; the current window counts as it is."""
        closed, most = self._counted.copy(), self._most.copy()
        if closed[_WINDOW] != NO_WINDOW:
            _close(self._window_loads.copy(), closed, most)
        replicas = np.bitwise_count(self._held[: self._keys]).sum(axis=1, dtype=np.int64)
        pairs = int(replicas.sum())
        fullest = float(self._loads.max() - self._loads.mean())
        uneven = max_over_avg(self._loads)
        mean = float(self._loads.mean())
        return SpreadMeasures(
            imbalance=imbalance(self._loads),
            imbalance_tuples=fullest,
            max_over_avg=uneven,
            rate=1 / uneven,
            std_dev=std_dev(self._loads),
            replication=pairs / max(1, int(np.count_nonzero(replicas))),
            replication_max=int(replicas.max(initial=0)),
            pairs=pairs,
            windows=int(closed[_WINDOWS]),
            window_replication=int(closed[_TOTAL_PAIRS]) / max(1, int(closed[_TOTAL_KEYS])),
            window_replication_max=float(most[0]),
            window_max_over_avg=int(closed[_TOTAL_FULLEST]) / mean if mean else 1.0,
            worst_window_max_over_avg=float(most[1]) or None,
            aggregation_cost=int(closed[_TOTAL_PAIRS]) / max(1, int(closed[_WINDOWS])),
            tuples_by_worker=self._loads.tolist(),
        )


def grown(array: NDArray[T], size: int, fill: int = 0) -> NDArray[T]:
    """Give the array with room for `size` rows: itself, or a copy of at least twice the size, filled up."""
    if size <= len(array):
        return array
    larger = np.full((max(size, 2 * len(array)), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def _close(window_loads: NDArray[np.int64], counted: NDArray[np.int64], most: NDArray[np.float64]) -> None:
    """Add the current window to the totals, and empty it; `most` has the worst replication and max/avg of a window."""
    tuples = window_loads.sum()
    counted[_TOTAL_PAIRS] += counted[_PAIRS]
    counted[_TOTAL_KEYS] += counted[_KEYS]
    counted[_TOTAL_FULLEST] += window_loads.max()
    counted[_WINDOWS] += 1
    most[0] = max(most[0], counted[_PAIRS] / counted[_KEYS])
    if tuples >= TUPLES_TO_JUDGE * len(window_loads):
        most[1] = max(most[1], window_loads.max() * len(window_loads) / tuples)
    counted[_PAIRS] = 0
    counted[_KEYS] = 0
    window_loads[:] = 0


@compiled
def _hold(  # noqa: PLR0913, PLR0917 - machine code takes arrays, not objects
    keys: NDArray[np.int64],
    workers: NDArray[np.int32],
    windows: NDArray[np.int64],
    held: NDArray[np.uint64],
    window_held: NDArray[np.uint64],
    seen: NDArray[np.int64],
    window_loads: NDArray[np.int64],
    counted: NDArray[np.int64],
    most: NDArray[np.float64],
) -> None:
    """Mark each tuple's pair, and count pairs and keys of windows; closes a window when a later one begins."""
    for row, key in enumerate(keys):
        if windows[row] > counted[_WINDOW]:
            if counted[_WINDOW] != NO_WINDOW:
                _close(window_loads, counted, most)
            counted[_WINDOW] = windows[row]
        if seen[key] != counted[_WINDOW]:
            seen[key] = counted[_WINDOW]
            window_held[key] = 0
            counted[_KEYS] += 1
        word = workers[row] // BITS
        bit = np.uint64(1) << np.uint64(workers[row] % BITS)
        held[key, word] |= bit
        if not window_held[key, word] & bit:
            window_held[key, word] |= bit
            counted[_PAIRS] += 1
        window_loads[workers[row]] += 1
