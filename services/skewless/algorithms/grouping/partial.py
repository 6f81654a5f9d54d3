"""PARTIAL_KEY (PKG): the power of two choices with key splitting (Nasir et al., ICDE 2015, arXiv 1510.07623)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import Grouping, KeyBatch, whole_number
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.hashing import workers_of_keys

SECOND_SEED = 17
"""Seed of a key's second candidate, as in the reference implementation of dynamic key grouping."""


class PartialKeyGrouping(Grouping):
    """Each tuple goes to that one of its key's two candidates to which this router has sent fewer tuples so far."""

    name: ClassVar[str] = "partial_key"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._sent = [0] * workers

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - time plays no part
        """Choose the less loaded candidate of every tuple, the first on a tie."""
        first = workers_of_keys(batch.keys, HOME_SEED, self._workers)[batch.codes]
        second = workers_of_keys(batch.keys, SECOND_SEED, self._workers)[batch.codes]
        return np.array(_less_loaded(first.tolist(), second.tolist(), self._sent), dtype=np.int32)

    def resize(self, workers: int) -> None:
        """Start all loads at zero again: those of before would keep new workers flooded and old ones avoided."""
        super().resize(workers)
        self._sent = [0] * workers

    def snapshot(self) -> dict[str, object]:
        """Tell the tuples sent to each worker."""
        return super().snapshot() | {"sent": list(self._sent)}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on with the loads of the snapshot."""
        super().restore(snapshot)
        sent = snapshot["sent"]
        if not isinstance(sent, list) or len(sent) != self._workers:
            raise TypeError(f"a partial_key snapshot of {self._workers} workers holds {sent!r} as their loads")
        self._sent = [whole_number(load) for load in sent]


def _less_loaded(first: list[int], second: list[int], sent: list[int]) -> list[int]:
    """One choice per tuple; counts it in `sent`. Plain Python, because each choice depends on the one before it."""
    chosen: list[int] = []
    choose = chosen.append
    for one, other in zip(first, second, strict=True):
        worker = other if sent[other] < sent[one] else one
        sent[worker] += 1
        choose(worker)
    return chosen
