"""Keys with more tuples than an even share of one worker. If one worker processes such a key, it is overloaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.algorithms.load_metrics import MIN_MEAN_TUPLES, top_keys


class KeyLoad(NamedTuple):
    """Load of a key in a tick."""

    tuples: int
    workers: int
    """Number of workers that processed it."""


@dataclass(frozen=True, slots=True)
class TickLoad:
    """Tuples of a tick by key and worker: one row per pair. Pairs with few tuples may be missing."""

    keys: pa.Array
    tuples: NDArray[np.int64]
    workers: int
    """Number of workers among which the tuples are distributed."""
    total: int
    """Tuples of all keys."""

    @property
    def is_judged(self) -> bool:
        """Whether the tick has enough tuples to judge: in a few tuples, each key has a large share."""
        return self.total >= MIN_MEAN_TUPLES * self.workers

    def hot(self) -> dict[str, KeyLoad]:
        """Return the keys with more than 1 / `workers` of the tuples, of which there are fewer than `workers`."""
        total = self.total
        largest = top_keys(self.keys, self.tuples, self.workers)
        return {key: KeyLoad(tuples, workers) for key, tuples, workers in largest if tuples * self.workers > total}

    def of(self, key: str) -> KeyLoad:
        """Return the load of a key."""
        rows = pc.equal(self.keys, key).to_numpy(zero_copy_only=False)
        return KeyLoad(int(self.tuples[rows].sum()), int(rows.sum()))


class HotKeyChanges(NamedTuple):
    """Changes of the hot keys from one tick to the next."""

    risen: Mapping[str, KeyLoad]
    """Keys that became hot."""
    fallen: Mapping[str, KeyLoad]
    """Keys that are no longer hot."""


def changes(hot: Mapping[str, object], tick: TickLoad) -> HotKeyChanges:
    """Return the changes of the hot keys in a tick; `hot` are those of the tick before."""
    if not tick.is_judged:
        return HotKeyChanges({}, {})
    now = tick.hot()
    risen = {key: load for key, load in now.items() if key not in hot}
    return HotKeyChanges(risen, {key: tick.of(key) for key in hot if key not in now})
