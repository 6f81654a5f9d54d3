"""How even tuples are spread over workers, and at what price in replicated keys: the observer's measures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def shares(tuples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of each worker in percent; all zero when there are no tuples."""
    total = int(tuples.sum())
    return (tuples * (100.0 / total)).astype(np.float64) if total else np.zeros(len(tuples))


def std_dev(tuples: NDArray[np.int64]) -> float:
    """Take the population standard deviation of the workers' shares in percent; silent workers count as 0."""
    return float(np.std(shares(tuples)))


def imbalance(tuples: NDArray[np.int64]) -> float:
    """Fullest worker's tuples minus the average, divided by all tuples (I/m of Nasir et al., ICDE 2015)."""
    total = int(tuples.sum())
    return float(tuples.max() - tuples.mean()) / total if total else 0.0


def max_over_avg(tuples: NDArray[np.int64]) -> float:
    """Divide the fullest worker's tuples by the average: where workers are the limit, this is what it costs."""
    return float(tuples.max() / tuples.mean()) if tuples.sum() else 1.0


TUPLES_TO_JUDGE = 100
"""Average tuples per worker from which on the load of a window says more about the grouping than about chance."""


def judged_max_over_avg(tuples: NDArray[np.int64]) -> float | None:
    """Divide the tuples of the most loaded worker by the average; None below `TUPLES_TO_JUDGE` per worker."""
    return max_over_avg(tuples) if tuples.sum() >= TUPLES_TO_JUDGE * len(tuples) else None


def tuples_by_worker(workers: NDArray[np.int64], counts: NDArray[np.int64], known: int) -> NDArray[np.int64]:
    """Sum counts by worker, over at least the `known` first workers."""
    tuples = np.zeros(max(known, int(workers.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(tuples, workers, counts)
    return tuples


def hottest(keys: pa.Array, counts: NDArray[np.int64], most: int) -> list[tuple[str, int, int]]:
    """Find the hottest keys among rows of (key, worker) with their counts: key, tuples, number of workers.

    By count, descending; where counts tie, by key.
    """
    if not len(keys) or not most:
        return []
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    tuples = np.zeros(len(encoded.dictionary), dtype=np.int64)
    np.add.at(tuples, codes, counts)
    least = np.sort(tuples)[-most:][0]
    hot = np.flatnonzero(tuples >= least)
    columns = {"key": encoded.dictionary.take(pa.array(hot)), "tuples": tuples[hot], "workers": np.bincount(codes)[hot]}
    ranked = pa.table(columns).sort_by([("tuples", "descending"), ("key", "ascending")]).slice(0, most)
    return list(zip(*ranked.to_pydict().values(), strict=True))
