"""Durations counted by bucket: one look-up each, so that batches and commits can be observed without a cost."""

from __future__ import annotations

from bisect import bisect_left

from skewless.metrics.base import SECONDS


class Histogram:
    """How many observations were at most each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[float, int]]:
        """Tell how many were at most each bound; the last bound is infinite."""
        total, told = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts.copy(), strict=True):
            total += count
            told.append((bound, total))
        return told
