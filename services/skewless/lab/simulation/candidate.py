"""Candidate of a simulation: a grouping with a number of workers, run with the router's own code and measured."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping import LOCAL, GroupingOptions, KeyBatch, create
from skewless.algorithms.grouping.key import KeyGrouping
from skewless.algorithms.grouping_metrics import KeyCounts, Spread


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """Configuration of all candidates on a stream. Must be serializable, because Spark sends it to its executors."""

    options: GroupingOptions
    routers: int = 1
    """Number of routers. Each has its own grouping, and so its own loads."""
    window_ms: int = 60_000
    local_tuples: int = 0
    """Tuples that each splitter aggregates between two flushes; 0: only for the grouping `local`."""
    pane_ms: int = 15_000
    """Length of a pane, by which splitters aggregate."""


class Candidate:
    """One grouping with a number of workers."""

    def __init__(self, grouping: str, workers: int, config: SimulationConfig) -> None:
        self.grouping = grouping
        self.workers = workers
        self.is_local = grouping == LOCAL or config.local_tuples > 0
        """Whether rows are routed instead of tuples."""
        self._options = config.options
        self._name = KeyGrouping.name if grouping == LOCAL else grouping
        self._routers = [create(self._name, workers, config.options) for _ in range(config.routers)]
        self._spread = Spread(workers, config.window_ms)
        self._router_ns = 0
        self._compiled = False

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples or rows of each worker so far."""
        return self._spread.loads

    def route(self, router: int, batch: KeyBatch, now: int) -> NDArray[np.int32]:
        """Return the worker of each tuple or row, chosen by one of the routers. `now` is the wall clock in ms."""
        if not self._compiled:
            # Compiling, or loading compiled code, is not a cost per tuple. An extra grouping does it before the timing.
            create(self._name, self.workers, self._options).assign(batch, now)
            self._compiled = True
        started = time.thread_time_ns()
        workers = self._routers[router].assign(batch, now)
        self._router_ns += time.thread_time_ns() - started
        return workers

    def count(self, key_indices: NDArray[np.int64], workers: NDArray[np.int32], times: NDArray[np.int64]) -> None:
        """Count tuples or rows in the order of the stream: number of the key, worker and time."""
        self._spread.add(key_indices, workers, times)

    def facts(self, counts: KeyCounts) -> dict[str, Any]:
        """Return all measures of the candidate and of the stream as JSON; `SpreadMeasures` explains most of them.

        With local aggregation they are measures of rows.
        """
        loads = self.loads
        measures = dataclasses.asdict(self._spread.measures()) | {"rows_by_worker": loads.tolist()}
        if self.is_local:
            del measures["tuples_by_worker"]
        return {
            "grouping": self.grouping,
            "workers": self.workers,
            "routers": len(self._routers),
            "tuples": counts.tuples,
            "rows": int(loads.sum()),
            "keys": counts.keys,
            "p1": counts.p1,
            **measures,
            "replication_bound": counts.replication_bound(self.workers),
            "router_ns_per_tuple": self._router_ns / max(1, counts.tuples),
            "state_bytes": max(len(msgspec.msgpack.encode(router.snapshot())) for router in self._routers),
        }
