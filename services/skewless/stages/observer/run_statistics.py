"""Statistics of the whole run, in a few kilobytes for any number of keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import datasketches
import msgspec
import numpy as np
from numpy.typing import NDArray

PRECISION = 14
"""log2 of the registers of a HyperLogLog sketch. Small numbers are exact, others are within 1 % (one sigma)."""
KNOWN_PAIRS = 131_072
"""Maximum number of pairs that are known to be in the sketches. Most take less than 20 MB, and none more than 50 MB."""
KNOWN_KEY_LENGTH = 64
"""Longer keys are not remembered."""


class _SavedState(msgspec.Struct):
    tuples: list[int]
    first_ms: int
    keys: bytes
    pairs: bytes
    worst_tick_max_over_avg: float | None = None
    rows: list[int] | None = None
    """None if each row is a tuple."""


class RunStatistics:
    """Tuples and rows by worker, and sketches of the distinct keys and of the distinct (key, worker) pairs."""

    def __init__(self) -> None:
        self.tuples: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.first_ms: int | None = None
        """Wall-clock ms of the first tuple."""
        self.worst_tick_max_over_avg: float | None = None
        """Maximum over the ticks with enough tuples for this measure. None before the first such tick."""
        self._keys = datasketches.hll_sketch(PRECISION)
        self._pairs = datasketches.hll_sketch(PRECISION)
        self._known: defaultdict[int, set[str]] = defaultdict(set)
        """Keys by worker that are in the sketches. Most pairs are in the partials of each commit, and an update of a
        sketch takes five times as long as this lookup."""
        self._known_pairs = 0

    def add(
        self,
        keys: Sequence[str],
        workers: NDArray[np.int64],
        tuples: NDArray[np.int64],
        rows: NDArray[np.int64],
        now: int,
    ) -> None:
        """Add pairs of key and worker, and `tuples` and `rows` by worker. `now` is the wall-clock time in ms."""
        if self.first_ms is None and tuples.any():
            self.first_ms = now
        self.tuples, self.rows = _sum(self.tuples, tuples), _sum(self.rows, rows)
        known = self._known
        for key, worker in zip(keys, workers.tolist(), strict=True):  # sketches have no bulk update
            if key not in known[worker]:
                self._add_pair(key, worker)

    def _add_pair(self, key: str, worker: int) -> None:
        self._keys.update(key)
        self._pairs.update(f"{worker}/{key}")
        if len(key) > KNOWN_KEY_LENGTH:
            return
        if self._known_pairs == KNOWN_PAIRS:
            self._known.clear()
            self._known_pairs = 0
        self._known[worker].add(key)
        self._known_pairs += 1

    def add_tick(self, max_over_avg: float | None) -> None:
        """Update the worst tick. `max_over_avg` is None for a tick with too few tuples for this measure."""
        if max_over_avg is not None:
            self.worst_tick_max_over_avg = max(max_over_avg, self.worst_tick_max_over_avg or max_over_avg)

    def replication_factor(self) -> float:
        """Return the replication factor: the mean number of distinct workers per key. 0 without keys."""
        keys = self._keys.get_estimate()
        return max(1.0, self._pairs.get_estimate() / keys) if keys else 0.0

    def save(self) -> bytes:
        """Return the statistics as bytes."""
        return msgspec.msgpack.encode(
            _SavedState(
                self.tuples.tolist(),
                self.first_ms or 0,
                self._keys.serialize_compact(),
                self._pairs.serialize_compact(),
                self.worst_tick_max_over_avg,
                None if np.array_equal(self.rows, self.tuples) else self.rows.tolist(),
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
        run._keys = datasketches.hll_sketch.deserialize(state.keys)
        run._pairs = datasketches.hll_sketch.deserialize(state.pairs)
        return run


def _sum(total: NDArray[np.int64], added: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of two arrays, the shorter one of which is continued with zeros."""
    size = max(len(total), len(added))
    return np.pad(total, (0, size - len(total))) + np.pad(added, (0, size - len(added)))
