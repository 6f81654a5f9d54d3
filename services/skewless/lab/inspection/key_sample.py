"""KeySample: a sample of the distinct keys of a stream, of bounded size and independent of how often keys occur.

Adaptive sampling (Wegman; Flajolet 1990): a key is in the sample if the lowest bits of its hash are 0. When the sample
is full, one more bit has to be 0. So the sample contains all keys until it is full the first time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class KeySample:
    """A sample of at most `capacity` distinct keys, given as 64-bit hashes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._bits = 0
        self._indices: dict[int, int] = {}

    @property
    def cardinality(self) -> int:
        """Number of distinct keys of the stream: exact up to the capacity, else with an error of 1.2/sqrt(capacity)."""
        return len(self._indices) << self._bits

    @property
    def exact(self) -> bool:
        """Whether the sample contains all keys of the stream."""
        return self._bits == 0

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, hashes: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Add keys. If the sample drops keys, return the previous indices of the others in their new order."""
        indices = self._indices
        new = [value for value in hashes[self._selected(hashes)].tolist() if value not in indices]
        kept = None
        while len(indices) + len(new) > self._capacity:
            self._bits += 1
            mask = (1 << self._bits) - 1
            new = [value for value in new if not value & mask]
            survivors = [value for value in indices if not value & mask]
            positions = np.array([indices[value] for value in survivors], dtype=np.int64)
            kept = positions if kept is None else kept[positions]
            self._indices = indices = {value: index for index, value in enumerate(survivors)}
        for value in new:
            indices.setdefault(value, len(indices))
        return kept

    def indices_of(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each key in the sample; -1 for keys that are not in it."""
        result = np.full(len(hashes), -1, dtype=np.int64)
        rows = np.flatnonzero(self._selected(hashes))
        find = self._indices.get
        result[rows] = [find(value, -1) for value in hashes[rows].tolist()]
        return result

    def _selected(self, hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
        selected: NDArray[np.bool_] = (hashes & ((1 << self._bits) - 1)) == 0
        return selected
