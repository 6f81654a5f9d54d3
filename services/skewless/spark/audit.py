"""What `skewless audit` does: compute a pipeline's answer again from its source, and compare it with what it wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.aggregator.step import FORGOTTEN
from skewless.algorithms.watermark import END_OF_TIME
from skewless.records import read_table
from skewless.settings import PipelineSettings
from skewless.spark import kafka, pipeline, source
from skewless.spark.batch import counts
from skewless.splitter.judgement import TOO_FAR_AHEAD

NOT_CLOSED = "windows that are not closed yet"
TOO_OLD = "windows before --since"
REFUSED = "windows that were forgotten before some of their tuples came (these are in dead-letters)"
MISSING, UNEXPECTED, DIFFERENT, TWICE = "missing", "unexpected", "different", "told twice"


@dataclass(frozen=True, slots=True)
class Written:
    """What the pipeline read and wrote, as rows of Kafka's source of Spark, and how far it has come."""

    records: DataFrame
    """Of the source topic, up to where the splitter has committed."""
    aggregates: DataFrame
    dead_letters: DataFrame
    """With headers."""
    closed_to: Mapping[int, int]
    """By partition of `aggregates`: windows that end at or before this have all that was read; END_OF_TIME: all."""


def read(
    spark: SparkSession,
    settings: PipelineSettings,
    spans: Mapping[str, Mapping[int, kafka.Span]],
    closed_to: Mapping[int, int],
) -> Written:
    """Read what a pipeline read and wrote; `spans`: by topic of the topology and partition, what to read of it."""
    client = kafka.client_options(settings)
    records, aggregates, letters = (
        kafka.read(spark, client, settings.topic(topic), spans[topic], headers=topic == "dead-letters")
        for topic in ("source", "aggregates", "dead-letters")
    )
    return Written(records, aggregates, letters, closed_to)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What an audit found."""

    facts: dict[str, Any]
    """The report, but for where the records come from."""
    differences: DataFrame
    """`kind`, `window_start`, `key`, `expected` and `found` (JSON); none if the live answer is right."""


@contextlib.contextmanager
def compared(
    written: Written, settings: PipelineSettings, *, since: int | None = None, first: int = 20
) -> Iterator[Comparison]:
    """Compare window by window and key by key; `since`: leave out windows that start before (ms).

    The report has the `first` differences. What cannot be compared is counted under `left_out`, with the reason. At
    the end of the block Spark forgets what it held.
    """
    letters = written.dead_letters.persist(StorageLevel.DISK_ONLY)
    found = pipeline.answer(_records(written.records, letters, settings), pipeline.reading(settings, None))
    both = _joined(pipeline.results(found, settings), _latest(written.aggregates, settings), settings)
    judged = both.withColumn("left_out", _left_out(both, written.closed_to, since))
    judged = _without_forgotten(judged, letters, settings)
    rows = judged.withColumn("kind", _kind(settings)).persist(StorageLevel.DISK_ONLY)
    try:
        differences = rows.where("left_out is null and kind is not null").select(
            "kind", "window_start", "key", _json("expected", settings), _json("found", settings)
        )
        shown = differences.orderBy("window_start", "key").limit(first).collect()
        told = {"first_differences": [row.asDict() for row in shown]}
        yield Comparison(counts(found) | _summary(rows) | told, differences)
    finally:
        found.close()
        letters.unpersist()
        rows.unpersist()


def _records(records: DataFrame, letters: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Take the stream's word for which records were too far ahead of its clock: that is never decided twice."""
    refused = source.dead_letters(letters, TOO_FAR_AHEAD).where(F.col("topic") == settings.source.topic)
    return source.without(source.of_topic(records), refused)


def _latest(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Find the last record of each Kafka key, and how many there are; a deleted one is none."""
    last = records.groupBy(F.col("key").cast("string").alias("at")).agg(
        F.max_by("value", "offset").alias("value"),
        F.max_by("partition", "offset").alias("partition"),
        F.count("*").alias("records"),
    )
    results = ", ".join(f"`{name}` {kind}" for name, kind in pipeline.fields(settings).items())
    fact = F.from_json(F.col("value").cast("string"), f"{results}, revision bigint")
    return last.where("value is not null").select("at", "partition", "records", fact.alias("found"))


def _joined(expected: DataFrame, latest: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Put what was expected beside what was found, by Kafka key; the partition is where the key belongs."""
    named = expected.select(
        F.concat_ws("/", F.col("window_start").cast("string"), "key").alias("at"),
        F.col("partition").alias("owner"),
        F.struct(*pipeline.fields(settings)).alias("expected"),
    )
    both = named.join(latest, "at", "full_outer")
    parts = F.split("at", "/", 2)
    return both.select(
        parts[0].try_cast("bigint").alias("window_start"),
        parts[1].alias("key"),
        F.coalesce("owner", "partition").alias("partition"),
        "expected",
        "found",
        "records",
    )


def _left_out(rows: DataFrame, closed_to: Mapping[int, int], since: int | None) -> Column:
    """Say why a row cannot be compared, null where it can."""
    ends = F.coalesce(rows["expected.window_end"], rows["found.window_end"])
    pairs = [F.lit(part) for pair in closed_to.items() for part in pair]
    limits = F.create_map(*pairs)[F.col("partition")] if pairs else F.lit(None).cast("bigint")
    open_window = limits.isNull() | ((limits < END_OF_TIME) & (ends > limits))
    too_old = F.col("window_start") < since if since is not None else F.lit(False)
    return F.when(too_old, TOO_OLD).when(open_window, NOT_CLOSED)


def _without_forgotten(rows: DataFrame, letters: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Leave out keys of windows that refused a part: the parts are in dead-letters, as columns."""
    window_ms = settings.aggregator.window_ms

    def cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch["value"].to_pylist():
                table = read_table(value)
                panes = table["pane"].to_numpy()
                yield pa.record_batch(
                    [pa.array(panes // window_ms * window_ms), table["key"].combine_chunks()], ["window_start", "key"]
                )

    refused = source.dead_letters(letters, FORGOTTEN).select("value")
    cut = refused.mapInArrow(cells, "window_start bigint, key string").distinct().withColumn("refused", F.lit(True))
    joined = rows.join(cut, ["window_start", "key"], "left")
    reason = F.coalesce("left_out", F.when(F.col("refused"), REFUSED))
    return joined.withColumn("left_out", reason).drop("refused")


def _kind(settings: PipelineSettings) -> Column:
    """Tell in what a row differs, null if it does not. NaN and missing numbers equal themselves only."""
    same = F.lit(True)
    for name in pipeline.fields(settings):
        same &= F.col(f"expected.{name}").eqNullSafe(F.col(f"found.{name}"))
    return (
        F.when(F.col("found").isNull(), MISSING)
        .when(F.col("expected").isNull(), UNEXPECTED)
        .when(~same, DIFFERENT)
        .when(F.col("records") > F.col("found.revision") + 1, TWICE)
    )


def _json(side: str, settings: PipelineSettings) -> Column:
    names = [name for name in (*pipeline.fields(settings), "revision") if name != "revision" or side == "found"]
    told = F.to_json(F.struct(*(F.col(f"{side}.{name}").alias(name) for name in names)))
    return F.when(F.col(side).isNotNull(), told).alias(side)


def _summary(rows: DataFrame) -> dict[str, Any]:
    """Count by reason and kind; few rows come to the driver."""
    by = rows.groupBy("left_out", "kind").agg(F.count("*").alias("rows")).collect()
    windows = rows.where("left_out is null").agg(F.count_distinct("window_start")).first()
    left_out: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for row in by:
        if row.left_out is not None:
            left_out[row.left_out] = left_out.get(row.left_out, 0) + row.rows
        elif row.kind is not None:
            kinds[row.kind] = row.rows
    return {
        "compared": sum(row.rows for row in by if row.left_out is None),
        "compared_windows": windows[0] if windows else 0,
        "left_out": left_out,
        "differences": sum(kinds.values()),
        "differences_by_kind": kinds,
    }
