"""How long results took: from the last tuple of a (window, key) to the commit that made its result complete.

Start: the largest Kafka timestamp of the records of `tuples` that hold tuples of this window and key: when the splitter
wrote them. End: the Kafka timestamp of the first record of `windows` with which the aggregator's state had all of them;
with `emit: updates` the result itself is in the same transaction, with `emit: final` it follows when the window closes.
Not included: the time that records waited in the source topic, and until a transaction was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.spark.columns import last_cells
from skewless.spark.parts import gathered

QUANTILES = (0.5, 0.95, 0.99)
LATENCIES = "run int, window long, latency_ms long, results long"
"""How many results of a window took so long."""


def latencies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the latencies of an executor's keys (LATENCIES); it has their `sent`, cells of windows, and `chunks`."""
    for run, kinds in gathered(batches).items():
        if kinds.keys() >= {"sent", "chunks"}:
            sent = last_cells(kinds["sent"]).rename_columns(
                ["window", "key", "worker", "tuples", "first_at", "sent_at"]
            )
            both = sent.select(["window", "key", "sent_at"]).join(
                completed(kinds["chunks"]), ["window", "key"], None, "inner"
            )
            took = pa.table({"window": both["window"], "latency_ms": _minus(both["complete_at"], both["sent_at"])})
            found = took.group_by(["window", "latency_ms"], use_threads=False).aggregate([([], "count_all")])
            runs = pa.array(np.full(found.num_rows, run, dtype=np.int32))
            table = pa.table([runs, *found.columns], names=["run", "window", "latency_ms", "results"])
            yield from table.combine_chunks().to_batches()


def _minus(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.Array:
    return pa.array(one.to_numpy() - other.to_numpy())


def completed(chunks: pa.Table) -> pa.Table:
    """When each (window, key) was complete (`complete_at`); takes rows of the aggregator's changelog (columns.CHUNKS).

    All of them are in one partition. A chunk with a number below 0 starts a key's count anew: it has what all chunks
    of its window had of the key until then (`skewless.algorithms.windowed`).
    """
    keys = chunks["key"].combine_chunks().dictionary_encode()
    data = {name: chunks[name].to_numpy() for name in ("window", "number", "tuples", "at", "offset")}
    numbers = keys.indices.to_numpy()
    order = np.lexsort((data["offset"], numbers, data["window"]))
    window, number, tuples, at = (data[name][order] for name in ("window", "number", "tuples", "at"))
    begins = _changes(window, numbers[order])
    total = np.cumsum(tuples)
    lives = begins | (number < 0)
    so_far = total - _first_of_its(lives, total - tuples)
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(begins) - 1)
    groups = np.cumsum(begins) - 1
    complete = np.flatnonzero(so_far == so_far[last][groups])
    earliest = np.full(len(last), np.iinfo(np.int64).max)
    np.minimum.at(earliest, groups[complete], at[complete])
    firsts = keys.dictionary.take(pa.array(numbers[order][last]))
    return pa.table({"window": window[last], "key": firsts, "complete_at": earliest})


def _changes(*columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a group of equal neighbours begins."""
    found = np.zeros(len(columns[0]), dtype=np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def _first_of_its(begins: NDArray[np.bool_], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row the value at the beginning of its group."""
    found: NDArray[np.int64] = values[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return found


def quantiles(latencies: DataFrame) -> DataFrame:
    """Exact quantiles of the latencies in ms: of each window of a run, and under window null of all."""
    wanted = F.array(*map(F.lit, QUANTILES))
    return latencies.groupingSets([["run", "window"], ["run"]], "run", "window").agg(
        F.sum("results").alias("results"),
        F.percentile("latency_ms", wanted, F.col("results")).alias("quantiles"),
        F.max("latency_ms").alias("most"),
    )
