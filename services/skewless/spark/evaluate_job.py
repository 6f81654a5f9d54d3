"""The job of `skewless evaluate`: computes exact measures of the groupings of pipelines from their topics.

Tuples and rows by key and worker come from `worker-input`, the number of workers of each tick from `distribution`, the
number of partial results from `partials`, latencies from `tuples` and `aggregator-changelog`, and the size of a
router's state from `router-state`. What the workers completed comes from `worker-input` and `partials`. Each topic is
read once, for all runs together. Only sums of ticks and windows reach the driver; data per key stays on the executors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from skewless.spark import key_statistics, latency, shuffle, topic_rows
from skewless.spark.batch_job import local_uri
from skewless.spark.batch_pipeline import in_partitions
from skewless.spark.comparison import comparisons
from skewless.spark.completion import Completion
from skewless.spark.distribution_sums import Rows, Sums
from skewless.spark.evaluation_json import NAMES, measures_of_run
from skewless.spark.pipeline_run import PipelineRun, nothing_to_evaluate
from skewless.spark.run_records import read_distributions, records, union
from skewless.wire.distribution import TickDistribution


def _cell_blocks(run: PipelineRun, run_index: int, partitions: int) -> DataFrame:
    """Return the cells of a run as blocks by shuffle partition, and blocks of the kind `arrivals`."""
    read = partial(topic_rows.cells, bucket_ms=run.settings.grid_ms)
    spec = shuffle.ShuffleSpec(run_index, "cells", partitions, read, topic_rows.merged_cells)
    tuples = records(run, run_index, "worker-input", "key", "value", "worker", "timestamp_ms")
    return tuples.mapInArrow(partial(_cells_and_arrivals, spec=spec), shuffle.SHUFFLE_BLOCKS)


def _cells_and_arrivals(batches: Iterator[pa.RecordBatch], spec: shuffle.ShuffleSpec) -> Iterator[pa.RecordBatch]:
    """Yield cells as `partition_by_key` does, and then the progress of workers that they are (WORKER_PROGRESS)."""
    arrivals: list[pa.RecordBatch] = []

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cells in spec.read(batches):
            arrivals.extend(topic_rows.arrivals(cells))
            yield cells

    yield from shuffle.partition_by_key(batches, replace(spec, read=read))
    if arrivals:
        yield shuffle.block(spec.run, "arrivals", pa.Table.from_batches(arrivals))


def _arrivals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks of the kind `arrivals`, with the index of their run."""
    for run, tables in shuffle.collect(batches).items():
        table = tables["arrivals"]
        runs = pa.array(np.full(table.num_rows, run, dtype=np.int32))
        yield from table.add_column(0, "run", runs).to_batches()


def _latency_blocks(run: PipelineRun, run_index: int, partitions: int) -> DataFrame:
    """Return when the tuples of each key and window were sent and when they were counted, by shuffle partition."""
    read = partial(topic_rows.cells, bucket_ms=run.settings.window_grid_ms)
    sent_spec = shuffle.ShuffleSpec(run_index, "sent", partitions, read, topic_rows.last_cells)
    changelog_spec = shuffle.ShuffleSpec(
        run_index, "changelog", partitions, topic_rows.changelog_rows, topic_rows.unmerged
    )
    tuples = records(run, run_index, "tuples", "key", "value", "worker", "timestamp_ms")
    changelog = records(run, run_index, "aggregator-changelog", "key", "value", "timestamp_ms", "offset")
    sent_blocks = tuples.mapInArrow(partial(shuffle.partition_by_key, spec=sent_spec), shuffle.SHUFFLE_BLOCKS)
    changelog_blocks = changelog.mapInArrow(
        partial(shuffle.partition_by_key, spec=changelog_spec), shuffle.SHUFFLE_BLOCKS
    )
    return sent_blocks.unionByName(changelog_blocks)


def _labels(run: PipelineRun, distributions: Sequence[TickDistribution], hottest: int) -> key_statistics.Labels:
    """Return the segments of a run. Ticks without a distribution record have the settings' grouping and workers."""
    settings = run.settings
    tick_segments = [(tick.grouping, tick.workers) for tick in distributions]
    segments = list(dict.fromkeys([(settings.router.grouping, settings.router.workers), *tick_segments]))
    observed_ticks = [
        (tick.tick_start, segments.index(segment)) for tick, segment in zip(distributions, tick_segments, strict=True)
    ]
    return key_statistics.Labels(
        run.name,
        settings.observer.tick_ms,
        run.windows,
        segments,
        observed_ticks,
        hottest,
    )


def sum_up(
    spark: SparkSession,
    runs: Sequence[PipelineRun],
    distributions: Sequence[Sequence[TickDistribution]],
    folder: Path | None,
) -> Sums:
    """Return the sums of the runs, and write `cells` and `keys` as Parquet into the folder if there is one.

    Raises the errors of `nothing_to_evaluate` for a run without tuples.
    """
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    hottest_limit = max(run.settings.observer.top_keys for run in runs)
    labels = [_labels(run, ticks, hottest_limit) for run, ticks in zip(runs, distributions, strict=True)]
    all_blocks = union([_cell_blocks(run, index, partitions) for index, run in enumerate(runs)])
    blocks = in_partitions(all_blocks, partitions, "shuffle_partition").persist(StorageLevel.DISK_ONLY)
    cells = blocks.where("kind = 'cells'")
    partials = _partials(runs).persist(StorageLevel.DISK_ONLY)
    executor_sums = cells.mapInArrow(
        partial(key_statistics.sums, labels=labels), from_arrow_schema(key_statistics.SUMS)
    ).persist(StorageLevel.DISK_ONLY)
    try:
        sums = _rows(_merged_sums(executor_sums))
        _check_not_empty(runs, {int(row["run"]) for row in sums})
        hottest = _rows(_hottest(executor_sums, hottest_limit))
        if folder is not None:
            _write_tables(cells, labels, folder)
        arrivals = blocks.where("kind = 'arrivals'").mapInArrow(_arrivals, f"run int, {topic_rows.WORKER_PROGRESS}")
        completions = _completions(runs, arrivals, partials)
        partials_and_state = _partials_and_state(runs, partials)
    finally:
        for frame in (executor_sums, blocks, partials):
            frame.unpersist()
    loads, replicas = _by_span(sums, "load", labels), _by_span(sums, "replicas", labels)
    replicas["run"] = _with_hottest_and_needed(loads["run"], replicas["run"], _by_span(sums, "size", labels)["run"])
    return Sums(
        loads=loads,
        replicas=replicas,
        hottest=_by_span(hottest, "hottest", labels),
        latencies=_with_run_names(_rows(_latencies(runs, partitions)), runs),
        completions=completions,
        **partials_and_state,
    )


def _write_tables(cells: DataFrame, labels: Sequence[key_statistics.Labels], folder: Path) -> None:
    for name, read, columns in (
        ("cells", key_statistics.cells, key_statistics.CELLS),
        ("keys", key_statistics.keys, key_statistics.KEYS),
    ):
        rows = cells.mapInArrow(partial(read, labels=labels), from_arrow_schema(columns))
        rows.write.mode("overwrite").parquet(local_uri(folder / name))


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _check_not_empty(runs: Sequence[PipelineRun], runs_with_tuples: set[int]) -> None:
    for index, run in enumerate(runs):
        if index not in runs_with_tuples:
            raise nothing_to_evaluate(run)


def _merged_sums(executor_sums: DataFrame) -> DataFrame:
    """Merge the sums of the executors."""
    sums = [F.sum(name).alias(name) for name in ("tuples", "rows", "keys", "pairs")]
    extremes = [
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.max("max_workers").alias("max_workers"),
    ]
    by = ("kind", "span", "run", "segment", "span_start", "worker", "key_tuples")
    return executor_sums.where("kind != 'hottest'").groupBy(*by).agg(*sums, *extremes)


def _hottest(executor_sums: DataFrame, limit: int) -> DataFrame:
    """Return the hottest keys of each span from the executors' candidates, by tuples; ties are ordered by key."""
    order = Window.partitionBy("span", "run", "segment", "span_start").orderBy(F.desc("tuples"), "key")
    ranked = executor_sums.where("kind = 'hottest'").withColumn("rank", F.row_number().over(order))
    return ranked.where(F.col("rank") <= limit)


def _by_span(rows: Rows, kind: str, labels: Sequence[key_statistics.Labels]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a kind by span, with the span's start and the names of run and grouping."""
    by_span: dict[str, list[dict[str, Any]]] = {span: [] for span in key_statistics.SPANS}
    for row in rows:
        if row["kind"] == kind:
            label = labels[row["run"]]
            grouping, workers = label.segments[row["segment"]]
            names = {row["span"]: row["span_start"], "run": label.run, "grouping": grouping, "workers": workers}
            by_span[row["span"]].append({**row, **names})
    return by_span


def _with_hottest_and_needed(loads: Rows, replicas: Rows, sizes: Rows) -> list[dict[str, Any]]:
    """Add to the replicas of whole runs the tuples of the hottest key, and the workers that perfect balance needs."""
    totals: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    needed: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    hottest: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    for row in loads:
        totals[_segment(row)] += row["tuples"]
    for row in sizes:
        segment = _segment(row)
        workers_per_key = -(-row["key_tuples"] * row["workers"] // totals[segment])
        needed[segment] += row["keys"] * workers_per_key
        hottest[segment] = max(hottest[segment], row["key_tuples"])
    return [{**row, "hottest": hottest[_segment(row)], "needed": needed[_segment(row)]} for row in replicas]


def _segment(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["run"], row["grouping"], row["workers"]


def _with_run_names(rows: Rows, runs: Sequence[PipelineRun]) -> list[dict[str, Any]]:
    """Replace the index of the run by its name."""
    return [{**row, "run": runs[row["run"]].name} for row in rows]


def _latencies(runs: Sequence[PipelineRun], partitions: int) -> DataFrame:
    blocks = union([_latency_blocks(run, index, partitions) for index, run in enumerate(runs)])
    latencies = in_partitions(blocks, partitions, "shuffle_partition").mapInArrow(
        partial(latency.latencies, windows=[run.settings.aggregator.windows for run in runs]), latency.LATENCIES
    )
    return latency.quantiles(latencies)


def _partials(runs: Sequence[PipelineRun]) -> DataFrame:
    """Return the partial results by window, worker and time (PARTIAL_ROWS), with the index of their run."""
    frames = []
    for index, run in enumerate(runs):
        count = partial(topic_rows.partial_rows, windows=run.windows)
        rows = records(run, index, "partials", "value", "timestamp_ms").mapInArrow(count, topic_rows.PARTIAL_ROWS)
        frames.append(rows.select(F.lit(index).alias("run"), "*"))
    return union(frames)


def _partials_and_state(runs: Sequence[PipelineRun], partials: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the number of partial results of each window, and the size of each router snapshot that was saved last."""
    by_window = partials.groupBy("run", "window")
    frames = [by_window.agg(F.sum("rows").alias("rows"), F.lit(None).cast("int").alias("bytes"))]
    for index, run in enumerate(runs):
        snapshots = records(run, index, "router-state", "key", "value", "partition", "offset").groupBy(
            "key", "partition"
        )
        latest = snapshots.agg(F.max_by(F.length("value"), "offset").alias("bytes"))
        empty = F.lit(None).cast("long")
        frames.append(latest.select(F.lit(index).alias("run"), empty.alias("window"), empty.alias("rows"), "bytes"))
    named_rows = _with_run_names(_rows(union(frames)), runs)
    return {
        "partials": [row for row in named_rows if row["rows"] is not None],
        "state": [row for row in named_rows if row["bytes"] is not None],
    }


def _completions(runs: Sequence[PipelineRun], arrivals: DataFrame, partials: DataFrame) -> list[dict[str, Any]]:
    """Return what the workers of each whole run have completed (`Sums.completions`)."""
    whole = [index for index, run in enumerate(runs) if run.is_whole]
    completed = partials.select("run", "worker", "at", F.lit(0).alias("arrived"), F.col("tuples").alias("completed"))
    sums = [F.sum(name).alias(name) for name in ("arrived", "completed")]
    by_time = arrivals.union(completed).where(F.col("run").isin(whole)).groupBy("run", "worker", "at")
    progress = by_time.agg(*sums).persist(StorageLevel.DISK_ONLY)
    try:
        totals = _rows(progress.groupBy("run").agg(*sums, F.min("at").alias("first_at"), F.max("at").alias("last_at")))
        ends = {row["run"]: row["last_at"] for row in totals}
        quantiles = {(row["run"], row["is_waiting"]): row for row in _rows(latency.tuple_quantiles(progress, ends))}
    finally:
        progress.unpersist()
    completions = [
        {
            "run": row["run"],
            "completion": Completion(
                row["completed"], row["arrived"] - row["completed"], row["first_at"], row["last_at"]
            ),
            "latency": quantiles.get((row["run"], False)),
            "waiting_for": quantiles.get((row["run"], True)),
        }
        for row in totals
    ]
    return _with_run_names(completions, runs)


def evaluate(spark: SparkSession, runs: Sequence[PipelineRun], folder: Path | None = None) -> dict[str, Any]:
    """Evaluate and compare runs: return the measures as a JSON object, and write Parquet into the folder if given."""
    evaluated_at = datetime.now(UTC)
    distributions = read_distributions(runs)
    sums = sum_up(spark, runs, distributions, folder)
    measures = [
        measure
        for run, ticks in zip(runs, distributions, strict=True)
        for measure in measures_of_run(run.settings, run.offsets, ticks, sums)
    ]
    return {
        "names": NAMES,
        "evaluated_at": evaluated_at.isoformat(timespec="seconds"),
        "runs": measures,
        "comparisons": comparisons([run.settings for run in runs], measures),
    }
