"""Sizes: distribution of the sizes of records in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

LIMIT = 2**17
"""Sizes are counted one by one up to this limit, and larger ones by `STEP`, so that memory has a limit."""
STEP = 1024


class Sizes:
    """Counts the sizes of values."""

    def __init__(self) -> None:
        self._counts = np.zeros(LIMIT + 1, dtype=np.int64)
        self._larger: Counter[int] = Counter()
        self._bytes = 0
        self._max = 0

    def add(self, values: Sequence[bytes | None]) -> None:
        """Count the sizes of values; those of None are left out."""
        sizes = np.fromiter((len(value) for value in values if value is not None), dtype=np.int64)
        if not len(sizes):
            return
        is_larger = sizes > LIMIT
        np.add.at(self._counts, sizes[~is_larger], 1)
        self._larger.update((-(-sizes[is_larger] // STEP) * STEP).tolist())
        self._bytes += int(sizes.sum())
        self._max = max(self._max, int(sizes.max()))

    def to_json(self) -> dict[str, Any]:
        """Return mean, percentiles (above LIMIT rounded up to a multiple of STEP) and maximum in bytes."""
        larger = sorted(self._larger)
        sizes = np.concatenate([np.arange(LIMIT + 1), np.array(larger, dtype=np.int64)])
        counts = np.array([self._larger[size] for size in larger], dtype=np.int64)
        cumulative = np.cumsum(np.concatenate([self._counts, counts]))
        total = int(cumulative[-1])
        percentiles = {
            f"p{percent}_bytes": min(int(sizes[np.searchsorted(cumulative, -(-total * percent // 100))]), self._max)
            for percent in (50, 99)
        }
        return {"mean_bytes": self._bytes / max(1, total), **percentiles, "max_bytes": self._max}
