"""Load metrics of the observer: the imbalance of the workers, and the keys with most tuples."""

from __future__ import annotations

import heapq

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
