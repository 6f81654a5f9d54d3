"""Shuffles rows by key as Arrow blocks, so that one executor has all rows of a key.

One Spark row is a block of some thousands of rows. The many rows of a run thus stay Arrow columns in Python from end to
end, and Java only transports them. For `mapInArrow`; does not use Spark itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import mmh3
import numpy as np
import pyarrow as pa

from skewless.algorithms.hashing import partition_of_keys
from skewless.wire.columns import write_table

SHUFFLE_BLOCKS = "run int, kind string, shuffle_partition int, block binary"
HASH_SEED = 42
"""Seed of the hash by which Spark's `repartition` chooses a partition."""
BUFFER_ROWS = 262_144
"""Rows that a task buffers before it merges them."""

Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Merge = Callable[[pa.Table], pa.Table]
"""Reduces the number of rows without loss; keeps names and order of the columns."""


@dataclass(frozen=True, slots=True)
class ShuffleSpec:
    """How records are read, merged and partitioned by key. Spark sends it to the executors."""

    run: int
    """Index of the run."""
    kind: str
    partitions: int
    read: Read
    merge: Merge


def partition_by_key(batches: Iterator[pa.RecordBatch], spec: ShuffleSpec) -> Iterator[pa.RecordBatch]:
    """Read records as rows with a column `key`, merge them, and yield them as blocks by shuffle partition."""
    buffered: list[pa.RecordBatch] = []
    buffered_rows = 0
    for rows in spec.read(batches):
        buffered.append(rows)
        buffered_rows += rows.num_rows
        if buffered_rows >= BUFFER_ROWS:
            merged = spec.merge(pa.Table.from_batches(buffered))
            buffered, buffered_rows = merged.to_batches(), merged.num_rows
            if buffered_rows >= BUFFER_ROWS // 2:
                yield _blocks(merged, spec)
                buffered, buffered_rows = [], 0
    if buffered:
        yield _blocks(spec.merge(pa.Table.from_batches(buffered)), spec)


def _blocks(table: pa.Table, spec: ShuffleSpec) -> pa.RecordBatch:
    keys = table["key"].combine_chunks().dictionary_encode()
    row_partitions = partition_of_keys(keys.dictionary, spec.partitions)[keys.indices.to_numpy()]
    partitions, starts = np.unique(np.sort(row_partitions), return_index=True)
    ordered = table.take(pa.array(np.argsort(row_partitions, kind="stable")))
    ends = [*starts[1:].tolist(), len(row_partitions)]
    slices = [ordered.slice(start, end - start) for start, end in zip(starts.tolist(), ends, strict=True)]
    size = len(partitions)
    return pa.record_batch(
        {
            "run": pa.array(np.full(size, spec.run, dtype=np.int32)),
            "kind": pa.array([spec.kind] * size),
            "shuffle_partition": pa.array(partitions, pa.int32()),
            "block": pa.array([write_table(rows, compress=True) for rows in slices], pa.binary()),
        }
    )


def block(run: int, kind: str, table: pa.Table) -> pa.RecordBatch:
    """Return rows that have no key as one block, of the first shuffle partition."""
    return pa.record_batch(
        {
            "run": pa.array([run], pa.int32()),
            "kind": pa.array([kind]),
            "shuffle_partition": pa.array([0], pa.int32()),
            "block": pa.array([write_table(table, compress=True)], pa.binary()),
        }
    )


def repartition_keys(partitions: int) -> list[int]:
    """Return for each of Spark's partitions a number that `repartition(partitions, number)` moves there.

    Each partition of Spark thus gets the blocks of exactly one shuffle partition.
    """
    keys: dict[int, int] = {}
    numbers = count()
    while len(keys) < partitions:
        number = next(numbers)
        keys.setdefault(mmh3.hash(number.to_bytes(4, "little"), HASH_SEED) % partitions, number)
    return [keys[partition] for partition in range(partitions)]


def collect(batches: Iterable[pa.RecordBatch]) -> Mapping[int, Mapping[str, pa.Table]]:
    """Return all rows of a task's shuffle partitions, by run and kind."""
    tables_by_run: defaultdict[int, defaultdict[str, list[pa.Table]]] = defaultdict(lambda: defaultdict(list))
    for batch in batches:
        for row in batch.to_pylist():
            tables_by_run[row["run"]][row["kind"]].append(pa.ipc.open_stream(row["block"]).read_all())
    return {
        run: {kind: pa.concat_tables(tables) for kind, tables in tables_by_kind.items()}
        for run, tables_by_kind in sorted(tables_by_run.items())
    }
