"""Measures of a run from the sums that Spark has computed. Pure: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.load_metrics import imbalance, judged_max_over_avg, load_stddev_percent, max_over_avg

TARGET = 1e-3
"""I/m up to which a load counts as even, for `reactions`."""


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


def loads_of(counts: Iterable[tuple[int, int]], workers: int) -> NDArray[np.int64]:
    """Return the sum of the counts per worker, in an array of at least `workers` elements, from (worker, count)."""
    pairs = list(counts)
    loads = np.zeros(max(workers, max((worker for worker, _ in pairs), default=-1) + 1), dtype=np.int64)
    for worker, count in pairs:
        loads[worker] += count
    return loads


def load_measures(loads: NDArray[np.int64], tuples: NDArray[np.int64]) -> dict[str, Any]:
    """Return measures of the imbalance of a load, named as in `skewless.algorithms.grouping_metrics`.

    `loads` are the rows of each worker, `tuples` the tuples in them.
    """
    peak_to_mean = max_over_avg(loads)
    return {
        "tuples": int(tuples.sum()),
        "tuples_by_worker": tuples.tolist(),
        "rows": int(loads.sum()),
        "rows_by_worker": loads.tolist(),
        "rows_per_tuple": int(loads.sum()) / max(1, int(tuples.sum())),
        "imbalance_tuples": float(loads.max() - loads.mean()),
        "imbalance": imbalance(loads),
        "max_over_avg": peak_to_mean,
        "rate": 1 / peak_to_mean,
        "load_stddev_percent": load_stddev_percent(loads),
    }


def replica_measures(replicas: Replicas) -> dict[str, Any]:
    """Return measures of the replication of keys, named as in `skewless.algorithms.grouping_metrics`."""
    return {
        "keys": replicas.keys,
        "replication_factor": replicas.mean,
        "replication_max": replicas.max_workers,
        "pairs": replicas.pairs,
    }


def window_measures(windows: Sequence[tuple[Replicas, NDArray[np.int64]]], mean_load: float) -> dict[str, Any]:
    """Return measures of the windows of a run, given replicas and loads of each; `mean_load` is the mean of the run.

    `window_replication_max` is the largest mean of a window, not the largest number of workers of a key.
    """
    keys = sum(replicas.keys for replicas, _ in windows)
    pairs = sum(replicas.pairs for replicas, _ in windows)
    sum_of_max_loads = sum(int(loads.max()) for _, loads in windows)
    window_ratios = [judged_max_over_avg(loads) for _, loads in windows]
    return {
        "windows": len(windows),
        "window_replication": pairs / max(1, keys),
        "window_replication_max": max((replicas.mean for replicas, _ in windows), default=0.0),
        "window_max_over_avg": sum_of_max_loads / mean_load if mean_load else 1.0,
        "worst_window_max_over_avg": max((ratio for ratio in window_ratios if ratio is not None), default=None),
        "aggregation_cost": pairs / max(1, len(windows)),
    }


def running(loads: Iterable[NDArray[np.int64]]) -> list[float]:
    """Return I(t)/m(t) at the end of each tick: the imbalance of all rows so far."""
    so_far = np.zeros(0, dtype=np.int64)
    imbalances = []
    for tick in loads:
        longer, shorter = (tick, so_far) if len(tick) >= len(so_far) else (so_far, tick)
        so_far = longer.copy()
        so_far[: len(shorter)] += shorter
        imbalances.append(imbalance(so_far))
    return imbalances


def reference_metrics(loads: NDArray[np.int64], total: int, replicas: Replicas, duration_ms: int) -> dict[str, float]:
    """Return the five metrics of the reference's distribution observer, by its names. `total`: number of tuples."""
    return {
        "STD_DEV": load_stddev_percent(loads),
        "DIST_COST": replicas.mean,
        "THROUGHPUT_RATIO": total * 1000 / duration_ms if duration_ms else 0.0,
        "TOTAL_COUNT": total,
        "DURATION": duration_ms,
    }


def reactions(ticks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how long the load was uneven after each change of the hottest key: until a tick's I/m is at most TARGET.

    `ticks`, in order, have tick_start, tick_end (ms), imbalance, tuples and top_keys. The resolution is a tick.
    `seconds` and `tuples` are None if the target is not reached before the next change or the end.
    """
    changes = [row for row in range(1, len(ticks)) if _hottest_key(ticks[row]) != _hottest_key(ticks[row - 1])]
    all_reactions = []
    for change, end in pairwise([*changes, len(ticks)]):
        even = next((row for row in range(change, end) if ticks[row]["imbalance"] <= TARGET), None)
        uneven_ticks = None if even is None else ticks[change:even]
        all_reactions.append(
            {
                "tick_start": ticks[change]["tick_start"],
                "from": _hottest_key(ticks[change - 1]),
                "to": _hottest_key(ticks[change]),
                "seconds": None if uneven_ticks is None else _duration_s(uneven_ticks),
                "tuples": None if uneven_ticks is None else sum(tick["tuples"] for tick in uneven_ticks),
            }
        )
    return all_reactions


def _duration_s(ticks: Sequence[dict[str, Any]]) -> float:
    duration_ms: int = sum(tick["tick_end"] - tick["tick_start"] for tick in ticks)
    return duration_ms / 1000


def _hottest_key(tick: dict[str, Any]) -> str | None:
    keys = tick["top_keys"]
    return keys[0]["key"] if keys else None
