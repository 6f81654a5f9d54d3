"""What recorded runs of pipelines tell of their groupings: every measure, exact, from the pipelines' own topics.

Tuples by key and worker come from `worker-input`; W of each tick from `distribution`; how many partial results there
were from `partials`; latencies from `tuples` and `windows`; the size of a router's state from `control`. Only sums
reach the driver: what there is per key stays in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import gcd
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.errors import CheckFailedError
from skewless.records import TickDistribution
from skewless.settings import PipelineSettings
from skewless.spark import columns, latency
from skewless.spark.facts import NAMES, facts_of
from skewless.spark.sums import Sums

SEGMENT = ("run", "grouping", "workers")
"""What measures are told apart by: a pipeline, and what it ran with."""

Offsets = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A pipeline whose topics hold a run."""

    settings: PipelineSettings
    read: Callable[[str], DataFrame]
    """Rows of Kafka's source (key, value, partition, offset, timestamp) of a topic of the topology, committed ones."""
    offsets: Offsets
    """What of each topic is read: by partition first offset, and the one behind the last."""

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.settings.name

    @property
    def bucket_ms(self) -> int:
        """Longest span of which both ticks and windows are made."""
        return gcd(self.settings.observer.tick_ms, self.settings.aggregator.window_ms)


def observed(run: Recorded) -> list[TickDistribution]:
    """Read what the pipeline's observer told, by tick; the last word on a tick counts."""
    rows = run.read("distribution").where("value is not null").select("offset", "value").collect()
    ticks = [msgspec.json.decode(row.value, type=TickDistribution) for row in sorted(rows, key=lambda row: row.offset)]
    return sorted({tick.tick_start: tick for tick in ticks}.values(), key=lambda tick: tick.tick_start)


def _records(run: Recorded, topic: str, *names: str) -> DataFrame:
    facts = {
        "key": F.col("key"),
        "value": F.col("value"),
        "worker": F.col("partition"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "at": F.unix_millis("timestamp"),
    }
    return run.read(topic).where("value is not null").select(*(facts[name].alias(name) for name in names))


def cells_of(run: Recorded, topic: str, bucket_ms: int) -> DataFrame:
    """Tuples by span of event time, key and worker, record by record (columns.CELLS)."""
    read = partial(columns.cells, bucket_ms=bucket_ms)
    return _records(run, topic, "key", "value", "worker", "at").mapInArrow(read, columns.CELLS)


def _labelled(run: Recorded, ticks: Sequence[TickDistribution], spark: SparkSession) -> DataFrame:
    """Cells of a run with tick, window, grouping and W; those of the file where nothing was told."""
    settings = run.settings
    cells = (
        cells_of(run, "worker-input", run.bucket_ms)
        .groupBy("bucket", "key", "worker")
        .agg(F.sum("tuples").alias("tuples"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
        .withColumn("run", F.lit(run.name))
        .withColumn("tick", _floor("bucket", settings.observer.tick_ms))
        .withColumn("window", _floor("bucket", settings.aggregator.window_ms))
    )
    told = pa.table(
        {
            "tick": pa.array([tick.tick_start for tick in ticks], pa.int64()),
            "grouping": pa.array([tick.grouping for tick in ticks], pa.string()),
            "workers": pa.array([tick.workers for tick in ticks], pa.int32()),
        }
    )
    defaults = {"grouping": settings.router.grouping, "workers": settings.router.workers}
    return cells.join(F.broadcast(spark.createDataFrame(told)), "tick", "left").fillna(defaults)


def _floor(column: str, span_ms: int) -> F.Column:
    return F.expr(f"{column} - pmod({column}, {span_ms})")


def summed(
    spark: SparkSession, runs: Sequence[Recorded], told: Sequence[Sequence[TickDistribution]], folder: Path
) -> Sums:
    """Sum up the runs; writes `cells` and `keys` as Parquet into the folder.

    Raises CheckFailedError for a run without tuples.
    """
    labelled = [_labelled(run, ticks, spark) for run, ticks in zip(runs, told, strict=True)]
    _union(labelled).write.mode("overwrite").parquet(str(folder / "cells"))
    cells = spark.read.parquet(str(folder / "cells"))
    loads = {"tick": _rows(_loads(cells, "tick"))}
    _check_not_empty(runs, {str(row["run"]) for row in loads["tick"]})
    tick_keys = _by_key(cells, "tick").persist()
    _by_key(cells).write.mode("overwrite").parquet(str(folder / "keys"))
    keys = spark.read.parquet(str(folder / "keys"))
    most = max(run.settings.observer.hottest for run in runs)
    replicas = {"tick": _rows(_replicas(tick_keys, "tick")), "run": _rows(_totals(keys))}
    if all(run.settings.observer.tick_ms == run.settings.aggregator.window_ms for run in runs):
        loads["window"], replicas["window"] = _renamed(loads["tick"]), _renamed(replicas["tick"])
    else:
        loads["window"] = _rows(_loads(cells, "window"))
        replicas["window"] = _rows(_replicas(_by_key(cells, "window"), "window"))
    return Sums(
        loads=loads,
        replicas=replicas,
        hottest={"tick": _rows(_hottest(tick_keys, most, "tick")), "run": _rows(_hottest(keys, most))},
        latencies=_rows(_union([_latencies(run) for run in runs])),
        partials=_rows(_union([_partials(run) for run in runs])),
        state=_rows(_union([_state(run) for run in runs])),
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _renamed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Take ticks for windows."""
    return [{**row, "window": row["tick"]} for row in rows]


def _check_not_empty(runs: Sequence[Recorded], found: set[str]) -> None:
    for run in runs:
        if run.name not in found:
            topic = run.settings.topic("worker-input")
            raise CheckFailedError(f"topic {topic} has no tuples: run the pipeline first, then evaluate")


def _loads(cells: DataFrame, span: str) -> DataFrame:
    facts = (F.sum("tuples").alias("tuples"), F.min("first_at").alias("first_at"), F.max("last_at").alias("last_at"))
    return cells.groupBy(*SEGMENT, span, "worker").agg(*facts)


def _by_key(cells: DataFrame, *spans: str) -> DataFrame:
    """Tuples, and number of distinct workers, of each key."""
    pairs = cells.groupBy(*SEGMENT, *spans, "key", "worker").agg(F.sum("tuples").alias("tuples"))
    counts = (F.sum("tuples").alias("tuples"), F.count("*").alias("held_by"))
    return pairs.groupBy(*SEGMENT, *spans, "key").agg(*counts)


_REPLICAS = (F.count, "*", "keys"), (F.sum, "held_by", "pairs"), (F.max, "held_by", "most")


def _replicas(by_key: DataFrame, *spans: str) -> DataFrame:
    return by_key.groupBy(*SEGMENT, *spans).agg(*(make(column).alias(name) for make, column, name in _REPLICAS))


def _totals(keys: DataFrame) -> DataFrame:
    """Replicas of whole runs, tuples of the hottest key, and workers that perfect balance needs."""
    total = keys.withColumn("total", F.sum("tuples").over(Window.partitionBy(*SEGMENT)))
    needed = total.withColumn("needed", F.expr("(tuples * workers + total - 1) div total"))
    return needed.groupBy(*SEGMENT).agg(
        *(make(column).alias(name) for make, column, name in _REPLICAS),
        F.max("tuples").alias("hottest"),
        F.sum("needed").alias("needed"),
    )


def _hottest(by_key: DataFrame, most: int, *spans: str) -> DataFrame:
    """Pick the hottest keys, by tuples; where these tie, by key."""
    order = Window.partitionBy(*SEGMENT, *spans).orderBy(F.desc("tuples"), "key")
    return by_key.withColumn("place", F.row_number().over(order)).where(F.col("place") <= most)


def _latencies(run: Recorded) -> DataFrame:
    window_ms = run.settings.aggregator.window_ms
    tuples = cells_of(run, "tuples", window_ms)
    read = _records(run, "windows", "key", "value", "at", "partition", "offset")
    each = latency.latencies(tuples, read.mapInArrow(columns.chunks, columns.CHUNKS))
    return latency.quantiles(each).withColumn("run", F.lit(run.name))


def _partials(run: Recorded) -> DataFrame:
    count = partial(columns.partial_rows, bucket_ms=run.settings.aggregator.window_ms)
    rows = _records(run, "partials", "value").mapInArrow(count, columns.PARTIAL_ROWS)
    return rows.groupBy(F.lit(run.name).alias("run"), F.col("bucket").alias("window")).agg(F.sum("rows").alias("rows"))


def _state(run: Recorded) -> DataFrame:
    """Size of the loads that routers saved last, the largest of them."""
    saved = run.read("control").where("value is not null")
    latest = saved.groupBy("key", "partition").agg(F.max_by(F.length("value"), "offset").alias("bytes"))
    return latest.groupBy(F.lit(run.name).alias("run")).agg(F.max("bytes").alias("bytes"))


def evaluate(spark: SparkSession, runs: Sequence[Recorded], folder: Path) -> dict[str, Any]:
    """Evaluate runs and compare them; Parquet goes into the folder. The answer is one JSON object."""
    told = [observed(run) for run in runs]
    found = summed(spark, runs, told, folder)
    parts = zip(runs, told, strict=True)
    return {
        "names": NAMES,
        "runs": [facts for run, ticks in parts for facts in facts_of(run.settings, run.offsets, ticks, found)],
    }
