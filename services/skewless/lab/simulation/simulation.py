"""Simulation: runs groupings with the router's own code on a stream of tuples, and measures load and replication."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import LOCAL, GroupingOptions, KeyBatch, create
from skewless.algorithms.grouping.key import KeyGrouping
from skewless.algorithms.grouping_metrics import KeyCounts, Spread
from skewless.algorithms.keyed_table import KeyedTable
from skewless.algorithms.open_windows import OpenWindows, WindowRows
from skewless.errors import ConfigurationError, LimitError
from skewless.stages.worker.settings import DEFAULT_PANE_MS

ROUTER_BATCH_TUPLES = 20_000
"""Tuples per batch of a router, about as many as in a live pipeline under load."""


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """Configuration of all candidates on a stream."""

    options: GroupingOptions
    routers: int = 1
    """Number of routers. Each has its own grouping, and so its own loads."""
    window_ms: int = 60_000
    local_tuples: int = 0
    """Tuples that each splitter aggregates between two flushes; 0: only for the grouping `local`."""
    longest_pane_ms: int = DEFAULT_PANE_MS

    @property
    def pane_ms(self) -> int:
        """Length of a pane, by which splitters aggregate: the longest that divides a window."""
        longest = min(self.longest_pane_ms, self.window_ms)
        return next(length for length in range(longest, 0, -1) if self.window_ms % length == 0)


class Candidate:
    """One grouping with a number of workers."""

    def __init__(self, grouping: str, workers: int, config: SimulationConfig, windows: OpenWindows) -> None:
        self.grouping = grouping
        self.workers = workers
        self.is_local = grouping == LOCAL or config.local_tuples > 0
        """Whether rows are routed instead of tuples."""
        self._options = config.options
        self._name = KeyGrouping.name if grouping == LOCAL else grouping
        self._routers = [create(self._name, workers, config.options) for _ in range(config.routers)]
        self._spread = Spread(workers, windows)
        self._router_ns = 0
        self._compiled = False

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

    def count(self, in_windows: WindowRows, workers: NDArray[np.int32]) -> None:
        """Count tuples or rows: key and window, and worker of each."""
        self._spread.add(in_windows, workers)

    def facts(self, counts: KeyCounts) -> dict[str, Any]:
        """Return all measures of the candidate and of the stream as JSON.

        With local aggregation they are measures of rows.
        """
        loads = self._spread.loads
        measures = self._spread.measures() | {"rows_by_worker": loads.tolist()}
        if self.is_local:
            del measures["tuples_by_worker"]
        return {
            "grouping": self.grouping,
            "workers": self.workers,
            "routers": len(self._routers),
            "tuples": counts.tuples,
            "rows": int(loads.sum()),
            "p1": counts.p1,
            **measures,
            "replication_bound": counts.replication_bound(self.workers),
            "router_ns_per_tuple": self._router_ns / max(1, counts.tuples),
            "state_bytes": max(len(msgspec.msgpack.encode(router.snapshot())) for router in self._routers),
        }


class Simulation:
    """Several candidates on one stream, which is read once for all of them."""

    def __init__(self, runs: Iterable[tuple[str, int]], config: SimulationConfig) -> None:
        self._config = config
        self._pane_ms = config.pane_ms
        self._key_counts = KeyCounts()
        self._key_index = KeyedTable(())
        self._windows = OpenWindows(config.window_ms)
        self.runs = [Candidate(grouping, workers, config, self._windows) for grouping, workers in runs]
        self._has_local = any(run.is_local for run in self.runs)

    @property
    def rows(self) -> int:
        """Number of tuples to add at once: one batch for each router. A batch is one flush of local aggregation."""
        return (self._config.local_tuples or ROUTER_BATCH_TUPLES) * self._config.routers

    def add(
        self, keys: pa.Array, times: NDArray[np.int64], *, router: int | None = None, now: int = 0
    ) -> list[NDArray[np.int32]]:
        """Route the next tuples with every candidate and return the workers of each. `now` is the wall clock in ms.

        `keys` are strings, encoded or not. All tuples go to one `router` (modulo their number), or to each in turn.
        Raises ConfigurationError for more distinct keys than it can number.
        """
        encoded = keys.dictionary_encode()
        distinct, codes = encoded.dictionary, encoded.indices.to_numpy()
        try:
            index_of_key = self._key_index.rows_of(pa.chunked_array([distinct]))
        except LimitError:
            raise ConfigurationError("the stream has too many distinct keys: give a part of it") from None
        self._key_counts.add(index_of_key, np.bincount(codes, minlength=len(distinct)))
        key_indices = index_of_key[codes]
        routers = self._config.routers
        if router is not None or routers == 1:
            parts = [self._part((router or 0) % routers, slice(None), encoded, times, key_indices)]
        else:
            # Router r of S gets the tuples r, r + S, r + 2S ...
            in_turn = [(number, slice(number, None, routers)) for number in range(routers)]
            rows = np.arange(len(times))
            parts = [
                self._part(number, each, keys.take(pa.array(rows[each])), times[each], key_indices)
                for number, each in in_turn
            ]
        in_windows = self._windows.rows_of(key_indices, times)
        workers = [_route(run, parts, in_windows, now) for run in self.runs]
        self._windows.close_oldest()
        return workers

    def facts(self) -> list[dict[str, Any]]:
        """Return the measures of every candidate as JSON."""
        return [run.facts(self._key_counts) for run in self.runs]

    def _part(
        self, router: int, rows: slice, keys: pa.Array, times: NDArray[np.int64], key_indices: NDArray[np.int64]
    ) -> _Part:
        encoded = keys.dictionary_encode()
        tuples = KeyBatch(encoded.dictionary.to_pylist(), encoded.indices.to_numpy(), times)
        return _Part(router, rows, tuples, self._reduced(tuples, key_indices[rows]) if self._has_local else None)

    def _reduced(self, tuples: KeyBatch, key_indices: NDArray[np.int64]) -> _RowBatch:
        """Return the rows of tuples, in the order of their panes."""
        panes = tuples.times // self._pane_ms
        first, size = int(panes.min()) if len(panes) else 0, max(1, len(tuples.keys))
        groups, row_of = np.unique((panes - first) * size + tuples.codes, return_inverse=True)
        batch = KeyBatch(tuples.keys, (groups % size).astype(np.int32), (groups // size + first) * self._pane_ms)
        index_of_row = np.empty(len(groups), dtype=np.int64)
        index_of_row[row_of] = key_indices
        return _RowBatch(batch, row_of, self._windows.rows_of(index_of_row, batch.times))


@dataclass(frozen=True, slots=True)
class _RowBatch:
    """Rows of local aggregation: one per pane and key of a batch, as a splitter sends them at a flush."""

    batch: KeyBatch
    """Key of each row, with the start of its pane as time."""
    row_of: NDArray[np.int64]
    """Per tuple: the index of its row."""
    in_windows: WindowRows
    """Per row: its key and window."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The tuples of one router."""

    router: int
    rows: slice
    """Their positions among all tuples."""
    tuples: KeyBatch
    local: _RowBatch | None


def _route(run: Candidate, parts: list[_Part], in_windows: WindowRows, now: int) -> NDArray[np.int32]:
    """Return the worker of each tuple, in the order of the stream, and count the tuples, or the rows they become."""
    workers = np.empty(len(in_windows.rows), dtype=np.int32)
    for part in parts:
        if run.is_local and part.local is not None:
            row_workers = run.route(part.router, part.local.batch, now)
            workers[part.rows] = row_workers[part.local.row_of]
            run.count(part.local.in_windows, row_workers)
        else:
            workers[part.rows] = run.route(part.router, part.tuples, now)
    if not run.is_local:
        run.count(in_windows, workers)
    return workers
