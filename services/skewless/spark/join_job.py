"""The jobs of a join: `skewless batch` computes its records, `skewless audit` compares them with the written ones."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import pair_reader
from skewless.errors import CheckFailedError
from skewless.parsing.validation import NOT_FINAL
from skewless.spark import join_pipeline, kafka_options, kafka_source
from skewless.spark.audit_job import DUPLICATE, MISSING, UNEXPECTED, values_as_json
from skewless.spark.batch_job import Folder
from skewless.spark.join_pipeline import JoinAnswer, JoinPlan
from skewless.spark.kafka_options import TopicRanges

OUTPUTS = ("joined", "unmatched-left", "unmatched-right", "join-late")
MERGED_TOPICS = {side: f"{side.value}-records" for side in Side}
"""Topics of a join that repartitions, besides `OUTPUTS`. Their records are compared, too."""
RECORD = ("topic", "partition", "key", "value")
"""Columns that identify a record which a join writes."""
WATERMARK_OF_LATE = r',"watermark":-?\d+(,"partition":\d+,"offset":\d+\})$'
"""The end of a record of `join-late`. The user's record comes before, so its text is never changed."""
IDLE = "late records of idle partitions (join.idle_timeout_s depends on the clock)"


def _plan(settings: PipelineSettings, ranges: TopicRanges) -> JoinPlan:
    return join_pipeline.plan_of(settings, {side: len(ranges[side.value]) for side in Side})


def read_sides(spark: SparkSession, settings: PipelineSettings, ranges: TopicRanges) -> DataFrame:
    """Read the records of both topics, for `join_pipeline.answer`."""
    left, right = (
        join_pipeline.of_topic(
            _read(spark, settings, ranges, side.value, headers=rules.parsing.reads_headers), side, rules
        )
        for side, rules in _plan(settings, ranges).sides.items()
    )
    return left.unionByName(right, allowMissingColumns=True)


def _read(
    spark: SparkSession,
    settings: PipelineSettings,
    ranges: TopicRanges,
    topic: str,
    *,
    headers: bool = False,
) -> DataFrame:
    """Read a topic of the topology, by which `ranges` are named."""
    return kafka_options.read(spark, settings.kafka, {settings.topic(topic): ranges[topic]}, headers=headers)


def run(
    records: DataFrame, settings: PipelineSettings, ranges: TopicRanges, target: Folder, *, now: int
) -> dict[str, Any]:
    """Join the records of these ranges, write the results, and return the report. `now` is the wall clock in ms."""
    target.check(records)
    newest = now + settings.event_time_rules().max_ahead_ms
    answer = join_pipeline.answer(records, _plan(settings, ranges), newest)
    rows = answer.rows.drop("decided").persist(StorageLevel.DISK_ONLY)
    try:
        report = _counts(answer)
        if not report["records"]:
            raise CheckFailedError("the topics have no records in this range: nothing to join")
        counts = rows.groupBy("topic").agg(F.count("*").alias("rows")).collect()
        by_topic = {row.topic: row["rows"] for row in counts}
        target.save(rows)
        return report | {"results": sum(by_topic.values()), "results_by_topic": dict(sorted(by_topic.items()))}
    finally:
        rows.unpersist()
        answer.close()


def _counts(answer: JoinAnswer) -> dict[str, Any]:
    return {
        "records": sum(answer.records.values()),
        "records_by_side": {side.value: count for side, count in answer.records.items()},
        "dead_letters": sum(answer.invalid.values()),
        "dead_letters_by_reason": dict(answer.invalid),
    }


def compare(
    spark: SparkSession,
    settings: PipelineSettings,
    ranges: TopicRanges,
    *,
    first: int = 20,
    out: str | None = None,
) -> dict[str, Any]:
    """Compare what a join has written with what its topics contain, record for record, and return the report.

    The report has the `first` differences. All are written to the folder `out`, as JSON lines. A record that waits at
    the end of the topics may have been written as unmatched, by a bounded run. Records that are late only because their
    partition was idle are left out: that decision depends on the clock.
    """
    plan = _plan(settings, ranges)
    letters = _read(spark, settings, ranges, "dead-letters", headers=True)
    merged = None if plan.merged is None else _merged(spark, settings, ranges)
    found = _found(spark, settings, ranges)
    if merged is not None:
        found = found.unionByName(join_pipeline.written_records(merged).drop("timestamp"))
    found = found.persist(StorageLevel.DISK_ONLY)
    records = _with_refused(read_sides(spark, settings, ranges), letters)
    late = _late(found) if settings.joined.idle_timeout_s is not None else None
    answer = join_pipeline.answer(records, plan, MAX_WATERMARK, late=late, merged=merged)
    answered, written = answer.rows, found
    if late is not None:  # the watermark that a late record is compared with may be that of the other topic
        answered, written = _without_watermarks(answered), _without_watermarks(written)
    expected = answered.groupBy(*RECORD).agg(
        F.count(F.when(F.col("decided"), 1)).alias("expected"), F.count("*").alias("allowed")
    )
    rows = expected.join(written.groupBy(*RECORD).agg(F.count("*").alias("found")), list(RECORD), "full_outer")
    left_out = F.lit(late is not None) & (F.col("topic") == "join-late") & (F.col("kind") == UNEXPECTED)
    compared = rows.fillna(0, ["expected", "allowed", "found"]).withColumn("kind", _kind())
    compared = compared.withColumn("left_out", left_out.eqNullSafe(other=True)).persist(StorageLevel.DISK_ONLY)
    try:
        differences = compared.where("kind is not null and not left_out").drop("left_out", "allowed")
        kinds = {row.kind: row["rows"] for row in differences.groupBy("kind").agg(F.count("*").alias("rows")).collect()}
        sums = compared.groupBy("topic", "left_out").agg(F.sum("found").alias("found")).collect()
        first_rows = differences.orderBy(*RECORD).limit(first).collect()
        if out is not None:
            differences.write.mode("overwrite").json(out)
        skipped = sum(row.found for row in sums if row.left_out)
        return _counts(answer) | {
            "compared": sum(row.found for row in sums if not row.left_out) + kinds.get(MISSING, 0),
            "compared_by_topic": {row.topic: row.found for row in sorted(sums) if not row.left_out},
            "left_out": {IDLE: skipped} if skipped else {},
            "differences": sum(kinds.values()),
            "differences_by_kind": kinds,
            "first_differences": [row.asDict() for row in first_rows],
        }
    finally:
        compared.unpersist()
        found.unpersist()
        answer.close()


def _found(spark: SparkSession, settings: PipelineSettings, ranges: TopicRanges) -> DataFrame:
    """Return the records that the join has written, with `RECORD`."""
    columns = ("partition", F.col("key").cast("string").alias("key"), F.col("value").cast("string").alias("value"))
    return reduce(
        DataFrame.unionByName,
        (
            _as_json(_read(spark, settings, ranges, topic), settings, topic).select(
                F.lit(topic).alias("topic"), *columns
            )
            for topic in OUTPUTS
        ),
    )


def _as_json(records: DataFrame, settings: PipelineSettings, topic: str) -> DataFrame:
    has_schema = topic == "joined" and settings.joined.format != "json"
    return values_as_json(records, partial(pair_reader, settings)) if has_schema else records


def _merged(spark: SparkSession, settings: PipelineSettings, ranges: TopicRanges) -> DataFrame:
    """Return the records of left-records and right-records."""
    left, right = (
        join_pipeline.merged_records(_read(spark, settings, ranges, topic), side)
        for side, topic in MERGED_TOPICS.items()
    )
    return left.unionByName(right)


def _late(found: DataFrame) -> DataFrame:
    """Return `side`, `partition` and `offset` of the records that the join has written to `join-late`."""
    late = F.from_json("value", "side string, partition int, offset bigint")
    return found.where(F.col("topic") == "join-late").select(late.alias("late")).select("late.*")


def _without_watermarks(records: DataFrame) -> DataFrame:
    """Remove the watermarks from the records of `join-late`."""
    value = F.regexp_replace("value", WATERMARK_OF_LATE, "$1")
    return records.withColumn("value", F.when(F.col("topic") == "join-late", value).otherwise(F.col("value")))


def _with_refused(records: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Add the column `refused`: the reason for which the join has refused the record, or null.

    Null for records that are invalid whenever they are read.
    """
    # The other decisions depend on the wall clock and the registry, so the dead letters of the live run are used.
    refused = kafka_source.dead_letters(dead_letters, NOT_FINAL).select(
        F.split("reason", ": ")[0].alias("side"),
        F.col("source_partition").alias("partition"),
        "offset",
        "reason",
    )
    return kafka_source.with_refused(records, refused, ("side", "partition", "offset"))


def _kind() -> Column:
    """Return the kind of difference of a row, or null if it has none."""
    return (
        F.when(F.col("found") < F.col("expected"), MISSING)
        .when((F.col("found") > F.col("allowed")) & (F.col("allowed") > 0), DUPLICATE)
        .when(F.col("found") > F.col("allowed"), UNEXPECTED)
    )
