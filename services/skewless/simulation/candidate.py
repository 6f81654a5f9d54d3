"""A grouping with its W on a stream of tuples: the very code that routes in a pipeline, measured."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create
from skewless.algorithms.measures import KeyCounts, Spread


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all candidates on a stream. It travels to Spark's executors."""

    options: GroupingOptions
    routers: int = 1
    """Routers, each with a grouping, and so with loads, of its own."""
    window_ms: int = 60_000


class Candidate:
    """One grouping over W workers."""

    def __init__(self, grouping: str, workers: int, setup: Setup) -> None:
        self.grouping = grouping
        self.workers = workers
        self._options = setup.options
        self._routers = [create(grouping, workers, setup.options) for _ in range(setup.routers)]
        self._spread = Spread(workers, setup.window_ms)
        self._router_ns = 0
        self._warm = False

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each worker so far."""
        return self._spread.loads

    def route(self, router: int, batch: KeyBatch, now: int) -> NDArray[np.int32]:
        """Let one of the routers choose the worker of each tuple; `now` is the wall clock in ms."""
        if not self._warm:
            # Compiling, or loading what was compiled, is no cost per tuple: an extra grouping takes it on itself.
            create(self.grouping, self.workers, self._options).assign(batch, now)
            self._warm = True
        started = time.thread_time_ns()
        workers = self._routers[router].assign(batch, now)
        self._router_ns += time.thread_time_ns() - started
        return workers

    def count(self, numbers: NDArray[np.int64], workers: NDArray[np.int32], times: NDArray[np.int64]) -> None:
        """Count tuples in the order of the stream: the number of each one's key in the stream, worker, event time."""
        self._spread.add(numbers, workers, times)

    def facts(self, counts: KeyCounts) -> dict[str, Any]:
        """Give all measures; names are those of `SpreadMeasures` and of the stream."""
        return {
            "grouping": self.grouping,
            "workers": self.workers,
            "routers": len(self._routers),
            "tuples": counts.tuples,
            "keys": counts.keys,
            "p1": counts.p1,
            **dataclasses.asdict(self._spread.measures()),
            "replication_bound": counts.replication_bound(self.workers),
            "router_ns_per_tuple": self._router_ns / max(1, counts.tuples),
            "state_bytes": max(len(msgspec.msgpack.encode(router.snapshot())) for router in self._routers),
        }
