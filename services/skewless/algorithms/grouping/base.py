"""What every grouping is: a pure object that chooses a worker for each tuple from what this router alone has seen."""

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
    """The distinct keys; some may be unused."""
    codes: NDArray[np.int32]
    """One per tuple: the index of its key in `keys`."""
    times: NDArray[np.int64]
    """One per tuple: event time in milliseconds."""


class Widths(NamedTuple):
    """How many workers may get a key's tuples."""

    usual: int
    """How many every key has that nothing else is known of."""
    of_keys: NDArray[np.integer[Any]]
    """One per key, or bucket of keys, that the grouping remembers; each keeps its place as long as it is known."""


class Grouping(ABC):
    """Chooses among workers 0 to `workers` - 1. Decisions depend on the tuples so far, never on how they were cut.

    Under the clock of the options, `processing`, all tuples of a batch have the time `now`; under `event` their own.
    """

    name: ClassVar[str]

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        self._workers = _at_least_one(workers)
        self._by_event_time = options.clock == "event"

    @classmethod
    def excess(cls, workers: int, options: GroupingOptions) -> str | None:  # noqa: ARG003 - most take any number
        """Return why the options do not allow so many workers, and what does; None if they do."""
        return None

    @property
    def workers(self) -> int:
        """How many workers there are to choose from (W)."""
        return self._workers

    @abstractmethod
    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:
        """Choose the worker of every tuple, in order; `now` is the router's wall clock in milliseconds."""

    def times_of(self, batch: KeyBatch, now: int) -> NDArray[np.int64]:
        """One time per tuple in milliseconds, by the clock of the options."""
        return batch.times if self._by_event_time else np.full(len(batch.codes), now, dtype=np.int64)

    def resize(self, workers: int) -> None:
        """Choose among `workers` from now on, more or fewer than before."""
        self._workers = _at_least_one(workers)

    def widths(self) -> Widths | None:
        """Tell what the grouping has decided of its keys, for the metrics; None where all keys are treated alike."""
        return None

    def hottest_shares(self, most: int) -> NDArray[np.float64]:  # noqa: ARG002 - for those that count keys
        """Shares of all tuples so far of up to `most` hottest keys, highest first; none where keys are not counted."""
        return np.zeros(0)

    def snapshot(self) -> dict[str, object]:
        """Everything that decisions depend on: numbers, text, bytes and lists of these, by name."""
        return {"workers": self._workers}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Continue exactly where the grouping that made `snapshot` was, with its number of workers.

        TypeError when it is no snapshot of a grouping of this name and options.
        """
        self._workers = _at_least_one(whole_number(snapshot.get("workers")))


def whole_number(value: object) -> int:
    """`value` as the integer that a snapshot holds at this place; TypeError when it is none."""
    if not isinstance(value, int):
        raise TypeError(f"a grouping's snapshot holds {value!r} where a whole number belongs")
    return value


def array_of(value: object, dtype: type[np.generic] | np.dtype[Any], size: int) -> NDArray[Any]:
    """Read the array of `size` numbers that a snapshot holds as bytes (`tobytes`); TypeError when it is none."""
    if not isinstance(value, bytes) or len(value) != size * np.dtype(dtype).itemsize:
        raise TypeError(f"a grouping's snapshot holds {str(value)[:40]} where the bytes of {size} numbers belong")
    return np.frombuffer(value, dtype=dtype).copy()


def _at_least_one(workers: int) -> int:
    if workers < 1:
        raise ConfigurationError(f"a grouping needs at least 1 worker, not {workers}: set the number of workers")
    return workers
