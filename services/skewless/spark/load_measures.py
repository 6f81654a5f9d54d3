"""Measures of a run from the sums that Spark has computed. Pure: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.load_metrics import Replicas, WindowTotals, balance_measures, imbalance, load_stddev_percent

TARGET = 1e-3
"""I/m up to which a load counts as even, for `reactions`."""


def load_measures(loads: NDArray[np.int64], tuples: NDArray[np.int64]) -> dict[str, Any]:
    """Return the sums of a load, and measures of its imbalance.

    `loads` are the rows of each worker, `tuples` the tuples in them.
    """
    return {
        "tuples": int(tuples.sum()),
        "tuples_by_worker": tuples.tolist(),
        "rows": int(loads.sum()),
        "rows_by_worker": loads.tolist(),
        "rows_per_tuple": int(loads.sum()) / max(1, int(tuples.sum())),
        **balance_measures(loads),
    }


def window_measures(windows: Iterable[tuple[Replicas, NDArray[np.int64]]], mean_load: float) -> dict[str, Any]:
    """Return measures of the windows of a run, given replicas and loads of each; `mean_load` is the mean of the run."""
    totals = WindowTotals()
    for replicas, loads in windows:
        totals.add(np.array([replicas.pairs]), np.array([replicas.keys]), loads[np.newaxis])
    return totals.measures(mean_load)


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
