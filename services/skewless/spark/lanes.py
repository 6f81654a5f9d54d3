"""Candidates, which are a grouping with its W, on a stream of blocks: what one executor does of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from skewless.algorithms.grouping import KeyBatch
from skewless.algorithms.measures import KeyCounts
from skewless.simulation.candidate import Candidate, Setup
from skewless.simulation.keys import KeyNumbers
from skewless.spark.blocks import decoded

RESULTS = "lane int, facts string"


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


def run(
    batches: Iterator[pa.RecordBatch], lanes: Sequence[Sequence[tuple[str, int]]], setup: Setup
) -> Iterator[pa.RecordBatch]:
    """Run the candidates of a lane over its blocks (lane, partition, block), in their order."""
    running: dict[int, _Lane] = {}
    for batch in batches:
        for lane, partition, block in zip(*(batch[name].to_pylist() for name in _COLUMNS), strict=True):
            if lane not in running:
                running[lane] = _Lane(lanes[lane], setup)
            running[lane].add(partition, block)
    for number, lane in running.items():
        facts = [msgspec.json.encode(each).decode() for each in lane.facts()]
        yield pa.record_batch({"lane": pa.array([number] * len(facts), pa.int32()), "facts": pa.array(facts)})


_COLUMNS = ("lane", "partition", "block")


class _Lane:
    """Candidates that go through the blocks together: these are read, and their keys numbered, once for all."""

    def __init__(self, pairs: Sequence[tuple[str, int]], setup: Setup) -> None:
        self._candidates = [Candidate(grouping, workers, setup) for grouping, workers in pairs]
        self._routers = setup.routers
        self._counts = KeyCounts()
        self._numbers = KeyNumbers()

    def add(self, partition: int, block: bytes) -> None:
        """Run the next block."""
        keys, dictionary, codes, times = decoded(block)
        numbers = self._numbers.of(dictionary)
        self._counts.add(numbers, np.bincount(codes, minlength=len(numbers)))
        batch, each = KeyBatch(keys, codes, times), numbers[codes]
        for candidate in self._candidates:
            workers = candidate.route(partition % self._routers, batch, 0)
            candidate.count(each, workers, times)

    def facts(self) -> list[Mapping[str, Any]]:
        """Give the measures of every candidate."""
        return [candidate.facts(self._counts) for candidate in self._candidates]
