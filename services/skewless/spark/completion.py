"""Computes what workers completed: their rate, the queue at the end, and latencies of tuples. Does not use Spark.

A tuple reaches the queue of its worker with a record of `worker-input`, and is completed with a record of `partials`. A
worker takes tuples in the order of its queue. So the n-th tuple that it completed is the n-th one that reached it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TUPLE_LATENCIES = "is_waiting boolean, latency_ms long, tuples long"
"""Number of tuples that have a latency, in any number of rows. Of tuples that wait, it is their age at the end."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Tuples that the workers of a run completed, and tuples that still waited at its end.

    Times are Kafka timestamps in ms: of the first tuple that reached a worker, and of the last one that reached one or
    was completed.
    """

    tuples: int
    waiting: int
    first_at: int
    last_at: int

    @property
    def tuples_per_s(self) -> float:
        """Tuples completed per second between the first and the last record; 0 if they have the same timestamp."""
        duration_ms = self.last_at - self.first_at
        return self.tuples * 1000 / duration_ms if duration_ms else 0.0


def completion_of(progress: pa.Table) -> Completion:
    """Return the completion of a run from all its WORKER_PROGRESS, which must not be empty."""
    arrived, completed, at = (progress[name].to_numpy() for name in ("arrived", "completed", "at"))
    waiting = int(arrived.sum() - completed.sum())
    return Completion(int(completed.sum()), waiting, int(at.min()), int(at.max()))


def tuple_latencies(progress: pa.Table, end: int) -> pa.Table:
    """Return the latencies of the tuples of one worker (TUPLE_LATENCIES), given its WORKER_PROGRESS.

    `end` is the end of the run, a Kafka timestamp in ms.
    """
    order = np.argsort(progress["at"].to_numpy(), kind="stable")
    at, arrived, completed = (progress[name].to_numpy()[order] for name in ("at", "arrived", "completed"))
    total_arrived, total_completed = np.cumsum(arrived), np.cumsum(completed)
    # Tuples between two bounds arrived with the same record and were completed with the same record.
    bounds = np.unique(np.concatenate([total_arrived, total_completed]))
    bounds = bounds[(bounds > 0) & (bounds <= total_arrived[-1])]
    is_waiting: NDArray[np.bool_] = bounds > total_completed[-1]
    arrived_at = at[np.searchsorted(total_arrived, bounds)]
    completed_rows = np.minimum(np.searchsorted(total_completed, bounds), len(at) - 1)
    left_at = np.where(is_waiting, end, at[completed_rows])
    tuples = np.diff(bounds, prepend=0)
    return pa.table({"is_waiting": is_waiting, "latency_ms": left_at - arrived_at, "tuples": tuples})
