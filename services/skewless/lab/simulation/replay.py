"""Replays one stream of tuples through any number of candidates at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import KeyBatch
from skewless.algorithms.grouping_metrics import KeyCounts
from skewless.algorithms.keyed_table import KeyedTable
from skewless.lab.simulation.candidate import Candidate, SimulationConfig
from skewless.lab.simulation.row_batch import RowBatch, reduced
from skewless.lab.simulation.tsv_reader import ParsedLines

ROUTER_BATCH_TUPLES = 20_000
"""Tuples per batch of a router, about as many as in a live pipeline under load."""


class Simulation:
    """Several candidates on one stream, which is read once for all of them."""

    def __init__(self, runs: Iterable[tuple[str, int]], config: SimulationConfig) -> None:
        self._config = config
        self._key_counts = KeyCounts()
        self._key_index = KeyedTable(())
        self.runs = [Candidate(grouping, workers, config) for grouping, workers in runs]

    @property
    def rows(self) -> int:
        """Number of lines to read at once: one batch for each router. A batch is one flush of local aggregation."""
        return (self._config.local_tuples or ROUTER_BATCH_TUPLES) * self._config.routers

    def add(self, lines: ParsedLines, now: int) -> list[NDArray[np.int32]]:
        """Route the next tuples with every candidate and return the workers of each. `now` is the wall clock in ms."""
        encoded = lines.keys.dictionary_encode()
        dictionary_indices, codes = (
            self._key_index.rows_of(pa.chunked_array([encoded.dictionary])),
            encoded.indices.to_numpy(),
        )
        self._key_counts.add(dictionary_indices, np.bincount(codes, minlength=len(dictionary_indices)))
        batches, key_indices = self._partition_by_router(lines, encoded), dictionary_indices[codes]
        row_batches = [
            reduced(batch, self._config.pane_ms) for batch in batches if any(run.is_local for run in self.runs)
        ]
        return [
            _route_rows(run, row_batches, key_indices, now)
            if run.is_local
            else _route(run, batches, key_indices, lines.times, now)
            for run in self.runs
        ]

    def facts(self) -> list[dict[str, Any]]:
        """Return the measures of every candidate as JSON."""
        return [run.facts(self._key_counts) | {"window_s": self._config.window_ms / 1000} for run in self.runs]

    def _partition_by_router(self, lines: ParsedLines, encoded: pa.DictionaryArray) -> list[KeyBatch]:
        """Return the batch of each router. Tuples are assigned in turn: router r of S gets rows r, r + S, r + 2S ..."""
        routers = self._config.routers
        if routers == 1:
            return [_key_batch(encoded, lines.times)]
        rows_by_router = (np.arange(router, len(lines.times), routers) for router in range(routers))
        return [
            _key_batch(lines.keys.take(pa.array(rows)).dictionary_encode(), lines.times[rows])
            for rows in rows_by_router
        ]


def _route(
    run: Candidate, batches: Sequence[KeyBatch], key_indices: NDArray[np.int64], times: NDArray[np.int64], now: int
) -> NDArray[np.int32]:
    """Return the worker of each tuple, in the order of the stream, and count the tuples."""
    workers = np.empty(len(key_indices), dtype=np.int32)
    for router, batch in enumerate(batches):
        workers[router :: len(batches)] = run.route(router, batch, now)
    run.count(key_indices, workers, times)
    return workers


def _route_rows(
    run: Candidate, batches: Sequence[RowBatch], key_indices: NDArray[np.int64], now: int
) -> NDArray[np.int32]:
    """Return the worker of each tuple, in the order of the stream, and count the rows."""
    workers = np.empty(len(key_indices), dtype=np.int32)
    for router, rows in enumerate(batches):
        row_workers = run.route(router, rows.batch, now)
        workers[router :: len(batches)] = row_workers[rows.row_of]
        index_of_row = np.empty(len(row_workers), dtype=np.int64)
        index_of_row[rows.row_of] = key_indices[router :: len(batches)]
        run.count(index_of_row, row_workers, rows.batch.times)
    return workers


def simulate(
    simulation: Simulation,
    stream: Iterable[ParsedLines],
    on_batch: Callable[[list[NDArray[np.int32]]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Replay the whole stream and return the measures. Calls `on_batch` with each batch's workers by candidate."""
    for lines in stream:
        on_batch(simulation.add(lines, time.time_ns() // 1_000_000))
    return simulation.facts()


def _key_batch(keys: pa.DictionaryArray, times: NDArray[np.int64]) -> KeyBatch:
    return KeyBatch(keys.dictionary.to_pylist(), keys.indices.to_numpy(), times)
