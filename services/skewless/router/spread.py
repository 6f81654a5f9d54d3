"""The tuples of a batch, cut into one batch per worker: equal keys side by side, and only the keys that are used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled


def by_worker(
    workers: NDArray[np.int32], keys: pa.DictionaryArray, values: NDArray[np.int64], times: NDArray[np.int64]
) -> Iterator[tuple[int, pa.DictionaryArray, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (worker, keys, values, times), workers ascending; equal keys are in the order in which they came."""
    codes = keys.indices.to_numpy()
    by_key = _order(codes, np.arange(len(codes)), len(keys.dictionary))
    order = _order(workers, by_key, int(workers.max()) + 1)
    workers, codes, values, times = workers[order], codes[order], values[order], times[order]
    starts = np.flatnonzero(np.diff(workers, prepend=-1))
    first = np.diff(codes, prepend=-1) != 0
    first[starts] = True
    used = keys.dictionary.take(pa.array(codes[first]))
    indices = (np.cumsum(first) - 1).astype(np.int32)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        base, last = indices[start], indices[end - 1]
        own = pa.DictionaryArray.from_arrays(
            pa.array(indices[start:end] - base), used.slice(int(base), int(last - base) + 1), safe=False
        )
        yield int(workers[start]), own, values[start:end], times[start:end]


@compiled
def _order(numbers: NDArray[np.int32], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Sort `rows` by their numbers, 0 to `count` - 1, equal ones as they are: a counting sort."""
    ends = np.zeros(count + 1, dtype=np.int64)
    for row in rows:
        ends[numbers[row] + 1] += 1
    for number in range(count):
        ends[number + 1] += ends[number]
    order = np.empty(len(rows), dtype=np.int64)
    for row in rows:
        order[ends[numbers[row]]] = row
        ends[numbers[row]] += 1
    return order
