"""What a router remembers of each key it knows: columns of numbers by slot, so that compiled loops can work on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import array_of
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.hashing import workers_of_keys

NEVER = -(2**63)
"""The time of what has not happened yet."""

NONE, BABY, TEENAGE, OLD = range(4)
"""Generations of the key space; NONE: the key is not in it."""


class Keys(NamedTuple):
    """One row per slot; a slot that no key has taken has no home (-1)."""

    home: NDArray[np.int32]
    pool: NDArray[np.int32]
    generation: NDArray[np.int8]
    checked: NDArray[np.int64]
    """When it was last checked for scaling, in milliseconds."""
    seen: NDArray[np.int64]
    """The latest time of its tuples, in milliseconds."""
    tuples: NDArray[np.int64]
    """How many it had since it came into the key space."""
    used: NDArray[np.uint8]
    """One bit per worker that got one of these tuples."""


VACANT = {"home": -1, "generation": NONE, "checked": NEVER, "seen": NEVER, "tuples": 0, "used": 0}
"""What a slot holds that no key has taken, beside the first size of a pool."""

STORED: dict[str, type[np.generic]] = {
    "pool": np.int32,
    "generation": np.int8,
    "checked": np.int64,
    "seen": np.int64,
    "tuples": np.int64,
}


class KeyTable:
    """Gives every key a slot for as long as there is something to remember of it; `columns` grow as needed."""

    def __init__(self, workers: int, initial_pool: int) -> None:
        self._workers = workers
        self.initial_pool = initial_pool
        """How many candidates a key has at first."""
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self.names: list[str] = []
        self.columns = self._vacant(0)

    def slots_of(self, keys: Sequence[str]) -> NDArray[np.int32]:
        """One slot per key; those that are unknown get one, which `release` takes back if it comes to nothing."""
        slots = np.fromiter(map(self._slots.get, keys, repeat(-1)), dtype=np.int32, count=len(keys))
        unknown = slots < 0
        if unknown.any():
            slots[unknown] = self._add(list(compress(keys, unknown)))
        return slots

    def leave(self, slots: NDArray[np.intp]) -> None:
        """Take these out of the key space: count, workers and check are forgotten, the size of the pool is not."""
        self.columns.generation[slots] = NONE
        self.columns.checked[slots] = NEVER
        self.columns.tuples[slots] = 0
        self.columns.used[slots] = 0

    def release(self, slots: NDArray[np.int32] | slice) -> None:
        """Free those slots of which nothing is to be remembered."""
        keys = self.columns
        nothing = (keys.generation[slots] == NONE) & (keys.pool[slots] == self.initial_pool) & (keys.home[slots] >= 0)
        vacated = np.arange(len(keys.home))[slots][nothing]
        for name, value in (VACANT | {"pool": self.initial_pool}).items():
            getattr(keys, name)[vacated] = value
        freed = vacated.tolist()
        for slot in freed:
            del self._slots[self.names[slot]]
            self.names[slot] = ""
        self._free += freed

    def resize(self, workers: int) -> None:
        """Find the homes among another number of workers; clip pools and what is known of workers to these."""
        self._workers = workers
        slots, old = self._taken(), self.columns
        self.columns = old._replace(used=self._vacant(len(old.home)).used)
        kept = min(old.used.shape[1], self.columns.used.shape[1])
        self.columns.used[:, :kept] = old.used[:, :kept]
        self.columns.used[:, -1] &= 0xFF >> (-workers % 8)
        self.columns.home[slots] = workers_of_keys(list(self._slots), HOME_SEED, workers)
        np.minimum(self.columns.pool, max(workers, self.initial_pool), out=self.columns.pool)

    def snapshot(self) -> dict[str, object]:
        """Tell the keys, and the columns as bytes in the same order."""
        slots, names = self._taken(), (*STORED, "used")
        return {"keys": list(self._slots)} | {name: getattr(self.columns, name)[slots].tobytes() for name in names}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Know the keys of the snapshot and no others; TypeError when there are none in it."""
        keys = snapshot.get("keys")
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            raise TypeError(f"a grouping's snapshot holds {str(keys)[:40]} where a list of distinct keys belongs")
        columns = {name: array_of(snapshot.get(name), dtype, len(keys)) for name, dtype in STORED.items()}
        width = _bytes_for(self._workers)
        columns["used"] = array_of(snapshot.get("used"), np.uint8, len(keys) * width).reshape(len(keys), width)
        least = self.initial_pool
        if not np.isin(columns["pool"], range(least, max(self._workers, least) + 1)).all():
            raise TypeError(
                f"a grouping's snapshot holds a pool of fewer workers than {least}, or of more than its {self._workers}"
            )
        self._slots, self._free, self.names = {}, [], []
        self.columns = self._vacant(0)
        slots = self._add(keys)
        for name, values in columns.items():
            getattr(self.columns, name)[slots] = values

    def _taken(self) -> NDArray[np.intp]:
        return np.fromiter(self._slots.values(), dtype=np.intp, count=len(self._slots))

    def _add(self, keys: list[str]) -> list[int]:
        self._make_room(len(keys))
        slots = [self._free.pop() for _ in keys]
        for key, slot in zip(keys, slots, strict=True):
            self.names[slot] = key
        self._slots.update(zip(keys, slots, strict=True))
        self.columns.home[slots] = workers_of_keys(keys, HOME_SEED, self._workers)
        return slots

    def _make_room(self, needed: int) -> None:
        if needed <= len(self._free):
            return
        size = len(self.names)
        more = max(needed - len(self._free), size)
        added = self._vacant(more)
        pairs: Iterator[Any] = zip(self.columns, added, strict=True)
        self.columns = Keys._make(np.concatenate(pair) for pair in pairs)
        self.names += [""] * more
        self._free += range(size + more - 1, size - 1, -1)

    def _vacant(self, size: int) -> Keys:
        dtypes, values = STORED | {"home": np.int32}, VACANT | {"pool": self.initial_pool}
        columns = {name: np.full(size, values[name], dtype=dtype) for name, dtype in dtypes.items()}
        return Keys(used=np.zeros((size, _bytes_for(self._workers)), dtype=np.uint8), **columns)


def _bytes_for(workers: int) -> int:
    return (workers + 7) // 8
