"""The groupings as a library, for producers and other programs that choose a partition or worker for each record.

This module is stable: its names and their meaning change only with the major version.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import Grouping, KeyBatch, create, options_of
from skewless.errors import ConfigurationError

__all__ = ["Balancer"]


class Balancer:
    """Chooses one of `workers` for each key, by the keys so far. The hotter a key is, the more workers it gets.

    `grouping` is one of `skewless.algorithms.grouping.GROUPINGS`, such as even, partial_key or key. `options` has the
    same names as section `router` of a pipeline, for example `{"even": {"decay_tuples": 2000}}`. Raises
    ConfigurationError for an unknown grouping, an invalid option, or fewer than 1 worker.

    A balancer knows only its own keys. Several producers with a balancer each keep the load even, because each of them
    spreads its own part evenly. A balancer is not thread-safe.
    """

    def __init__(self, grouping: str = "even", *, workers: int, options: Mapping[str, Any] | None = None) -> None:
        self._grouping: Grouping = create(grouping, whole("workers", workers), options_of(options or {}))

    @property
    def workers(self) -> int:
        """Number of workers to choose from."""
        return self._grouping.workers

    def assign(self, keys: Sequence[str], now_ms: int | None = None) -> NDArray[np.int32]:
        """Return the worker (0 to `workers` - 1) of each key, in order.

        `now_ms` is the time of the keys in milliseconds, by default the wall clock. It matters to groupings that count
        keys in periods of time, such as dynamic_key. One call with thousands of keys costs far less per key than a call
        for each of them.

        Raises ConfigurationError for keys that are not a list of texts, and for a time that is not a whole number.
        """
        now = time.time_ns() // 1_000_000 if now_ms is None else whole("now_ms", now_ms)
        encoded = texts_of(keys).dictionary_encode()
        if encoded.null_count:
            raise ConfigurationError("a key is None: give records without a key to any worker")
        codes = encoded.indices.to_numpy()
        times = np.full(len(codes), now, dtype=np.int64)
        return self._grouping.assign(KeyBatch(encoded.dictionary.to_pylist(), codes, times), now)

    def resize(self, workers: int) -> None:
        """Change the number of workers. Raises ConfigurationError for fewer than 1."""
        self._grouping.resize(whole("workers", workers))

    def snapshot(self) -> dict[str, object]:
        """Return the state that decisions depend on: numbers, text, bytes, and lists of these."""
        return {"grouping": self._grouping.name} | self._grouping.snapshot()

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Continue where the balancer of the snapshot was, with its number of workers.

        Raises TypeError if the snapshot is not of a balancer with this grouping and these options. The balancer is
        unchanged then.
        """
        if not isinstance(snapshot, Mapping):
            raise TypeError(f"a snapshot is a mapping, not {snapshot!r}")
        if (found := snapshot.get("grouping", self._grouping.name)) != self._grouping.name:
            raise TypeError(f"the snapshot is of grouping {found}, not {self._grouping.name}")
        previous = self._grouping.snapshot()
        try:
            self._grouping.restore(snapshot)
        except Exception:
            self._grouping.restore(previous)
            raise


def whole(name: str, value: int) -> int:
    """Return a number of any integer type. Raises ConfigurationError if it is not whole, or has more than 64 bits."""
    try:
        return int(np.int64(operator.index(value)))
    except (TypeError, OverflowError):
        raise ConfigurationError(f"{name}: {value!r} must be a whole number of at most 64 bits") from None


def texts_of(keys: Sequence[str]) -> pa.StringArray:
    """Return keys as an array. Raises ConfigurationError if they are not texts, or one text."""
    if isinstance(keys, str):
        raise ConfigurationError(f"keys: must be a list of texts, and are one text: give [{keys[:20]!r}]")
    try:
        return pa.array(keys, pa.string())
    except LookupError:  # pandas
        raise ConfigurationError(f"keys: must be texts, not a {type(keys).__name__}: name its column") from None
    except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"keys: must be texts: {error}") from None
