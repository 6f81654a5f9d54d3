"""Candidates, which are a grouping with its W, on a stream of blocks: what one executor does of a plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create
from skewless.algorithms.measures import KeyCounts, Spread
from skewless.simulation.keys import KeyNumbers
from skewless.simulation.replay import facts_of
from skewless.spark.blocks import decoded

RESULTS = "lane int, facts string"


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all candidates. It travels to the executors."""

    options: GroupingOptions
    routers: int
    """Each with local loads; source partitions are dealt to them in turn."""
    window_ms: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is compared."""

    groupings: Sequence[str]
    workers: Sequence[int]
    setup: Setup

    def lanes(self, most: int) -> list[list[tuple[str, int]]]:
        """Deal the candidates to at most so many lanes; those of one grouping, which cost alike, to different ones."""
        pairs = list(product(self.groupings, self.workers))
        return [pairs[lane::most] for lane in range(min(most, len(pairs)))]


class Candidate:
    """One grouping over W workers; the very code that routes in a pipeline."""

    def __init__(self, grouping: str, workers: int, setup: Setup) -> None:
        self.grouping = grouping
        self.workers = workers
        self._routers = [create(grouping, workers, setup.options) for _ in range(setup.routers)]
        self._spread = Spread(workers, setup.window_ms)
        self._router_ns = 0
        self._timed = 0

    def add(self, partition: int, batch: KeyBatch, numbers: NDArray[np.int64]) -> None:
        """Choose the worker of each tuple of a source partition; `numbers` are the keys' own, one per tuple."""
        router = self._routers[partition % len(self._routers)]
        started = time.thread_time_ns()
        workers = router.assign(batch, 0)
        if self._spread.loads.any():  # the first batch compiles, or loads what was compiled
            self._router_ns += time.thread_time_ns() - started
            self._timed += len(workers)
        self._spread.add(numbers, workers, batch.times)

    def facts(self, counts: KeyCounts) -> dict[str, Any]:
        """Give all measures, by the names of `skewless simulate --json`."""
        return facts_of(self.grouping, self._routers, self._spread, counts, self._router_ns / max(1, self._timed))


def run(
    batches: Iterator[pa.RecordBatch], lanes: Sequence[Sequence[tuple[str, int]]], setup: Setup
) -> Iterator[pa.RecordBatch]:
    """Run the candidates of a lane over its blocks (lane, partition, block), in their order."""
    running: dict[int, _Lane] = {}
    for batch in batches:
        for lane, partition, block in zip(*(batch[name].to_pylist() for name in _COLUMNS), strict=True):
            if lane not in running:
                running[lane] = _Lane([Candidate(grouping, workers, setup) for grouping, workers in lanes[lane]])
            running[lane].add(partition, block)
    for number, lane in running.items():
        facts = [msgspec.json.encode(each).decode() for each in lane.facts()]
        yield pa.record_batch({"lane": pa.array([number] * len(facts), pa.int32()), "facts": pa.array(facts)})


_COLUMNS = ("lane", "partition", "block")


class _Lane:
    """Candidates that go through the blocks together: these are read, and their keys numbered, once for all."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._counts = KeyCounts()
        self._numbers = KeyNumbers()

    def add(self, partition: int, block: bytes) -> None:
        """Run the next block."""
        keys, dictionary, codes, times = decoded(block)
        numbers = self._numbers.of(dictionary)
        self._counts.add(numbers, np.bincount(codes, minlength=len(numbers)))
        batch, each = KeyBatch(keys, codes, times), numbers[codes]
        for candidate in self._candidates:
            candidate.add(partition, batch, each)

    def facts(self) -> list[Mapping[str, Any]]:
        """Give the measures of every candidate."""
        return [candidate.facts(self._counts) for candidate in self._candidates]
