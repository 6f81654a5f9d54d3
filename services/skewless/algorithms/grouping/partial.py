"""PARTIAL_KEY (PKG): the power of two choices with key splitting (Nasir et al., ICDE 2015, arXiv 1510.07623)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import Grouping, KeyBatch, array_of
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import GroupingOptions
from skewless.algorithms.hashing import workers_of_keys
from skewless.algorithms.jit import jit

SECOND_SEED = 17
"""Seed of a key's second candidate, as in the reference implementation of dynamic key grouping."""


class PartialKeyGrouping(Grouping):
    """Sends each tuple to the candidate of its key's two to which this router has sent fewer tuples so far."""

    name: ClassVar[str] = "partial_key"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._sent = np.zeros(workers, dtype=np.int64)

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - does not depend on time
        """Return the less loaded candidate of every tuple; on a tie, the first."""
        first = workers_of_keys(batch.keys, HOME_SEED, self._workers)
        second = workers_of_keys(batch.keys, SECOND_SEED, self._workers)
        return _less_loaded(batch.codes, first, second, self._sent)

    def resize(self, workers: int) -> None:
        """Reset all loads to zero. With the previous loads, new workers would be overloaded and old workers avoided."""
        super().resize(workers)
        self._sent = np.zeros(workers, dtype=np.int64)

    def snapshot(self) -> dict[str, object]:
        """Return the number of workers and the tuples sent to each."""
        return super().snapshot() | {"sent": self._sent.tobytes()}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the loads."""
        super().restore(snapshot)
        self._sent = array_of(snapshot.get("sent"), np.int64, self._workers)


@jit
def _less_loaded(
    codes: NDArray[np.int32], first: NDArray[np.int32], second: NDArray[np.int32], sent: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return one worker per tuple, and count each tuple in `sent`."""
    chosen = np.empty(len(codes), dtype=np.int32)
    for row, code in enumerate(codes):
        worker = second[code] if sent[second[code]] < sent[first[code]] else first[code]
        sent[worker] += 1
        chosen[row] = worker
    return chosen
