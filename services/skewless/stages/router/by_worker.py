"""Splits the tuples of a batch by worker. Those of each worker are sorted by key and have a dictionary of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def by_worker(workers: NDArray[np.int32], tuples: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (worker, tuples) by ascending worker. Tuples with equal keys keep their order.

    The first column of the tuples has the keys. Each column consists of one chunk.
    """
    keys = tuples.column(0).chunk(0)
    codes = keys.indices.to_numpy()
    by_key = _order(codes, np.arange(len(codes)))
    order = _order(workers, by_key)
    workers, codes = workers[order], codes[order]
    others = [_taken(column.chunk(0), order) for column in tuples.columns[1:]]
    starts = np.flatnonzero(np.diff(workers, prepend=-1))
    is_new_key = np.diff(codes, prepend=-1) != 0
    is_new_key[starts] = True
    dictionaries = keys.dictionary.take(pa.array(codes[is_new_key]))  # those of all workers, one after the other
    indices = (np.cumsum(is_new_key) - 1).astype(np.int32)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        first, last = indices[start], indices[end - 1]
        worker_keys = pa.DictionaryArray.from_arrays(
            pa.array(indices[start:end] - first), dictionaries.slice(int(first), int(last - first) + 1), safe=False
        )
        columns = [worker_keys, *(_part(column, start, end) for column in others)]
        yield int(workers[start]), pa.record_batch(columns, schema=tuples.schema)


def _taken(column: pa.Array, order: NDArray[np.int64]) -> pa.Array:
    """Return the entries of a column in this order."""
    # For integers numpy is faster than Arrow, which checks each index.
    is_plain = pa.types.is_int64(column.type) and not column.null_count
    return pa.array(column.to_numpy()[order]) if is_plain else column.take(pa.array(order))


def _part(column: pa.Array, start: int, end: int) -> pa.Array:
    """Return entries of a column. Texts have a dictionary of their own, without those of other workers."""
    part = column.slice(start, end - start)
    return part.cast(part.type.value_type).dictionary_encode() if pa.types.is_dictionary(part.type) else part


def _order(numbers: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `rows` in a stable order of their numbers, which are not negative."""
    # NumPy sorts 16-bit numbers by radix, as fast as a compiled loop does: 17 ns per row.
    rows = rows[np.argsort(numbers[rows].astype(np.uint16), kind="stable")]
    if numbers.max() >= 2**16:
        rows = rows[np.argsort((numbers[rows] >> 16).astype(np.uint16), kind="stable")]
    return rows
