"""Sizes: distribution of the sizes of records in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LIMIT = 2**17
"""Sizes are counted one by one up to this limit."""


class Sizes:
    """Counts the sizes of values."""

    def __init__(self) -> None:
        self._counts = np.zeros(LIMIT + 1, dtype=np.int64)
        self._bytes = 0
        self._max = 0

    def add(self, values: Sequence[bytes | None]) -> None:
        """Count the sizes of values; those of None are left out."""
        sizes = np.fromiter((len(value) for value in values if value is not None), dtype=np.int64)
        if not len(sizes):
            return
        np.add.at(self._counts, np.minimum(sizes, LIMIT), 1)
        self._bytes += int(sizes.sum())
        self._max = max(self._max, int(sizes.max()))

    def to_json(self) -> dict[str, Any]:
        """Return mean, percentiles (at most LIMIT) and maximum in bytes."""
        cumulative = np.cumsum(self._counts)
        total = int(cumulative[-1])
        percentiles = {
            f"p{percent}_bytes": int(np.searchsorted(cumulative, -(-total * percent // 100))) if total else 0
            for percent in (50, 99)
        }
        return {"mean_bytes": self._bytes / max(1, total), **percentiles, "max_bytes": self._max}
