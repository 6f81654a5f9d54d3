"""Rows on their way to those who have all rows of a key: cut into parts by key, as blocks of Arrow.

A row of Spark is a block, which holds some thousands of them. So what is many in a run, its keys, is handled as columns
in Python from end to end, and Java only carries it. For `mapInArrow`; nothing of Spark is needed here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skewless.algorithms.hashing import partition_of_keys

PARTS = "run int, kind string, part int, block binary"
BUFFER_ROWS = 262_144
"""Rows that a task holds before it merges them."""

Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Merge = Callable[[pa.Table], pa.Table]
"""Fewer rows that say the same; it keeps names and order of the columns."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Dealing:
    """How records become rows in parts. It travels to the executors."""

    run: int
    kind: str
    parts: int
    read: Read
    merge: Merge


def dealt(batches: Iterator[pa.RecordBatch], how: Dealing) -> Iterator[pa.RecordBatch]:
    """Read records as rows with a column `key`, merge them, and cut them into parts by key."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for found in how.read(batches):
        waiting.append(found)
        rows += found.num_rows
        if rows >= BUFFER_ROWS:
            merged = how.merge(pa.Table.from_batches(waiting))
            waiting, rows = merged.to_batches(), merged.num_rows
            if rows >= BUFFER_ROWS // 2:
                yield _cut(merged, how)
                waiting, rows = [], 0
    if waiting:
        yield _cut(how.merge(pa.Table.from_batches(waiting)), how)


def _cut(table: pa.Table, how: Dealing) -> pa.RecordBatch:
    keys = table["key"].combine_chunks().dictionary_encode()
    owners = partition_of_keys(keys.dictionary, how.parts)[keys.indices.to_numpy()]
    numbers, firsts = np.unique(np.sort(owners), return_index=True)
    ordered = table.take(pa.array(np.argsort(owners, kind="stable")))
    ends = [*firsts[1:].tolist(), len(owners)]
    cut = [ordered.slice(first, end - first) for first, end in zip(firsts.tolist(), ends, strict=True)]
    size = len(numbers)
    return pa.record_batch(
        {
            "run": pa.array(np.full(size, how.run, dtype=np.int32)),
            "kind": pa.array([how.kind] * size),
            "part": pa.array(numbers, pa.int32()),
            "block": pa.array([_encoded(each) for each in cut], pa.binary()),
        }
    )


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def gathered(batches: Iterable[pa.RecordBatch]) -> Mapping[int, Mapping[str, pa.Table]]:
    """Put together what a task got: by run and kind all rows of its keys."""
    found: defaultdict[int, defaultdict[str, list[pa.Table]]] = defaultdict(lambda: defaultdict(list))
    for batch in batches:
        for row in batch.to_pylist():
            found[row["run"]][row["kind"]].append(pa.ipc.open_stream(row["block"]).read_all())
    return {
        run: {kind: pa.concat_tables(tables) for kind, tables in kinds.items()} for run, kinds in sorted(found.items())
    }
