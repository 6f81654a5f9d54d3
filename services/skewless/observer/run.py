"""What the observer remembers of the whole run, in a few kilobytes whatever the number of keys."""

from __future__ import annotations

from collections.abc import Sequence

import datasketches
import msgspec
import numpy as np
from numpy.typing import NDArray

PRECISION = 14
"""log2 of a sketch's registers: exact for small numbers of keys, within 1 % (one sigma) for any (HyperLogLog)."""


class _Saved(msgspec.Struct):
    tuples: list[int]
    first_ms: int
    keys: bytes
    pairs: bytes
    worst_tick_max_over_avg: float | None = None


class Run:
    """Tuples by worker, and sketches of the distinct keys and of the distinct (key, worker) pairs."""

    def __init__(self) -> None:
        self.tuples: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.first_ms: int | None = None
        """Wall-clock ms of the first tuple."""
        self.worst_tick_max_over_avg: float | None = None
        """Of the ticks with enough tuples to judge; None while there is none."""
        self._keys = datasketches.hll_sketch(PRECISION)
        self._pairs = datasketches.hll_sketch(PRECISION)

    def add(self, keys: Sequence[str], workers: NDArray[np.int64], tuples: NDArray[np.int64], now: int) -> None:
        """Add rows of (key, worker), and tuples by worker."""
        if self.first_ms is None and tuples.any():
            self.first_ms = now
        size = max(len(self.tuples), len(tuples))
        self.tuples = np.pad(self.tuples, (0, size - len(self.tuples)))
        self.tuples[: len(tuples)] += tuples
        for key, worker in zip(keys, workers.tolist(), strict=True):  # the sketch takes one at a time, rows are few
            self._keys.update(key)
            self._pairs.update(f"{worker}/{key}")

    def add_tick(self, max_over_avg: float | None) -> None:
        """Compare a tick's load with the worst one so far; None for a tick with too few tuples to judge."""
        if max_over_avg is not None:
            self.worst_tick_max_over_avg = max(max_over_avg, self.worst_tick_max_over_avg or max_over_avg)

    def dist_cost(self) -> float:
        """Mean number of distinct workers that held a key."""
        keys = self._keys.get_estimate()
        return max(1.0, self._pairs.get_estimate() / keys) if keys else 0.0

    def save(self) -> bytes:
        """All of it as bytes."""
        return msgspec.msgpack.encode(
            _Saved(
                self.tuples.tolist(),
                self.first_ms or 0,
                self._keys.serialize_compact(),
                self._pairs.serialize_compact(),
                self.worst_tick_max_over_avg,
            )
        )

    @classmethod
    def load(cls, saved: bytes) -> Run:
        """Read what `save` wrote."""
        facts = msgspec.msgpack.decode(saved, type=_Saved)
        run = cls()
        run.tuples = np.array(facts.tuples, dtype=np.int64)
        run.first_ms = facts.first_ms or None
        run.worst_tick_max_over_avg = facts.worst_tick_max_over_avg
        run._keys = datasketches.hll_sketch.deserialize(facts.keys)
        run._pairs = datasketches.hll_sketch.deserialize(facts.pairs)
        return run
