"""Runs plan candidates on a stream of tuple blocks. A candidate is a grouping with a number of workers (W).

The candidates are divided into shards. Each shard runs over all blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from skewless.algorithms.grouping import KeyBatch
from skewless.algorithms.grouping_metrics import KeyCounts
from skewless.algorithms.keyed_table import KeyedTable
from skewless.lab.simulation.candidate import Candidate, SimulationConfig
from skewless.lab.simulation.row_batch import reduced
from skewless.lab.simulation.tuple_blocks import decode_block


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of a plan: all combinations of groupings and numbers of workers."""

    groupings: Sequence[str]
    workers: Sequence[int]
    setup: SimulationConfig

    def shards(self, max_shards: int) -> list[list[tuple[str, int]]]:
        """Divide the candidates into at most `max_shards` shards.

        Candidates of the same grouping have similar cost, so consecutive ones go to different shards.
        """
        pairs = list(product(self.groupings, self.workers))
        return [pairs[shard::max_shards] for shard in range(min(max_shards, len(pairs)))]


class Shard:
    """Candidates that process the blocks together, so that each block is decoded and its keys are indexed only once."""

    def __init__(self, pairs: Sequence[tuple[str, int]], setup: SimulationConfig) -> None:
        self._candidates = [Candidate(grouping, workers, setup) for grouping, workers in pairs]
        self._routers = setup.routers
        self._pane_ms = setup.pane_ms
        self._key_counts = KeyCounts()
        self._key_index = KeyedTable(())

    def add(self, partition: int, block: bytes) -> None:
        """Process the next block."""
        keys, dictionary, codes, times = decode_block(block)
        key_indices = self._key_index.rows_of(pa.chunked_array([dictionary]))
        self._key_counts.add(key_indices, np.bincount(codes, minlength=len(key_indices)))
        tuples = KeyBatch(keys, codes, times)
        rows = reduced(tuples, self._pane_ms).batch if any(each.is_local for each in self._candidates) else tuples
        for candidate in self._candidates:
            batch = rows if candidate.is_local else tuples
            workers = candidate.route(partition % self._routers, batch, 0)
            candidate.count(key_indices[batch.codes], workers, batch.times)

    def measures(self) -> list[Mapping[str, Any]]:
        """Return the measures of each candidate."""
        return [candidate.facts(self._key_counts) for candidate in self._candidates]
