"""Base class of the groupings: pure objects that choose a worker for each tuple from the tuples of this router only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.options import GroupingOptions
from skewless.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """The tuples of one batch, in order, with dictionary-encoded keys."""

    keys: Sequence[str]
    """The distinct keys. Some may have no tuples."""
    codes: NDArray[np.int32]
    """Per tuple: the index of its key in `keys`."""
    times: NDArray[np.int64]
    """Per tuple: event time in milliseconds."""


class Widths(NamedTuple):
    """Number of workers that may receive the tuples of each key."""

    usual: int
    """Number for all keys that are not in `of_keys`."""
    of_keys: NDArray[np.integer[Any]]
    """Number for each key, or bucket of keys, that the grouping tracks. A tracked key keeps its index."""


class HotKey(NamedTuple):
    """A key that a grouping counts, its tuples since it was first counted, and the number of workers that got them."""

    key: str
    tuples: int
    workers: int


class Grouping(ABC):
    """Chooses among workers 0 to `workers` - 1. Decisions depend on the tuples so far, not on their split into batches.

    With `clock: processing`, all tuples of a batch have the time `now`. With `clock: event`, each has its event time.
    """

    name: ClassVar[str]
    size_setting: ClassVar[str | None] = None
    """Name of the setting that makes snapshots smaller. None if all of them are small."""

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        self._workers = _require_positive(workers)
        self._by_event_time = options.clock == "event"

    @classmethod
    def excess(cls, workers: int, options: GroupingOptions) -> str | None:  # noqa: ARG003 - most groupings have no limit
        """Return why the options do not allow this number of workers, and the remedy. None if they allow it."""
        return None

    @property
    def workers(self) -> int:
        """Number of workers to choose from (W)."""
        return self._workers

    @abstractmethod
    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:
        """Return the worker of every tuple, in order. `now` is the router's wall clock in milliseconds."""

    def times_of(self, batch: KeyBatch, now: int) -> NDArray[np.int64]:
        """Return the time of every tuple in milliseconds, by the clock of the options."""
        return batch.times if self._by_event_time else np.full(len(batch.codes), now, dtype=np.int64)

    def resize(self, workers: int) -> None:
        """Change the number of workers."""
        self._workers = _require_positive(workers)

    def widths(self) -> Widths | None:
        """Return the current number of workers per key, for the metrics. None if it is the same for all keys."""
        return None

    def top_key_shares(self, limit: int) -> NDArray[np.float64]:  # noqa: ARG002 - for groupings that count keys
        """Return the share of each of the `limit` hottest keys in all tuples so far, highest first.

        Empty if the grouping does not count tuples by key, or has not counted any yet.
        """
        return np.zeros(0)

    def hot_keys(self, limit: int) -> list[HotKey]:  # noqa: ARG002 - for groupings that know the names of hot keys
        """Return the `limit` hottest keys by name, the key with most tuples first. Empty if the grouping knows none."""
        return []

    def snapshot(self) -> dict[str, object]:
        """Return all state that decisions depend on, by name: numbers, text, bytes and lists of these."""
        return {"workers": self._workers}

    def reduced_snapshot(self) -> dict[str, object]:
        """Return a snapshot without the state that matters least, for when `snapshot` is too large to be saved."""
        return self.snapshot()

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the state of `snapshot`, including its number of workers. Decisions then continue exactly.

        Raises TypeError if it is not a snapshot of a grouping with this name and these options.
        """
        workers = whole_number(snapshot.get("workers"))
        if workers < 1:
            raise TypeError(f"a grouping's snapshot has {workers} workers instead of at least 1")
        self._workers = workers


class LoadGrouping(Grouping):
    """Base class of groupings that depend on the load of a worker: the number of tuples that were sent to it."""

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._sent = np.zeros(workers, dtype=np.int64)

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


def whole_number(value: object) -> int:
    """Return a value of a snapshot as an integer. Raises TypeError if it is not an integer."""
    if not isinstance(value, int):
        raise TypeError(f"a grouping's snapshot has {value!r} instead of a whole number")
    return value


def array_of(value: object, dtype: type[np.generic] | np.dtype[Any], size: int) -> NDArray[Any]:
    """Return an array of `size` numbers from the bytes (`tobytes`) in a snapshot. Raises TypeError for other values."""
    if not isinstance(value, bytes) or len(value) != size * np.dtype(dtype).itemsize:
        raise TypeError(f"a grouping's snapshot has {str(value)[:40]} instead of the bytes of {size} numbers")
    return np.frombuffer(value, dtype=dtype).copy()


def _require_positive(workers: int) -> int:
    if workers < 1:
        raise ConfigurationError(f"a grouping needs at least 1 worker, not {workers}: set the number of workers")
    return workers
