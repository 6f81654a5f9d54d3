"""KeySample: a sample of the distinct keys of a stream with their counts, of bounded size.

Whether a key is in the sample does not depend on how often it occurs.

Adaptive sampling (Wegman; Flajolet 1990): a key is in the sample if the lowest bits of its hash are 0. When the sample
is full, one more bit has to be 0. So the sample contains all keys until it is full the first time. A key of the sample
is in it from its first tuple on, so its count is exact.
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
        self._counts = np.zeros(capacity, dtype=np.int64)

    @property
    def keys_per_sampled(self) -> int:
        """Mean number of keys of the stream for each key of the sample."""
        return 1 << self._bits

    @property
    def counts(self) -> NDArray[np.int64]:
        """Tuples of the keys of the sample, highest first."""
        return np.sort(self._counts[: len(self._indices)])[::-1]

    @property
    def cardinality(self) -> int:
        """Number of distinct keys of the stream: exact up to the capacity, else with an error of 1.2/sqrt(capacity)."""
        return len(self._indices) << self._bits

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, hashes: NDArray[np.int64], tuples: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Add keys with their numbers of tuples.

        If the sample drops keys, return the previous indices of the others in their new order.
        """
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
        if kept is not None:
            self._counts = np.pad(self._counts[kept], (0, self._capacity - len(kept)))
        for value in new:
            indices.setdefault(value, len(indices))
        places = self.indices_of(hashes)
        np.add.at(self._counts, places[places >= 0], tuples[places >= 0])
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
