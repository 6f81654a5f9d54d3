"""Measures the imbalance and the key replication of a grouping on a stream. Exact, computed batch by batch.

Keys are dense numbers (0, 1, ...). Memory grows only with the number of keys and workers: one bit for each worker of
each key, and a second bit for the current window.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit
from skewless.algorithms.load_metrics import MIN_MEAN_TUPLES, imbalance, load_stddev_percent, max_over_avg

T = TypeVar("T", bound=np.generic)

BITS = 64
NO_WINDOW = np.iinfo(np.int64).min
"""Number of the current window before the first tuple."""


class Counter(IntEnum):
    """Indices of the counters of `_record`, which is compiled code and takes arrays only."""

    WINDOW = 0
    """Number of the current window."""
    WINDOWS = 1
    """Number of closed windows."""
    PAIRS = 2
    """(key, worker) pairs of the current window."""
    KEYS = 3
    """Keys of the current window."""
    TOTAL_PAIRS = 4
    """Pairs, summed over all closed windows."""
    TOTAL_KEYS = 5
    """Keys, summed over all closed windows."""
    TOTAL_MAX_LOAD = 6
    """Tuples of the most loaded worker of each window, summed over all closed windows."""


class KeyCounts:
    """Tuples of each key of a stream, independent of the grouping."""

    def __init__(self) -> None:
        self._counts = np.zeros(1024, dtype=np.int64)
        self.keys = 0
        self.tuples = 0

    def add(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Add the tuple counts of distinct keys."""
        self.keys = max(self.keys, int(keys.max(initial=-1)) + 1)
        self._counts = ensure_capacity(self._counts, self.keys)
        self._counts[keys] += counts
        self.tuples += int(counts.sum())

    @property
    def p1(self) -> float:
        """Share of the key with most tuples; 0 without tuples."""
        return int(self._counts.max()) / self.tuples if self.tuples else 0.0

    def replication_bound(self, workers: int) -> float:
        """Return the minimum mean replication of perfect balance: sum over keys of ceil(p_k W), divided by the keys."""
        if not self.tuples:
            return 0.0
        required = -(-self._counts[: self.keys] * workers // self.tuples)
        return int(required.sum()) / self.keys


@dataclass(frozen=True, slots=True)
class SpreadMeasures:
    """Measures of one grouping on one stream. Without tuples all are 0, and ratios of loads are 1.

    A window ends when the first tuple after its end arrives. A late tuple counts in the window that is current then.
    """

    imbalance: float
    """I/m: (most loaded worker - average) / tuples."""
    imbalance_tuples: float
    """I: most loaded worker - average, in tuples."""
    max_over_avg: float
    rate: float
    """Average / most loaded worker: the fraction of the rate of an even load, where workers are the bottleneck."""
    load_stddev_percent: float
    """Population standard deviation over workers of their share in percent."""
    replication_factor: float
    """Mean number of distinct workers per key."""
    replication_max: int
    """Largest number of distinct workers of a key."""
    pairs: int
    """Number of distinct (key, worker) pairs."""
    windows: int
    """Number of windows with tuples."""
    window_replication: float
    """Mean number of distinct workers per key and window."""
    window_replication_max: float
    """Mean number of distinct workers per key, in the window where this mean is largest. A key may have more."""
    window_max_over_avg: float
    """(Tuples of the most loaded worker of each window, summed over all windows) / (mean tuples per worker)."""
    worst_window_max_over_avg: float | None
    """Largest max/avg of a window with a mean of at least 100 tuples per worker; None if there is no such window."""
    aggregation_cost: float
    """Mean number of partial results per window: its (key, worker) pairs."""
    tuples_by_worker: list[int]


class Spread:
    """Computes `SpreadMeasures` from batches of (key, worker, time)."""

    def __init__(self, workers: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._loads = np.zeros(workers, dtype=np.int64)
        self._window_loads = np.zeros(workers, dtype=np.int64)
        words = -(-workers // BITS)
        self._worker_bits = np.zeros((1024, words), dtype=np.uint64)
        self._window_worker_bits = np.zeros((1024, words), dtype=np.uint64)
        self._last_window = np.full(1024, NO_WINDOW, dtype=np.int64)
        self._counters = np.zeros(len(Counter), dtype=np.int64)
        self._counters[Counter.WINDOW] = NO_WINDOW
        self._maxima = np.zeros(2)
        self._keys = 0

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each worker so far."""
        return self._loads.copy()

    def add(self, keys: NDArray[np.int64], workers: NDArray[np.int32], times: NDArray[np.int64]) -> None:
        """Count tuples in stream order; times are in ms."""
        if not len(keys):
            return
        self._keys = max(self._keys, int(keys.max()) + 1)
        self._worker_bits = ensure_capacity(self._worker_bits, self._keys)
        self._window_worker_bits = ensure_capacity(self._window_worker_bits, self._keys)
        self._last_window = ensure_capacity(self._last_window, self._keys, NO_WINDOW)
        self._loads += np.bincount(workers, minlength=len(self._loads))
        windows = times // self._window_ms
        _record(
            keys,
            workers,
            windows,
            self._worker_bits,
            self._window_worker_bits,
            self._last_window,
            self._window_loads,
            self._counters,
            self._maxima,
        )

    def measures(self) -> SpreadMeasures:
        """Return the measures of all tuples so far. The current window counts as if it had ended."""
        counters, maxima = self._counters.copy(), self._maxima.copy()
        if counters[Counter.WINDOW] != NO_WINDOW:
            _close(self._window_loads.copy(), counters, maxima)
        workers_per_key = np.bitwise_count(self._worker_bits[: self._keys]).sum(axis=1, dtype=np.int64)
        pairs = int(workers_per_key.sum())
        excess = float(self._loads.max() - self._loads.mean())
        load_ratio = max_over_avg(self._loads)
        mean = float(self._loads.mean())
        return SpreadMeasures(
            imbalance=imbalance(self._loads),
            imbalance_tuples=excess,
            max_over_avg=load_ratio,
            rate=1 / load_ratio,
            load_stddev_percent=load_stddev_percent(self._loads),
            replication_factor=pairs / max(1, int(np.count_nonzero(workers_per_key))),
            replication_max=int(workers_per_key.max(initial=0)),
            pairs=pairs,
            windows=int(counters[Counter.WINDOWS]),
            window_replication=int(counters[Counter.TOTAL_PAIRS]) / max(1, int(counters[Counter.TOTAL_KEYS])),
            window_replication_max=float(maxima[0]),
            window_max_over_avg=int(counters[Counter.TOTAL_MAX_LOAD]) / mean if mean else 1.0,
            worst_window_max_over_avg=float(maxima[1]) or None,
            aggregation_cost=int(counters[Counter.TOTAL_PAIRS]) / max(1, int(counters[Counter.WINDOWS])),
            tuples_by_worker=self._loads.tolist(),
        )


def ensure_capacity(array: NDArray[T], size: int, fill: int = 0) -> NDArray[T]:
    """Return the array if it has `size` rows, else a copy of at least twice the size with `fill` in the new rows."""
    if size <= len(array):
        return array
    larger = np.full((max(size, 2 * len(array)), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@jit
def _close(window_loads: NDArray[np.int64], counters: NDArray[np.int64], maxima: NDArray[np.float64]) -> None:
    """Add the current window to the totals and reset it. `maxima`: largest mean replication and max/avg of a window."""
    tuples = window_loads.sum()
    counters[Counter.TOTAL_PAIRS] += counters[Counter.PAIRS]
    counters[Counter.TOTAL_KEYS] += counters[Counter.KEYS]
    counters[Counter.TOTAL_MAX_LOAD] += window_loads.max()
    counters[Counter.WINDOWS] += 1
    maxima[0] = max(maxima[0], counters[Counter.PAIRS] / counters[Counter.KEYS])
    if tuples >= MIN_MEAN_TUPLES * len(window_loads):
        maxima[1] = max(maxima[1], window_loads.max() * len(window_loads) / tuples)
    counters[Counter.PAIRS] = 0
    counters[Counter.KEYS] = 0
    window_loads[:] = 0


@jit
def _record(  # noqa: PLR0913, PLR0917 - compiled code takes arrays, not objects
    keys: NDArray[np.int64],
    workers: NDArray[np.int32],
    windows: NDArray[np.int64],
    worker_bits: NDArray[np.uint64],
    window_worker_bits: NDArray[np.uint64],
    last_window: NDArray[np.int64],
    window_loads: NDArray[np.int64],
    counters: NDArray[np.int64],
    maxima: NDArray[np.float64],
) -> None:
    """Record each tuple's (key, worker) pair. Count pairs and keys of each window, and close a window when it ends."""
    for row, key in enumerate(keys):
        if windows[row] > counters[Counter.WINDOW]:
            if counters[Counter.WINDOW] != NO_WINDOW:
                _close(window_loads, counters, maxima)
            counters[Counter.WINDOW] = windows[row]
        if last_window[key] != counters[Counter.WINDOW]:
            last_window[key] = counters[Counter.WINDOW]
            window_worker_bits[key] = 0
            counters[Counter.KEYS] += 1
        word = workers[row] // BITS
        bit = np.uint64(1) << np.uint64(workers[row] % BITS)
        worker_bits[key, word] |= bit
        if not window_worker_bits[key, word] & bit:
            window_worker_bits[key, word] |= bit
            counters[Counter.PAIRS] += 1
        window_loads[workers[row]] += 1
