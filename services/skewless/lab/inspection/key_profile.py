"""KeyProfile: cardinality, hottest keys and Zipf exponent of a stream of keys, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.murmur import hashes_of_column
from skewless.algorithms.sketch import SpaceSaving
from skewless.lab.inspection.key_sample import KeySample
from skewless.lab.inspection.zipf_fit import fit

SEED = 41
"""Seed of the hashes. It differs from the seeds of the groupings, so that a sample of the keys is fair to all."""
TOP_KEYS = 20
MAX_ERROR = 0.01
"""Largest error of a count, as its fraction, with which the count of a hot key is used for the Zipf fit."""


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """The keys of a batch, dictionary-encoded."""

    names: list[str]
    """The distinct keys."""
    hashes: NDArray[np.int64]
    """Hash of each distinct key."""
    codes: NDArray[np.int32]
    """Index of each tuple's key in `names`."""

    @classmethod
    def of(cls, keys: Sequence[str]) -> EncodedKeys:
        """Encode the keys of tuples."""
        encoded = pa.array(keys, pa.string()).dictionary_encode()
        names = encoded.dictionary
        return cls(names.to_pylist(), hashes_of_column(names, SEED), encoded.indices.to_numpy())


class KeyProfile:
    """Counts the tuples of keys with a sketch. The counts are exact up to `capacity` distinct keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._sketch = SpaceSaving(capacity)
        self._names: dict[int, str] = {}
        self.sample = KeySample(capacity)

    @property
    def tuples(self) -> int:
        """Number of counted tuples."""
        return self._sketch.total

    def add(self, keys: EncodedKeys) -> NDArray[np.int64] | None:
        """Count the tuples of a batch. The result is that of `KeySample.add`."""
        if not len(keys.codes):
            return None
        estimates = self._sketch.update(keys.codes, keys.hashes)
        last = np.zeros(len(keys.names), dtype=np.int64)
        last[keys.codes] = estimates
        # Estimates only grow. So a key that is among the hottest at the end has at its last tuple an estimate of at
        # least the present threshold, and its name is stored then.
        threshold = self._threshold()
        for row in np.flatnonzero(last >= threshold).tolist():
            self._names[int(keys.hashes[row])] = keys.names[row]
        if len(self._names) > self._capacity * 5 // 4:
            self._forget(threshold)
        return self.sample.add(keys.hashes, np.bincount(keys.codes, minlength=len(keys.names)))

    def to_json(self) -> dict[str, Any]:
        """Return cardinality, hottest keys (name, count, share) and the Zipf fit; None for a fit that is impossible."""
        hashes, counts, errors = (column[::-1] for column in self._sketch.entries())
        top = [
            {"key": self._names[value], "count": count, "share": count / self.tuples}
            for value, count in zip(hashes[:TOP_KEYS].tolist(), counts[:TOP_KEYS].tolist(), strict=True)
            if value in self._names
        ]
        return {
            "tuples": self.tuples,
            "cardinality": self.sample.cardinality,
            "cardinality_is_exact": self.sample.exact,
            "max_share": top[0]["share"] if top else 0.0,
            "top": top,
            "zipf": fit(self._counts_by_rank(counts, errors)),
        }

    def _counts_by_rank(self, counts: NDArray[np.int64], errors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tuples of the keys, highest first: hot keys from the sketch, the others by the sample."""
        if self.sample.exact:
            return self.sample.counts
        inaccurate = np.flatnonzero(errors > MAX_ERROR * counts)
        accurate = int(inaccurate[0]) if len(inaccurate) else len(counts)
        return np.concatenate(
            (counts[:accurate], np.repeat(self.sample.counts, self.sample.keys_per_sampled)[accurate:])
        )

    def _threshold(self) -> int:
        _, counts, _ = self._sketch.entries()
        return int(counts[-min(TOP_KEYS, len(counts))])

    def _forget(self, threshold: int) -> None:
        """Drop the names of keys that are not counted any more or are below the threshold."""
        hashes, counts, _ = self._sketch.entries()
        counted = set(hashes[counts >= threshold].tolist())
        self._names = {value: name for value, name in self._names.items() if value in counted}
