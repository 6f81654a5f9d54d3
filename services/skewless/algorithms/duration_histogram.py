"""Histogram of durations. An observation costs one bucket look-up, which is cheap enough for every batch and commit."""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.metric_definition import SECONDS


class Exemplar(NamedTuple):
    """An observation, and the trace in which it was made."""

    value: float
    trace_id: str


class Histogram:
    """Number of observations per bucket, and the sum of all observations."""

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[float, Exemplar] = {}
        """Last observation with a trace, by the bound of its bucket. The last bound is infinite."""

    def observe(self, value: float, trace_id: str | None = None) -> None:
        """Count one observation, which was made in a trace or not."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self.sum += value
        if trace_id is not None:
            self.exemplars[(*self._bounds, inf)[bucket]] = Exemplar(value, trace_id)

    def observe_each(self, values: NDArray[np.float64]) -> None:
        """Count many observations at once."""
        found = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._counts))
        self._counts = [count + more for count, more in zip(self._counts, found.tolist(), strict=True)]
        self.sum += float(values.sum())

    def cumulative(self) -> list[tuple[float, int]]:
        """Return for each bound the number of observations that are at most as large. The last bound is infinite."""
        total, cumulative = 0, []
        for bound, count in zip((*self._bounds, inf), self._counts.copy(), strict=True):
            total += count
            cumulative.append((bound, total))
        return cumulative
