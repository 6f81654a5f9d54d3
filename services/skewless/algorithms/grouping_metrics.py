"""Measures the imbalance and the key replication of a grouping on a stream. Exact, computed batch by batch.

Keys are dense numbers (0, 1, ...). Memory grows only with the number of keys and workers: one bit for each worker of
each key. The windows that are open have such bits too, see `open_windows`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit
from skewless.algorithms.load_metrics import Replicas, WindowTotals, balance_measures
from skewless.algorithms.open_windows import OpenWindows, WindowRows, ensure_capacity

BITS = 64


class KeyCounts:
    """Tuples of each key of a stream, independent of the grouping."""

    def __init__(self) -> None:
        self._counts = np.zeros(1024, dtype=np.int64)
        self.keys = 0
        self.tuples = 0

    def add(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Add the tuple counts of distinct keys."""
        self.keys = max(self.keys, int(keys.max(initial=-1)) + 1)
        self._counts = ensure_capacity(self._counts, self.keys)
        self._counts[keys] += counts
        self.tuples += int(counts.sum())

    @property
    def p1(self) -> float:
        """Share of the key with most tuples; 0 without tuples."""
        return int(self._counts.max()) / self.tuples if self.tuples else 0.0

    def replication_bound(self, workers: int) -> float:
        """Return the minimum mean replication of perfect balance: sum over keys of ceil(p_k W), divided by the keys."""
        if not self.tuples:
            return 0.0
        required = -(-self._counts[: self.keys] * workers // self.tuples)
        return int(required.sum()) / self.keys


class Spread:
    """Computes the measures of one grouping on one stream from batches of (window and key, worker).

    Windows are those of event time, in whatever order the tuples arrive; `OpenWindows` names the limit.
    """

    def __init__(self, workers: int, windows: OpenWindows) -> None:
        self._windows = windows
        self._workers = workers
        self._words = -(-workers // BITS)
        self._loads = np.zeros(workers, dtype=np.int64)
        self._worker_bits = np.zeros((0, self._words), dtype=np.uint64)
        """Workers of each key in the windows that are closed."""
        self._row_bits = np.zeros((1024, self._words), dtype=np.uint64)
        self._window_loads = np.zeros((16, workers), dtype=np.int64)
        self._closed = WindowTotals()
        windows.register(self._close, row_bytes=8 * self._words, window_bytes=8 * workers)

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each worker so far."""
        return self._loads.copy()

    def add(self, rows: WindowRows, workers: NDArray[np.int32]) -> None:
        """Count tuples, which have these rows of the open windows."""
        self._loads += np.bincount(workers, minlength=len(self._loads))
        self._row_bits = ensure_capacity(self._row_bits, self._windows.rows)
        self._window_loads = ensure_capacity(self._window_loads, self._windows.windows)
        _record(rows.rows, rows.windows, workers, self._row_bits, self._window_loads)

    def _close(self, rows: NDArray[np.bool_], windows: NDArray[np.bool_]) -> None:
        """Add to the totals what these rows and windows have, and keep only the others."""
        self._worker_bits = self._all_worker_bits(rows)
        self._add_windows(self._closed, windows)
        for name, closed in (("_row_bits", rows), ("_window_loads", windows)):
            values = ensure_capacity(getattr(self, name), len(closed))
            kept = values[: len(closed)][~closed]
            values[:] = 0
            values[: len(kept)] = kept

    def _all_worker_bits(self, rows: NDArray[np.bool_] | slice = slice(None)) -> NDArray[np.uint64]:
        """Return the workers of each key, in the windows that are closed and in these rows of the others."""
        bits = np.zeros((self._windows.keys, self._words), dtype=np.uint64)
        bits[: len(self._worker_bits)] = self._worker_bits
        open_bits = ensure_capacity(self._row_bits, self._windows.rows)[: self._windows.rows]
        _unite(bits, self._windows.key_of_row[rows], open_bits[rows])
        return bits

    def _add_windows(self, totals: WindowTotals, windows: NDArray[np.bool_] | None = None) -> None:
        """Add the open windows to totals, or some of them."""
        rows, number = self._windows.rows, self._windows.windows
        workers_per_row = np.bitwise_count(ensure_capacity(self._row_bits, rows)[:rows]).sum(axis=1, dtype=np.int64)
        window_of_row = self._windows.window_of_row
        pairs = np.bincount(window_of_row, weights=workers_per_row, minlength=number)
        keys = np.bincount(window_of_row[workers_per_row > 0], minlength=number)
        # A window without a tuple belongs to another grouping, which routes rows of panes.
        chosen = keys > 0 if windows is None else (keys > 0) & windows
        loads = ensure_capacity(self._window_loads, number)[:number]
        totals.add(pairs[chosen], keys[chosen], loads[chosen])

    def measures(self) -> dict[str, Any]:
        """Return the measures of all tuples so far. The open windows count as if they had ended."""
        totals = replace(self._closed)
        self._add_windows(totals)
        workers_per_key = np.bitwise_count(self._all_worker_bits()).sum(axis=1, dtype=np.int64)
        replicas = Replicas(
            keys=int(np.count_nonzero(workers_per_key)),
            pairs=int(workers_per_key.sum()),
            max_workers=int(workers_per_key.max(initial=0)),
        )
        return {
            **balance_measures(self._loads),
            **replicas.measures(),
            **totals.measures(float(self._loads.mean())),
            "tuples_by_worker": self._loads.tolist(),
        }


@jit
def _record(
    rows: NDArray[np.int64],
    windows: NDArray[np.int64],
    workers: NDArray[np.int32],
    row_bits: NDArray[np.uint64],
    window_loads: NDArray[np.int64],
) -> None:
    """Record the worker of each tuple in its row, and count the tuple in its window."""
    for index, worker in enumerate(workers):
        row_bits[rows[index], worker // BITS] |= np.uint64(1) << np.uint64(worker % BITS)
        window_loads[windows[index], worker] += 1


@jit
def _unite(bits: NDArray[np.uint64], keys: NDArray[np.int64], row_bits: NDArray[np.uint64]) -> None:
    """Add the workers of each row to those of its key."""
    for row, key in enumerate(keys):
        for word in range(bits.shape[1]):
            bits[key, word] |= row_bits[row, word]
