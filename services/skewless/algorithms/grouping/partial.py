"""PARTIAL_KEY (PKG): the power of two choices with key splitting (Nasir et al., ICDE 2015, arXiv 1510.07623)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import KeyBatch, LoadGrouping
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.hashing import workers_of_keys
from skewless.algorithms.jit import jit

SECOND_SEED = 17
"""Seed of a key's second candidate, as in the reference implementation of dynamic key grouping."""


class PartialKeyGrouping(LoadGrouping):
    """Sends each tuple to the candidate of its key's two to which this router has sent fewer tuples so far."""

    name: ClassVar[str] = "partial_key"

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - does not depend on time
        """Return the less loaded candidate of every tuple; on a tie, the first."""
        first = workers_of_keys(batch.keys, HOME_SEED, self._workers)
        second = workers_of_keys(batch.keys, SECOND_SEED, self._workers)
        return _less_loaded(batch.codes, first, second, self._sent)


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
