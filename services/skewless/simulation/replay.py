"""The run: one stream of lines through any number of groupings at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import KeyBatch
from skewless.algorithms.measures import KeyCounts
from skewless.simulation.candidate import Candidate, Setup
from skewless.simulation.keys import KeyNumbers
from skewless.simulation.lines import Lines

BATCH = 20_000
"""Tuples that a router gets at once, about as many as in a live pipeline under load."""


class Simulation:
    """Some runs over one stream, which is read once for all of them."""

    def __init__(self, runs: Iterable[tuple[str, int]], setup: Setup) -> None:
        self.setup = setup
        self.counts = KeyCounts()
        self._numbers = KeyNumbers()
        self.runs = [Candidate(grouping, workers, setup) for grouping, workers in runs]

    @property
    def rows(self) -> int:
        """Lines to read at once: a batch for each router."""
        return BATCH * self.setup.routers

    def add(self, lines: Lines, now: int) -> list[NDArray[np.int32]]:
        """Give the next tuples to every run; returns the workers that each chose. `now` is the wall clock in ms."""
        encoded = lines.keys.dictionary_encode()
        numbers, codes = self._numbers.of(encoded.dictionary), encoded.indices.to_numpy()
        self.counts.add(numbers, np.bincount(codes, minlength=len(numbers)))
        parts, each = self._dealt(lines, encoded), numbers[codes]
        return [_routed(run, parts, each, lines.times, now) for run in self.runs]

    def facts(self) -> list[dict[str, Any]]:
        """Give the measures of every run."""
        return [run.facts(self.counts) | {"window_s": self.setup.window_ms / 1000} for run in self.runs]

    def _dealt(self, lines: Lines, encoded: pa.DictionaryArray) -> list[KeyBatch]:
        """Deal the tuples to the routers in turn: the batch of router r of S has rows r, r + S, r + 2S, ..."""
        routers = self.setup.routers
        if routers == 1:
            return [_key_batch(encoded, lines.times)]
        dealt = (np.arange(first, len(lines.times), routers) for first in range(routers))
        return [_key_batch(lines.keys.take(pa.array(rows)).dictionary_encode(), lines.times[rows]) for rows in dealt]


def _routed(
    run: Candidate, parts: Sequence[KeyBatch], numbers: NDArray[np.int64], times: NDArray[np.int64], now: int
) -> NDArray[np.int32]:
    workers = np.empty(len(numbers), dtype=np.int32)
    for router, part in enumerate(parts):
        workers[router :: len(parts)] = run.route(router, part, now)
    run.count(numbers, workers, times)
    return workers


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
