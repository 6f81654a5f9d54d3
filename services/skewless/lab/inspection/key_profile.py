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
from skewless.lab.inspection.zipf_fit import MIN_COUNT, fit

SEED = 41
"""Seed of the hashes. It differs from the seeds of the groupings, so that a sample of the keys is fair to all."""
TOP_KEYS = 20
MAX_ERROR = 0.01
"""Largest error of a count, as its fraction, with which the count of a hot key is used for the Zipf fit."""
MAX_NAMES = 16_384
"""Names of keys that are stored before those of all but the hottest keys are dropped."""


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
    """Counts the tuples of keys with a sketch of `counters` keys, and those of a sample of `sampled` keys.

    The counts are exact up to `counters` distinct keys. Beyond that, the count of a hot key is a lower bound: its
    tuples since the sketch counts it. A key that is hot from the beginning is always counted.
    """

    def __init__(self, counters: int, sampled: int) -> None:
        self._sketch = SpaceSaving(counters)
        self._names: dict[int, str] = {}
        """Names of the hottest keys and of the last ones, by hash."""
        self.sample = KeySample(sampled)

    @property
    def tuples(self) -> int:
        """Number of counted tuples."""
        return self._sketch.total

    def add(self, keys: EncodedKeys) -> NDArray[np.int64] | None:
        """Count the tuples of a batch. The result is that of `KeySample.add`."""
        if not len(keys.codes):
            return None
        self._sketch.update(keys.codes, keys.hashes)
        self._names.update(zip(keys.hashes.tolist(), keys.names, strict=True))
        if len(self._names) > MAX_NAMES:
            self._forget_names()
        return self.sample.add(keys.hashes, np.bincount(keys.codes, minlength=len(keys.names)))

    def to_json(self) -> dict[str, Any]:
        """Return cardinality, hottest keys (name, count, share) and the Zipf fit; None for a fit that is impossible."""
        hashes, counts, errors = self._counted()
        # Only few keys have names. Python objects of all counted keys would need as much memory as the sketch.
        known = np.sort(np.fromiter(self._names, np.int64, len(self._names)))
        named = np.flatnonzero(known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes)
        hottest = named[np.argsort(-counts[named], kind="stable")[:TOP_KEYS]]
        top = [
            {"key": self._names[value], "count": count, "share": count / self.tuples}
            for value, count in zip(hashes[hottest].tolist(), counts[hottest].tolist(), strict=True)
        ]
        order = np.argsort(-counts, kind="stable")
        counts, errors = counts[order], errors[order]
        exact = not errors.any()
        return {
            "tuples": self.tuples,
            "cardinality": len(hashes) if exact else self.sample.cardinality,
            "cardinality_is_exact": exact,
            "max_share": top[0]["share"] if top else 0.0,
            "top": top,
            "zipf": fit(counts if exact else self._counts_by_rank(counts, errors)),
        }

    def _counted(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return hash, count and error of the keys that the sketch counts."""
        hashes, counts, errors = self._sketch.entries()
        counts -= errors
        return hashes, counts, errors

    def _forget_names(self) -> None:
        """Drop all names but those of the hottest keys."""
        # A key that is among the hottest at the end is among them from its last tuple on. If it is dropped because of
        # a tie, others with its count remain.
        hashes, counts, _ = self._counted()
        first = max(0, len(counts) - TOP_KEYS)
        hottest = hashes[np.argpartition(counts, first)[first:]].tolist()
        self._names = {value: self._names[value] for value in hottest if value in self._names}

    def _counts_by_rank(self, counts: NDArray[np.int64], errors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tuples of the keys that the fit needs, highest first: hot keys from the sketch, others sampled."""
        inaccurate = np.flatnonzero(errors > MAX_ERROR * counts)
        accurate = int(inaccurate[0]) if len(inaccurate) else len(counts)
        sampled = self.sample.counts
        # The fit ignores the other keys, of which there may be many millions.
        sampled = sampled[sampled >= MIN_COUNT]
        return np.concatenate((counts[:accurate], np.repeat(sampled, self.sample.keys_per_sampled)[accurate:]))
