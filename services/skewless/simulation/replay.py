"""The run: one stream of lines through any number of groupings at once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import Grouping, GroupingOptions, KeyBatch, create
from skewless.algorithms.measures import KeyCounts, Spread
from skewless.simulation.keys import KeyNumbers
from skewless.simulation.lines import Lines

BATCH = 20_000
"""Tuples that a router gets at once, about as many as in a live pipeline under load."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all runs over a stream."""

    options: GroupingOptions
    routers: int = 1
    """Routers, each with a grouping of its own; tuples are dealt to them in turn."""
    window_ms: int = 60_000

    @property
    def rows(self) -> int:
        """Lines to read at once: a batch for each router."""
        return BATCH * self.routers


@dataclass(frozen=True, slots=True)
class RoutedBatch:
    """Consecutive tuples: what the routers get, and what the measures need."""

    parts: Sequence[KeyBatch]
    """The batch of each router: rows r, r + S, r + 2S, ..."""
    numbers: NDArray[np.int64]
    """Number of each row's key in the stream."""
    times: NDArray[np.int64]


class Run:
    """One grouping over W workers on the stream."""

    def __init__(self, grouping: str, workers: int, setup: Setup) -> None:
        self.grouping = grouping
        self.workers = workers
        self._routers = [create(grouping, workers, setup.options) for _ in range(setup.routers)]
        self._options = setup.options
        self._spread = Spread(workers, setup.window_ms)
        self._router_ns = 0
        self._warm = False

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each worker so far."""
        return self._spread.loads

    def add(self, batch: RoutedBatch, now: int) -> NDArray[np.int32]:
        """Choose the worker of each tuple, and count them."""
        if not self._warm:
            # Compiling, or loading what was compiled, is no cost per tuple: an extra grouping takes it on itself.
            create(self.grouping, self.workers, self._options).assign(batch.parts[0], now)
            self._warm = True
        workers = np.empty(len(batch.numbers), dtype=np.int32)
        started = time.thread_time_ns()
        for first, (router, part) in enumerate(zip(self._routers, batch.parts, strict=True)):
            workers[first :: len(batch.parts)] = router.assign(part, now)
        self._router_ns += time.thread_time_ns() - started
        self._spread.add(batch.numbers, workers, batch.times)
        return workers

    def facts(self, counts: KeyCounts) -> dict[str, Any]:
        """Give all measures by name."""
        return facts_of(self.grouping, self._routers, self._spread, counts, self._router_ns / max(1, counts.tuples))


def facts_of(
    grouping: str, routers: Sequence[Grouping], spread: Spread, counts: KeyCounts, ns_per_tuple: float
) -> dict[str, Any]:
    """Give the measures of routers that ran over a stream; names are those of `SpreadMeasures` and of the stream."""
    workers = len(spread.loads)
    return {
        "grouping": grouping,
        "workers": workers,
        "routers": len(routers),
        "tuples": counts.tuples,
        "keys": counts.keys,
        "p1": counts.p1,
        **dataclasses.asdict(spread.measures()),
        "replication_bound": counts.replication_bound(workers),
        "router_ns_per_tuple": ns_per_tuple,
        "state_bytes": max(len(msgspec.msgpack.encode(router.snapshot())) for router in routers),
    }


class Simulation:
    """Some runs over one stream, which is read once for all of them."""

    def __init__(self, runs: Iterable[tuple[str, int]], setup: Setup) -> None:
        self.setup = setup
        self.counts = KeyCounts()
        self._numbers = KeyNumbers()
        self.runs = [Run(grouping, workers, setup) for grouping, workers in runs]

    def add(self, lines: Lines, now: int) -> list[NDArray[np.int32]]:
        """Give the next tuples to every run; returns the workers that each chose. `now` is the wall clock in ms."""
        batch = self._routed(lines)
        return [run.add(batch, now) for run in self.runs]

    def facts(self) -> list[dict[str, Any]]:
        """Give the measures of every run."""
        return [run.facts(self.counts) | {"window_s": self.setup.window_ms / 1000} for run in self.runs]

    def _routed(self, lines: Lines) -> RoutedBatch:
        encoded = lines.keys.dictionary_encode()
        numbers, codes = self._numbers.of(encoded.dictionary), encoded.indices.to_numpy()
        self.counts.add(numbers, np.bincount(codes, minlength=len(numbers)))
        routers = self.setup.routers
        if routers == 1:
            parts = [_key_batch(encoded, lines.times)]
        else:
            dealt = (np.arange(first, len(codes), routers) for first in range(routers))
            parts = [_key_batch(lines.keys.take(pa.array(r)).dictionary_encode(), lines.times[r]) for r in dealt]
        return RoutedBatch(parts, numbers[codes], lines.times)


def simulate(
    simulation: Simulation,
    stream: Iterable[Lines],
    each: Callable[[list[NDArray[np.int32]]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Run the whole stream; `each` gets the workers that every run chose, batch by batch. Returns the measures."""
    for lines in stream:
        each(simulation.add(lines, time.time_ns() // 1_000_000))
    return simulation.facts()


def _key_batch(keys: pa.DictionaryArray, times: NDArray[np.int64]) -> KeyBatch:
    return KeyBatch(keys.dictionary.to_pylist(), keys.indices.to_numpy(), times)
