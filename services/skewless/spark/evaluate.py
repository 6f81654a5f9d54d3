"""What recorded runs of pipelines tell of their groupings: every measure, exact, from the pipelines' own topics.

Tuples by key and worker come from `worker-input`; W of each tick from `distribution`; how many partial results there
were from `partials`; latencies from `tuples` and `windows`; the size of a router's state from `control`. Each topic is
read once, for all runs at once. Only sums reach the driver: what there is per key stays with the executors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.errors import CheckFailedError
from skewless.public_records import TickDistribution
from skewless.spark import columns, latency, parts, spread
from skewless.spark.facts import NAMES, facts_of
from skewless.spark.recorded import Recorded, observed, records, union
from skewless.spark.sums import Rows, Sums


def _cells(run: Recorded, number: int, count: int) -> DataFrame:
    """Cells of a run, as parts."""
    read = partial(columns.cells, bucket_ms=run.bucket_ms)
    deal = partial(parts.dealt, how=parts.Dealing(number, "cells", count, read, columns.merged_cells))
    return records(run, number, "worker-input", "key", "value", "worker", "at").mapInArrow(deal, parts.PARTS)


def _results(run: Recorded, number: int, count: int) -> DataFrame:
    """When tuples of each key and window were sent, and when they were counted, as parts."""
    read = partial(columns.cells, bucket_ms=run.settings.aggregator.window_ms)
    sent = partial(parts.dealt, how=parts.Dealing(number, "sent", count, read, columns.last_cells))
    log = partial(parts.dealt, how=parts.Dealing(number, "chunks", count, columns.chunks, columns.as_they_are))
    tuples = records(run, number, "tuples", "key", "value", "worker", "at").mapInArrow(sent, parts.PARTS)
    return tuples.unionByName(
        records(run, number, "windows", "key", "value", "at", "offset").mapInArrow(log, parts.PARTS)
    )


def _labels(run: Recorded, told: Sequence[TickDistribution], hottest: int) -> spread.Labels:
    """Say what tuples of a run belong to; those of ticks of which nothing was told to the file's grouping and W."""
    settings = run.settings
    own = [(settings.router.grouping, settings.router.workers), *((tick.grouping, tick.workers) for tick in told)]
    segments = list(dict.fromkeys(own))
    ticks = [(tick.tick_start, segments.index(segment)) for tick, segment in zip(told, own[1:], strict=True)]
    spans = settings.observer.tick_ms, settings.aggregator.window_ms
    return spread.Labels(settings.name, *spans, segments, ticks, hottest)


def summed(
    spark: SparkSession, runs: Sequence[Recorded], told: Sequence[Sequence[TickDistribution]], folder: Path
) -> Sums:
    """Sum up the runs; writes `cells` and `keys` as Parquet into the folder.

    Raises CheckFailedError for a run without tuples.
    """
    count = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    most = max(run.settings.observer.hottest for run in runs)
    labels = [_labels(run, ticks, most) for run, ticks in zip(runs, told, strict=True)]
    dealt = union([_cells(run, number, count) for number, run in enumerate(runs)])
    cells = dealt.repartitionById(count, "part").persist(StorageLevel.DISK_ONLY)
    made = cells.mapInArrow(partial(spread.sums, labels=labels), spread.ROWS).persist(StorageLevel.DISK_ONLY)
    try:
        numbers = _rows(_numbers(made))
        _check_not_empty(runs, {int(row["run"]) for row in numbers})
        hottest = _rows(_hottest(made, most))
        for name, make, schema in (("cells", spread.cells, spread.CELLS), ("keys", spread.keys, spread.KEYS)):
            rows = cells.mapInArrow(partial(make, labels=labels), schema)
            rows.write.mode("overwrite").parquet(str(folder / name))
    finally:
        made.unpersist()
        cells.unpersist()
    loads, replicas = _by_span(numbers, "load", labels), _by_span(numbers, "replicas", labels)
    replicas["run"] = _totals(loads["run"], replicas["run"], _by_span(numbers, "size", labels)["run"])
    return Sums(
        loads=loads,
        replicas=replicas,
        hottest=_by_span(hottest, "hottest", labels),
        latencies=_named(_rows(_latencies(runs, count)), runs),
        **_kept(runs),
    )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _check_not_empty(runs: Sequence[Recorded], found: set[int]) -> None:
    for number, run in enumerate(runs):
        if number not in found:
            topic = run.settings.topic("worker-input")
            raise CheckFailedError(f"topic {topic} has no tuples: run the pipeline first, then evaluate")


def _numbers(made: DataFrame) -> DataFrame:
    """Add up what the executors have found."""
    sums = [F.sum(name).alias(name) for name in ("tuples", "keys", "pairs")]
    ends = F.min("first_at").alias("first_at"), F.max("last_at").alias("last_at"), F.max("most").alias("most")
    by = ("kind", "span", "run", "segment", "at", "worker")
    return made.where("kind != 'hottest'").groupBy(*by).agg(*sums, *ends)


def _hottest(made: DataFrame, most: int) -> DataFrame:
    """Pick the hottest keys of each span from the executors' own, by tuples; where these tie, by key."""
    order = Window.partitionBy("span", "run", "segment", "at").orderBy(F.desc("tuples"), "key")
    placed = made.where("kind = 'hottest'").withColumn("place", F.row_number().over(order))
    return placed.where(F.col("place") <= most)


def _by_span(rows: Rows, kind: str, labels: Sequence[spread.Labels]) -> dict[str, list[dict[str, Any]]]:
    """Rows of a kind by the span that they are of, with the names of run, grouping and W."""
    found: dict[str, list[dict[str, Any]]] = {span: [] for span in spread.SPANS}
    for row in rows:
        if row["kind"] == kind:
            label = labels[row["run"]]
            grouping, workers = label.segments[row["segment"]]
            names = {row["span"]: row["at"], "run": label.run, "grouping": grouping, "workers": workers}
            found[row["span"]].append({**row, **names})
    return found


def _totals(loads: Rows, replicas: Rows, sizes: Rows) -> list[dict[str, Any]]:
    """Add to the replicas of whole runs the tuples of the hottest key, and the workers that perfect balance needs."""
    totals: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    needed: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    hottest: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    for row in loads:
        totals[_segment(row)] += row["tuples"]
    for row in sizes:
        segment = _segment(row)
        needed[segment] += row["keys"] * -(-row["at"] * row["workers"] // totals[segment])
        hottest[segment] = max(hottest[segment], row["at"])
    return [{**row, "hottest": hottest[_segment(row)], "needed": needed[_segment(row)]} for row in replicas]


def _segment(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["run"], row["grouping"], row["workers"]


def _named(rows: Rows, runs: Sequence[Recorded]) -> list[dict[str, Any]]:
    """Give rows the names of their runs."""
    return [{**row, "run": runs[row["run"]].name} for row in rows]


def _latencies(runs: Sequence[Recorded], count: int) -> DataFrame:
    dealt = union([_results(run, number, count) for number, run in enumerate(runs)])
    each = dealt.repartitionById(count, "part").mapInArrow(latency.latencies, latency.LATENCIES)
    return latency.quantiles(each)


def _kept(runs: Sequence[Recorded]) -> dict[str, list[dict[str, Any]]]:
    """Partial results of each window, and the size of the loads that routers saved last, the largest of them."""
    frames = []
    for number, run in enumerate(runs):
        count = partial(columns.partial_rows, bucket_ms=run.settings.aggregator.window_ms)
        rows = records(run, number, "partials", "value").mapInArrow(count, columns.PARTIAL_ROWS)
        partials = rows.groupBy(F.lit(number).alias("run"), F.col("bucket").alias("window"))
        frames.append(partials.agg(F.sum("rows").alias("rows"), F.lit(None).cast("int").alias("bytes")))
        saved = records(run, number, "control", "key", "value", "partition", "offset").groupBy("key", "partition")
        latest = saved.agg(F.max_by(F.length("value"), "offset").alias("bytes"))
        empty = F.lit(None).cast("long")
        frames.append(latest.select(F.lit(number).alias("run"), empty.alias("window"), empty.alias("rows"), "bytes"))
    found = _named(_rows(union(frames)), runs)
    return {
        "partials": [row for row in found if row["rows"] is not None],
        "state": [row for row in found if row["bytes"] is not None],
    }


def evaluate(spark: SparkSession, runs: Sequence[Recorded], folder: Path) -> dict[str, Any]:
    """Evaluate runs and compare them; Parquet goes into the folder. The answer is one JSON object."""
    told = observed(runs)
    found = summed(spark, runs, told, folder)
    each = zip(runs, told, strict=True)
    return {
        "names": NAMES,
        "runs": [facts for run, ticks in each for facts in facts_of(run.settings, run.offsets, ticks, found)],
    }
