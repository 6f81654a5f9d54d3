"""Measures of a recorded run from sums that Spark has made: plain numbers in, plain numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.distribution import imbalance, judged_max_over_avg, max_over_avg, std_dev

TARGET = 1e-3
"""I/m up to which a load counts as even: the bound of `reaction`."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many workers keys had: of a tick, of a window, or of a whole run."""

    keys: int
    pairs: int
    """(key, worker) pairs that were used."""
    most: int
    """Workers of the key that had most."""

    @property
    def mean(self) -> float:
        """Mean number of distinct workers per key: replication, the reference's DIST_COST."""
        return self.pairs / self.keys if self.keys else 0.0


def loads_of(tuples: Iterable[tuple[int, int]], workers: int) -> NDArray[np.int64]:
    """Make an array of (worker, tuples) rows, over at least the `workers` first ones."""
    rows = list(tuples)
    loads = np.zeros(max(workers, max((worker for worker, _ in rows), default=-1) + 1), dtype=np.int64)
    for worker, count in rows:
        loads[worker] += count
    return loads


def load_measures(loads: NDArray[np.int64]) -> dict[str, Any]:
    """Tell how even a load is, by the names of `skewless.algorithms.measures.SpreadMeasures`."""
    uneven = max_over_avg(loads)
    return {
        "tuples": int(loads.sum()),
        "tuples_by_worker": loads.tolist(),
        "imbalance_tuples": float(loads.max() - loads.mean()),
        "imbalance": imbalance(loads),
        "max_over_avg": uneven,
        "rate": 1 / uneven,
        "std_dev": std_dev(loads),
    }


def replica_measures(replicas: Replicas) -> dict[str, Any]:
    """Tell the price of the even load, by the same names."""
    return {
        "keys": replicas.keys,
        "replication": replicas.mean,
        "replication_max": replicas.most,
        "pairs": replicas.pairs,
    }


def window_measures(windows: Sequence[tuple[Replicas, NDArray[np.int64]]], mean_load: float) -> dict[str, Any]:
    """Sum up the windows of a run, given replicas and loads of each; `mean_load` is the run's average worker's."""
    keys, pairs = sum(each.keys for each, _ in windows), sum(each.pairs for each, _ in windows)
    fullest = sum(int(loads.max()) for _, loads in windows)
    judged = [uneven for _, loads in windows if (uneven := judged_max_over_avg(loads)) is not None]
    return {
        "windows": len(windows),
        "window_replication": pairs / max(1, keys),
        "window_replication_max": max((each.mean for each, _ in windows), default=0.0),
        "window_max_over_avg": fullest / mean_load if mean_load else 1.0,
        "worst_window_max_over_avg": max(judged, default=None),
        "aggregation_cost": pairs / max(1, len(windows)),
    }


def running(loads: Iterable[NDArray[np.int64]]) -> list[float]:
    """I(t)/m(t) at the end of each tick: the imbalance of everything so far."""
    so_far = np.zeros(0, dtype=np.int64)
    found = []
    for tick in loads:
        longer, shorter = (tick, so_far) if len(tick) >= len(so_far) else (so_far, tick)
        so_far = longer.copy()
        so_far[: len(shorter)] += shorter
        found.append(imbalance(so_far))
    return found


def reference_metrics(loads: NDArray[np.int64], replicas: Replicas, duration_ms: int) -> dict[str, float]:
    """Give the five metrics of the reference's distribution observer, by its names."""
    total = int(loads.sum())
    return {
        "STD_DEV": std_dev(loads),
        "DIST_COST": replicas.mean,
        "THROUGHPUT_RATIO": total * 1000 / duration_ms if duration_ms else 0.0,
        "TOTAL_COUNT": total,
        "DURATION": duration_ms,
    }


def reactions(ticks: Sequence[dict[str, Any]], target: float = TARGET) -> list[dict[str, Any]]:
    """How long each change of the hottest key kept the load uneven: until a tick's I/m is at most `target`.

    `ticks`, in order, have tick_start, tick_end (ms), imbalance, tuples and hottest_keys. Resolution is a tick; None
    where the target was not reached again before the next change or the end.
    """
    changes = [row for row in range(1, len(ticks)) if _hottest(ticks[row]) != _hottest(ticks[row - 1])]
    found = []
    for at, end in pairwise([*changes, len(ticks)]):
        even = next((row for row in range(at, end) if ticks[row]["imbalance"] <= target), None)
        spent = None if even is None else ticks[at:even]
        found.append(
            {
                "tick_start": ticks[at]["tick_start"],
                "from": _hottest(ticks[at - 1]),
                "to": _hottest(ticks[at]),
                "seconds": None if spent is None else sum(t["tick_end"] - t["tick_start"] for t in spent) / 1000,
                "tuples": None if spent is None else sum(t["tuples"] for t in spent),
            }
        )
    return found


def _hottest(tick: dict[str, Any]) -> str | None:
    keys = tick["hottest_keys"]
    return keys[0]["key"] if keys else None
