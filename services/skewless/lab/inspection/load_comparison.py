"""LoadComparison: the load balance of groupings on a stream of keys, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create
from skewless.algorithms.load_metrics import max_over_avg

GROUPINGS = ("key", "partial_key", "dynamic_key", "even")
WORKERS = (8, 16, 32)
OPTIONS = GroupingOptions.model_validate({"clock": "event", "dynamic_key": {"max_baby_keys": 5_000}})
"""Event time, because wall-clock time has no meaning for records that are read later."""
MAX_STEP_MS = OPTIONS.dynamic_key.promotion_interval_s * 1000 / 100
"""Largest step of the clock of the groupings between two tuples.

With fewer than 100 tuples between two promotions, `dynamic_key` would do little but promote keys, in 0.1 ms each. A
slow stream is compared as if it were faster.
"""


class LoadComparison:
    """Routes tuples with each grouping and number of workers, as one router does."""

    def __init__(self, sampled_keys: int) -> None:
        self._groupings = [create(name, workers, OPTIONS) for name in GROUPINGS for workers in WORKERS]
        self._loads = [np.zeros(grouping.workers, dtype=np.int64) for grouping in self._groupings]
        self._seen = [np.zeros((sampled_keys, grouping.workers), dtype=np.bool_) for grouping in self._groupings]
        """Per grouping: whether a sampled key (row) had a tuple on a worker (column)."""
        self._clock_ms: float | None = None

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Keep only these sampled keys, in this order."""
        for seen in self._seen:
            seen[: len(rows)] = seen[rows]
            seen[len(rows) :] = False

    def add(self, batch: KeyBatch, sampled: NDArray[np.int64]) -> None:
        """Route the next tuples. `sampled` is the index of each key of the batch in the sample, or -1."""
        batch = KeyBatch(batch.keys, batch.codes, self._times(batch.times))
        rows = np.flatnonzero(sampled[batch.codes] >= 0)
        keys = sampled[batch.codes[rows]]
        for index, grouping in enumerate(self._groupings):
            workers = grouping.assign(batch, 0)
            self._loads[index] += np.bincount(workers, minlength=grouping.workers)
            self._seen[index][keys, workers[rows]] = True

    def _times(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the times of a clock that follows the newest time, by at most MAX_STEP_MS per tuple."""
        newest = np.maximum.accumulate(times).astype(np.float64)
        if self._clock_ms is None:
            self._clock_ms = float(newest[0])
        steps = np.arange(1, len(times) + 1) * MAX_STEP_MS
        reached = np.minimum.accumulate(np.concatenate(([self._clock_ms], np.maximum(newest, self._clock_ms) - steps)))
        clock = reached[1:] + steps
        self._clock_ms = float(clock[-1])
        result: NDArray[np.int64] = clock.astype(np.int64)
        return result

    def to_json(self) -> list[dict[str, Any]]:
        """Return the measures of each grouping and number of workers."""
        return [
            {
                "grouping": grouping.name,
                "workers": grouping.workers,
                "max_over_avg": max_over_avg(loads),
                "relative_rate": 1 / max_over_avg(loads),
                "workers_per_key": _replication(seen),
            }
            for grouping, loads, seen in zip(self._groupings, self._loads, self._seen, strict=True)
        ]


def _replication(seen: NDArray[np.bool_]) -> float:
    """Return the mean number of workers of the keys that had a tuple."""
    workers = seen.sum(axis=1)
    return float(workers.sum() / max(1, np.count_nonzero(workers)))
