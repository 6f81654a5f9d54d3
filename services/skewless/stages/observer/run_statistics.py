"""Statistics of the whole run, in a few kilobytes for any number of keys."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.distinct import SEED, MergeDistinct, PrepareDistinct, estimate
from skewless.algorithms.murmur import hashes_of_column

MERGE = MergeDistinct(PrepareDistinct(precision=14))
"""Up to 256 distinct texts are counted exactly, more with a standard error of 0.8 %."""
NOTHING = MERGE.prepare.of_set(np.zeros(0, dtype=np.int64))


class _SavedState(msgspec.Struct):
    tuples: list[int]
    first_ms: int
    worst_tick_max_over_avg: float | None = None
    rows: list[int] | None = None
    """None if each row is a tuple."""
    sketches: tuple[bytes, bytes] | None = None
    """Of the keys and of the pairs, compressed. None: 0.2.0 wrote other sketches, which are not read."""


class RunStatistics:
    """Tuples and rows by worker, and sketches of the distinct keys and of the distinct (key, worker) pairs."""

    def __init__(self) -> None:
        self.tuples: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.first_ms: int | None = None
        """Wall-clock ms of the first tuple."""
        self.worst_tick_max_over_avg: float | None = None
        """Maximum over the ticks with enough tuples for this measure. None before the first such tick."""
        self._keys = self._pairs = NOTHING
        self._replication_factor: float | None = None
        """None after a change of the sketches: many ticks may end after one."""

    def add(
        self,
        keys: pa.ChunkedArray,
        pairs: pa.ChunkedArray,
        tuples: NDArray[np.int64],
        rows: NDArray[np.int64],
        now: int,
    ) -> None:
        """Add keys, texts that identify their pairs of key and worker, and `tuples` and `rows` by worker.

        `now` is the wall-clock time in ms.
        """
        if self.first_ms is None and tuples.any():
            self.first_ms = now
        self.tuples, self.rows = _sum(self.tuples, tuples), _sum(self.rows, rows)
        self._keys, self._pairs = _with_texts(self._keys, keys), _with_texts(self._pairs, pairs)
        self._replication_factor = None

    def add_tick(self, max_over_avg: float | None) -> None:
        """Update the worst tick. `max_over_avg` is None for a tick with too few tuples for this measure."""
        if max_over_avg is not None:
            self.worst_tick_max_over_avg = max(max_over_avg, self.worst_tick_max_over_avg or max_over_avg)

    def replication_factor(self) -> float:
        """Return the replication factor: the mean number of distinct workers per key. 0 without keys."""
        if self._replication_factor is None:
            keys = estimate(self._keys)
            self._replication_factor = max(1.0, estimate(self._pairs) / keys) if keys else 0.0
        return self._replication_factor

    def save(self) -> bytes:
        """Return the statistics as bytes."""
        return msgspec.msgpack.encode(
            _SavedState(
                self.tuples.tolist(),
                self.first_ms or 0,
                self.worst_tick_max_over_avg,
                None if np.array_equal(self.rows, self.tuples) else self.rows.tolist(),
                (zlib.compress(self._keys, level=1), zlib.compress(self._pairs, level=1)),
            )
        )

    @classmethod
    def load(cls, saved: bytes) -> RunStatistics:
        """Return the statistics from the result of `save`."""
        state = msgspec.msgpack.decode(saved, type=_SavedState)
        run = cls()
        run.tuples = np.array(state.tuples, dtype=np.int64)
        run.rows = run.tuples.copy() if state.rows is None else np.array(state.rows, dtype=np.int64)
        run.first_ms = state.first_ms or None
        run.worst_tick_max_over_avg = state.worst_tick_max_over_avg
        if state.sketches is not None:
            run._keys, run._pairs = map(zlib.decompress, state.sketches)
        return run


def _with_texts(sketch: bytes, texts: pa.ChunkedArray) -> bytes:
    return MERGE.with_hashes(sketch, hashes_of_column(texts, SEED))


def _sum(total: NDArray[np.int64], added: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of two arrays, the shorter one of which is continued with zeros."""
    size = max(len(total), len(added))
    return np.pad(total, (0, size - len(total))) + np.pad(added, (0, size - len(added)))
