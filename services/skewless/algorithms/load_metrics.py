"""Load metrics: the imbalance of the workers, the replication of the keys, and the keys with most tuples."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def shares(tuples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of each worker in percent; all zero without tuples."""
    total = int(tuples.sum())
    return (tuples * (100.0 / total)).astype(np.float64) if total else np.zeros(len(tuples))


def load_stddev_percent(tuples: NDArray[np.int64]) -> float:
    """Return the population standard deviation of the workers' shares in percent. Workers without tuples count as 0."""
    return float(np.std(shares(tuples)))


def imbalance(tuples: NDArray[np.int64]) -> float:
    """Return (tuples of the most loaded worker - average) / all tuples: I/m of Nasir et al., ICDE 2015."""
    total = int(tuples.sum())
    return float(tuples.max() - tuples.mean()) / total if total else 0.0


def max_over_avg(tuples: NDArray[np.int64]) -> float:
    """Return the tuples of the most loaded worker / average: the slowdown where workers are the bottleneck."""
    return float(tuples.max() / tuples.mean()) if tuples.sum() else 1.0


MIN_MEAN_TUPLES = 100
"""Minimum mean of tuples per worker in a window. With fewer, random variation has more effect than the grouping."""


def judged_max_over_avg(tuples: NDArray[np.int64]) -> float | None:
    """Return `max_over_avg`, or None if the mean is below `MIN_MEAN_TUPLES` per worker."""
    return max_over_avg(tuples) if tuples.sum() >= MIN_MEAN_TUPLES * len(tuples) else None


def balance_measures(loads: NDArray[np.int64]) -> dict[str, float]:
    """Return measures of the imbalance of the workers' loads.

    `rate` is the fraction of the rate of an even load, where workers are the bottleneck.
    """
    load_ratio = max_over_avg(loads)
    return {
        "imbalance": imbalance(loads),
        "imbalance_tuples": float(loads.max() - loads.mean()),
        "max_over_avg": load_ratio,
        "rate": 1 / load_ratio,
        "load_stddev_percent": load_stddev_percent(loads),
    }


@dataclass(frozen=True, slots=True)
class Replicas:
    """Number of workers per key in a tick, a window, or a whole run."""

    keys: int
    pairs: int
    """Number of (key, worker) pairs that were used."""
    max_workers: int
    """Number of workers of the key that has the most."""

    @property
    def mean(self) -> float:
        """Mean number of distinct workers per key: the replication factor, DIST_COST of the reference."""
        return self.pairs / self.keys if self.keys else 0.0

    def measures(self) -> dict[str, Any]:
        """Return measures of the replication of the keys."""
        return {
            "keys": self.keys,
            "replication_factor": self.mean,
            "replication_max": self.max_workers,
            "pairs": self.pairs,
        }


@dataclass(slots=True)
class WindowTotals:
    """Totals of windows."""

    windows: int = 0
    pairs: int = 0
    """(key, worker) pairs of each window, summed over all windows."""
    keys: int = 0
    """Keys of each window, summed over all windows."""
    max_loads: int = 0
    """Load of the most loaded worker of each window, summed over all windows."""
    replication_max: float = 0.0
    """Largest mean number of workers per key of a window."""
    worst: float = 0.0
    """Largest max/avg of a window with enough tuples; 0 if there is none."""

    def add(self, pairs: NDArray[Any], keys: NDArray[np.int64], loads: NDArray[np.int64]) -> None:
        """Add windows: (key, worker) pairs, keys and loads of each."""
        tuples, max_loads = loads.sum(axis=1), loads.max(axis=1)
        judged = tuples >= MIN_MEAN_TUPLES * loads.shape[1]
        self.windows += len(tuples)
        self.pairs += int(pairs.sum())
        self.keys += int(keys.sum())
        self.max_loads += int(max_loads.sum())
        self.replication_max = max(self.replication_max, float((pairs / keys).max(initial=0)))
        ratios = max_loads[judged] * loads.shape[1] / tuples[judged]
        self.worst = max(self.worst, float(ratios.max(initial=0)))

    def measures(self, mean_load: float) -> dict[str, Any]:
        """Return measures of the windows. `mean_load` is the mean load of the workers in all windows.

        `window_replication_max` is the largest mean of a window, not the largest number of workers of a key.
        """
        return {
            "windows": self.windows,
            "window_replication": self.pairs / max(1, self.keys),
            "window_replication_max": self.replication_max,
            "window_max_over_avg": self.max_loads / mean_load if mean_load else 1.0,
            "worst_window_max_over_avg": self.worst or None,
            "aggregation_cost": self.pairs / max(1, self.windows),
        }


def sums_by_worker(workers: NDArray[np.int64], counts: NDArray[np.int64], min_workers: int) -> NDArray[np.int64]:
    """Return the sum of the counts of each worker. The result has at least `min_workers` entries."""
    sums = np.zeros(max(min_workers, int(workers.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(sums, workers, counts)
    return sums


def top_keys(keys: pa.Array, counts: NDArray[np.int64], limit: int) -> list[tuple[str, int, int]]:
    """Return up to `limit` keys with most tuples as (key, tuples, number of workers).

    The input has one row per (key, worker). The result is sorted by tuples, descending; ties are sorted by key.
    """
    if not len(keys) or not limit:
        return []
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    tuples = np.zeros(len(encoded.dictionary), dtype=np.int64)
    np.add.at(tuples, codes, counts)
    threshold = np.sort(tuples)[-limit:][0]
    hot = np.flatnonzero(tuples >= threshold)
    names = encoded.dictionary.take(pa.array(hot)).to_pylist()
    rows = zip(names, tuples[hot].tolist(), np.bincount(codes)[hot].tolist(), strict=True)
    return heapq.nsmallest(limit, rows, key=lambda row: (-row[1], row[0]))
