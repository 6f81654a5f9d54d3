"""KEY: one hash of the key. Every key stays on one worker, including hot keys."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import Grouping, KeyBatch
from skewless.algorithms.hashing import workers_of_keys

HOME_SEED = 13
"""Seed of a key's first (or only) worker, as in the reference implementation of dynamic key grouping."""


class KeyGrouping(Grouping):
    """`hash(key) mod W`, without any state."""

    name: ClassVar[str] = "key"

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - does not depend on time
        """Return the worker of every tuple's key."""
        return workers_of_keys(batch.keys, HOME_SEED, self._workers)[batch.codes]
