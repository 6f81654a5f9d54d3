"""Latency of results: from the last tuple of a (window, key) to the changelog record that completed its result.

Start: the largest Kafka timestamp of the records of `tuples` that contain tuples of the window and key, which is when
the splitter wrote them. End: the Kafka timestamp of the first record of `aggregator-changelog` with which the state of
the aggregator contained all of these tuples. With `emit: updates` the result is written in the same transaction; with
`emit: final` it follows when the window closes. Not included: the time that records waited in the source topic, and the
time until a transaction was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.spark.completion import TUPLE_LATENCIES, tuple_latencies
from skewless.spark.shuffle import collect
from skewless.spark.topic_rows import last_cells

QUANTILES = (0.5, 0.95, 0.99)
LATENCIES = "run int, window long, latency_ms long, results long"
"""Number of results of a window that have the same latency. `run` is the index of the run."""


def latencies(batches: Iterable[pa.RecordBatch], windows: Sequence[WindowAssigner]) -> Iterator[pa.RecordBatch]:
    """Yield the latencies of an executor's keys (LATENCIES), given blocks of the kinds `sent` and `changelog`.

    `windows` has the windows of each run. The buckets of `sent` must divide their slices.
    """
    for run, tables in collect(batches).items():
        if tables.keys() >= {"sent", "changelog"}:
            sent = last_cells(_by_window(tables["sent"], windows[run])).rename_columns(
                ["window", "key", "worker", "tuples", "rows", "first_at", "sent_at"]
            )
            joined = sent.select(["window", "key", "sent_at", "tuples"]).join(
                completed(tables["changelog"]), ["window", "key"], None, "inner"
            )
            joined = joined.filter(pc.field("counted") >= pc.field("tuples"))
            latency_ms = pa.array(joined["complete_at"].to_numpy() - joined["sent_at"].to_numpy())
            by_result = pa.table({"window": joined["window"], "latency_ms": latency_ms})
            counts = by_result.group_by(["window", "latency_ms"], use_threads=False).aggregate([([], "count_all")])
            runs = pa.array(np.full(counts.num_rows, run, dtype=np.int32))
            table = pa.table([runs, *counts.columns], names=["run", "window", "latency_ms", "results"])
            yield from table.combine_chunks().to_batches()


def _by_window(cells: pa.Table, windows: WindowAssigner) -> pa.Table:
    """Replace the bucket of each cell by its windows, with one row for each of them."""
    counts, starts = windows.assign(cells["bucket"].to_numpy())
    rows = cells.take(pa.array(np.repeat(np.arange(cells.num_rows), counts)))
    return rows.set_column(rows.schema.get_field_index("bucket"), "bucket", pa.array(starts))


def completed(changelog: pa.Table) -> pa.Table:
    """Return the tuples that each (window, key) has (`counted`), and since when it has them (`complete_at`).

    `changelog` is the aggregator's changelog (CHANGELOG_ROWS).
    The table must have all rows of one changelog partition. A compacted record restarts a key's count, because it
    contains what all earlier records of its window had of the key (`skewless.algorithms.windowing.window_store`).
    """
    keys = changelog["key"].combine_chunks().dictionary_encode()
    key_indices = keys.indices.to_numpy()
    order = np.lexsort((changelog["offset"].to_numpy(), key_indices, changelog["window"].to_numpy()))
    windows, compacted, tuples, timestamps = (
        changelog[name].to_numpy()[order] for name in ("window", "compacted", "tuples", "timestamp_ms")
    )
    is_group_start = _group_starts(windows, key_indices[order])
    total = np.cumsum(tuples)
    is_count_start = is_group_start | (compacted > 0)
    counts = total - _value_at_start(is_count_start, total - tuples)
    last_rows = np.append(np.flatnonzero(is_group_start)[1:] - 1, len(is_group_start) - 1)
    groups = np.cumsum(is_group_start) - 1
    complete_rows = np.flatnonzero(counts == counts[last_rows][groups])
    complete_at = np.full(len(last_rows), np.iinfo(np.int64).max)
    np.minimum.at(complete_at, groups[complete_rows], timestamps[complete_rows])
    group_keys = keys.dictionary.take(pa.array(key_indices[order][last_rows]))
    return pa.table(
        {"window": windows[last_rows], "key": group_keys, "counted": counts[last_rows], "complete_at": complete_at}
    )


def _group_starts(*columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each row whether it starts a group of equal consecutive rows."""
    is_start = np.zeros(len(columns[0]), dtype=np.bool_)
    is_start[:1] = True
    for column in columns:
        is_start[1:] |= column[1:] != column[:-1]
    return is_start


def _value_at_start(is_start: NDArray[np.bool_], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row the value at the start of its group."""
    start_values: NDArray[np.int64] = values[np.flatnonzero(is_start)][np.cumsum(is_start) - 1]
    return start_values


def quantiles(latencies: DataFrame) -> DataFrame:
    """Return exact quantiles of the latencies in ms: of each window of a run, and of all its windows (window null)."""
    return latencies.groupingSets([["run", "window"], ["run"]], "run", "window").agg(*_quantiles("results"))


def tuple_quantiles(progress: DataFrame, ends: Mapping[int, int]) -> DataFrame:
    """Return exact quantiles of the latencies of tuples in ms: of each run, those completed and those that wait.

    `progress`: WORKER_PROGRESS with the index of the run; `ends`: the end of each run.
    """

    def by_worker(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        run = key[0].as_py()
        table = tuple_latencies(rows, ends[run])
        return table.add_column(0, "run", pa.array(np.full(table.num_rows, run, dtype=np.int32)))

    latencies = progress.groupBy("run", "worker").applyInArrow(by_worker, f"run int, {TUPLE_LATENCIES}")
    return latencies.groupBy("run", "is_waiting").agg(*_quantiles("tuples"))


def _quantiles(count: str) -> list[Column]:
    shares = F.array(*map(F.lit, QUANTILES))
    return [
        F.sum(count).alias(count),
        F.percentile("latency_ms", shares, F.col(count)).alias("quantiles"),
        F.max("latency_ms").alias("max_ms"),
    ]
