"""Fits Zipf's law to the tuples of the hottest keys: tuples of the key of rank r = c / r^exponent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_COUNT = 10
"""Keys with fewer tuples are not part of the fit, because their counts are mostly chance."""
MIN_RANKS = 5
POINTS = 200
"""Maximum number of ranks in the fit, evenly spaced in log(rank), so that the many rare keys do not dominate it."""


def fit(counts: NDArray[np.int64]) -> dict[str, Any] | None:
    """Fit a line to log(count) over log(rank) by least squares. `counts` are in descending order.

    Returns exponent, R² (1: the counts follow the law exactly) and the number of ranks that the fit covers. None if
    fewer than MIN_RANKS keys have MIN_COUNT tuples.
    """
    ranks = int(np.searchsorted(-counts, -MIN_COUNT, side="right"))
    if ranks < MIN_RANKS:
        return None
    chosen = np.unique(np.geomspace(1, ranks, POINTS).astype(np.int64))
    x, y = np.log(chosen), np.log(counts[chosen - 1])
    x, y = x - x.mean(), y - y.mean()
    slope = float((x * y).sum() / (x * x).sum())
    residual, total = float(((y - slope * x) ** 2).sum()), float((y * y).sum())
    return {
        "exponent": max(0.0, -slope),
        "r_squared": 1 - residual / total if total > 0 else 1.0,
        "ranks": ranks,
    }
