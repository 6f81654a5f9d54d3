"""State of each tracked key in a router, as numeric columns by slot, so that compiled loops can use it."""

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
"""Time of an event that has not happened."""

NONE, BABY, TEENAGE, OLD = range(4)
"""Generations of the key space. NONE: the key is not in the key space."""


class KeyColumns(NamedTuple):
    """One row per slot. A free slot has the home -1."""

    home: NDArray[np.int32]
    pool: NDArray[np.int32]
    generation: NDArray[np.int8]
    checked: NDArray[np.int64]
    """Time of the last check of the pool size, in milliseconds."""
    seen: NDArray[np.int64]
    """Latest time of its tuples, in milliseconds."""
    tuples: NDArray[np.int64]
    """Number of tuples since the key entered the key space."""
    used: NDArray[np.uint8]
    """One bit for each worker that received one of these tuples."""


FREE_SLOT = {"home": -1, "generation": NONE, "checked": NEVER, "seen": NEVER, "tuples": 0, "used": 0}
"""Values of a free slot, without the initial pool size."""

STORED: dict[str, type[np.generic]] = {
    "pool": np.int32,
    "generation": np.int8,
    "checked": np.int64,
    "seen": np.int64,
    "tuples": np.int64,
}


class KeyTable:
    """Assigns a slot to each key with state. `columns` grow as needed."""

    def __init__(self, workers: int, initial_pool: int) -> None:
        self._workers = workers
        self.initial_pool = initial_pool
        """Initial number of candidates of a key."""
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self.names: list[str] = []
        self.columns = self._empty_columns(0)

    def slots_of(self, keys: Sequence[str]) -> NDArray[np.int32]:
        """Return the slot of each key. New keys are assigned a slot, which `release` frees if they have no state."""
        slots = np.fromiter(map(self._slots.get, keys, repeat(-1)), dtype=np.int32, count=len(keys))
        unknown = slots < 0
        if unknown.any():
            slots[unknown] = self._add(list(compress(keys, unknown)))
        return slots

    def evict(self, slots: NDArray[np.intp]) -> None:
        """Remove keys from the key space: reset their count, workers and check time. The pool size stays."""
        self.columns.generation[slots] = NONE
        self.columns.checked[slots] = NEVER
        self.columns.tuples[slots] = 0
        self.columns.used[slots] = 0

    def release(self, slots: NDArray[np.int32] | slice) -> None:
        """Free the slots of keys without state."""
        keys = self.columns
        stateless = (keys.generation[slots] == NONE) & (keys.pool[slots] == self.initial_pool) & (keys.home[slots] >= 0)
        released = np.arange(len(keys.home))[slots][stateless]
        for name, value in (FREE_SLOT | {"pool": self.initial_pool}).items():
            getattr(keys, name)[released] = value
        freed = released.tolist()
        for slot in freed:
            del self._slots[self.names[slot]]
            self.names[slot] = ""
        self._free += freed

    def resize(self, workers: int) -> None:
        """Compute the homes for another number of workers. Pool sizes and used workers are limited to it."""
        self._workers = workers
        slots, previous = self._used_slots(), self.columns
        self.columns = previous._replace(used=self._empty_columns(len(previous.home)).used)
        common_bytes = min(previous.used.shape[1], self.columns.used.shape[1])
        self.columns.used[:, :common_bytes] = previous.used[:, :common_bytes]
        self.columns.used[:, -1] &= 0xFF >> (-workers % 8)
        self.columns.home[slots] = workers_of_keys(list(self._slots), HOME_SEED, workers)
        np.minimum(self.columns.pool, max(workers, self.initial_pool), out=self.columns.pool)

    def snapshot(self) -> dict[str, object]:
        """Return the keys, and the columns as bytes in the same order."""
        return self._snapshot_of(self._used_slots())

    def reduced_snapshot(self) -> dict[str, object]:
        """Return a snapshot without the baby keys whose pool has not grown."""
        slots, keys = self._used_slots(), self.columns
        return self._snapshot_of(slots[(keys.generation[slots] != BABY) | (keys.pool[slots] > self.initial_pool)])

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Replace all keys by those of the snapshot. Raises TypeError if it is invalid."""
        keys = snapshot.get("keys")
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            raise TypeError(f"a grouping's snapshot has {str(keys)[:40]} instead of a list of distinct keys")
        columns = {name: array_of(snapshot.get(name), dtype, len(keys)) for name, dtype in STORED.items()}
        width = _bytes_for(self._workers)
        columns["used"] = array_of(snapshot.get("used"), np.uint8, len(keys) * width).reshape(len(keys), width)
        smallest = self.initial_pool
        if not np.isin(columns["pool"], range(smallest, max(self._workers, smallest) + 1)).all():
            raise TypeError(
                f"a grouping's snapshot has a pool of less than {smallest} workers, or of more than its {self._workers}"
            )
        self._slots, self._free, self.names = {}, [], []
        self.columns = self._empty_columns(0)
        slots = self._add(keys)
        for name, values in columns.items():
            getattr(self.columns, name)[slots] = values

    def _snapshot_of(self, slots: NDArray[np.intp]) -> dict[str, object]:
        keys, names = [self.names[slot] for slot in slots.tolist()], (*STORED, "used")
        return {"keys": keys} | {name: getattr(self.columns, name)[slots].tobytes() for name in names}

    def _used_slots(self) -> NDArray[np.intp]:
        return np.fromiter(self._slots.values(), dtype=np.intp, count=len(self._slots))

    def _add(self, keys: list[str]) -> list[int]:
        self._ensure_capacity(len(keys))
        slots = [self._free.pop() for _ in keys]
        for key, slot in zip(keys, slots, strict=True):
            self.names[slot] = key
        self._slots.update(zip(keys, slots, strict=True))
        self.columns.home[slots] = workers_of_keys(keys, HOME_SEED, self._workers)
        return slots

    def _ensure_capacity(self, required: int) -> None:
        if required <= len(self._free):
            return
        size = len(self.names)
        growth = max(required - len(self._free), size)
        added = self._empty_columns(growth)
        pairs: Iterator[Any] = zip(self.columns, added, strict=True)
        self.columns = KeyColumns._make(np.concatenate(pair) for pair in pairs)
        self.names += [""] * growth
        self._free += range(size + growth - 1, size - 1, -1)

    def _empty_columns(self, size: int) -> KeyColumns:
        dtypes, values = STORED | {"home": np.int32}, FREE_SLOT | {"pool": self.initial_pool}
        columns = {name: np.full(size, values[name], dtype=dtype) for name, dtype in dtypes.items()}
        return KeyColumns(used=np.zeros((size, _bytes_for(self._workers)), dtype=np.uint8), **columns)


def _bytes_for(workers: int) -> int:
    return (workers + 7) // 8
