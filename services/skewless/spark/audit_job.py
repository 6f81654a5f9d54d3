"""The job of `skewless audit`: recomputes a pipeline's results from its source and compares them with its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import result_reader
from skewless.errors import BadRecordError
from skewless.spark import batch_pipeline, kafka_options, kafka_source
from skewless.spark.batch_job import counts
from skewless.spark.batch_pipeline import BatchResult
from skewless.spark.kafka_options import TopicRanges
from skewless.wire.aggregates import ToJson
from skewless.wire.columns import read_table
from skewless.wire.dead_letters import WINDOW_EXPIRED

NOT_CLOSED = "windows that are not closed yet"
TOO_OLD = "windows before --since"
REFUSED = "windows that had expired before some of their tuples came (these are in dead-letters)"
MISSING, UNEXPECTED, DIFFERENT, DUPLICATE = "missing", "unexpected", "different", "duplicate"


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """Input and output of a pipeline, as rows of Spark's Kafka source, and the windows that are complete."""

    records: DataFrame
    """Records of the source topics, up to the splitter's committed offsets."""
    aggregates: DataFrame
    """Records of the topic with their results as JSON."""
    dead_letters: DataFrame | None
    """Dead letters with headers; None if the pipeline has none."""
    closed_until: Mapping[int, int]
    """By partition of `aggregates`: windows that end at or before this time are complete; MAX_WATERMARK: all."""
    ranks: DataFrame | None = None
    """Records of topic `top`; None if keys are not ranked."""
    ranks_closed_until: Mapping[int, int] = field(default_factory=dict)
    """As `closed_until`, of topic `top`."""


def read(  # noqa: PLR0913 - by name
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    source_ranges: TopicRanges,
    offset_ranges: TopicRanges,
    closed_until: Mapping[int, int],
    ranks_closed_until: Mapping[int, int],
) -> PipelineOutput:
    """Read input and output of a pipeline.

    `source_ranges` is what to read by source topic and partition, `offset_ranges` by topic of the topology. The others
    are as of `PipelineOutput`.
    """
    records = kafka_options.read(spark, settings.kafka, source_ranges, headers=settings.splitter.reads_headers)
    written = {
        topic: kafka_options.read(
            spark, settings.kafka, {settings.topic(topic): ranges}, headers=topic == "dead-letters"
        )
        for topic, ranges in offset_ranges.items()
    }
    aggregates = results_as_json(written["aggregates"], settings)
    has_dead_letters = any(first < end for first, end in offset_ranges["dead-letters"].values())
    # They are read several times. Spark caches them until the session ends.
    dead_letters = written["dead-letters"].persist(StorageLevel.DISK_ONLY) if has_dead_letters else None
    return PipelineOutput(records, aggregates, dead_letters, closed_until, written.get("top"), ranks_closed_until)


def results_as_json(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return records of `aggregates` with the JSON of their results. Those that are no results have an empty value."""
    return (
        records if settings.aggregator.format == "json" else values_as_json(records, partial(result_reader, settings))
    )


def values_as_json(records: DataFrame, reader: Callable[[], ToJson]) -> DataFrame:
    """Return key, JSON value, partition and offset of records. Those that are no results have an empty value.

    `reader` is called by each task.
    """

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        to_json = reader()

        def converted(value: bytes | None) -> bytes | None:
            try:
                return None if value is None else to_json(value)
            except BadRecordError:
                return b""

        for batch in batches:
            values = list(map(converted, batch["value"].to_pylist()))
            position = batch.schema.names.index("value")
            yield batch.set_column(position, "value", pa.array(values, batch.schema.field("value").type))

    columns = records.select("key", "value", "partition", "offset")
    return columns.mapInArrow(convert, columns.schema)


def answer_of(output: PipelineOutput, settings: PipelineSettings) -> BatchResult:
    """Return the answer with which the output of a pipeline is compared. Close it after use."""
    records = _with_refused(output.records, output.dead_letters, settings)
    return batch_pipeline.answer(records, batch_pipeline.read_plan(settings, None))


def compare(  # noqa: PLR0913 - by name
    output: PipelineOutput,
    answer: BatchResult,
    settings: PipelineSettings,
    *,
    since: int | None = None,
    first: int = 20,
    out: str | None = None,
    ranks_out: str | None = None,
) -> dict[str, Any]:
    """Compare the results per window and key; `since` (ms): leave out windows that start earlier.

    Returns the report without the offsets of the records, with the `first` differences. All differences are written to
    the folder `out`, those of the ranks to `ranks_out`. Results that cannot be compared are counted under `left_out`,
    by reason.
    """
    expected, names = batch_pipeline.results(answer, settings), list(batch_pipeline.fields(settings))
    sides = {"expected": names, "found": [*names, "revision"]}
    joined = _joined(expected, _latest(output.aggregates, settings), settings)
    joined = joined.withColumn("left_out", _left_out(output.closed_until, since))
    joined = _with_expired_left_out(joined, output.dead_letters, settings)
    report = counts(answer) | summary(joined.withColumn("kind", _kind(names)), first, out, **sides)
    if output.ranks is not None:
        ranks = _compared_ranks(output, output.ranks, expected, settings, since)
        report["ranks"] = summary(ranks, first, ranks_out, **sides)
    return report


def _compared_ranks(
    output: PipelineOutput, records: DataFrame, results: DataFrame, settings: PipelineSettings, since: int | None
) -> DataFrame:
    """Compare the records of topic `top` with the ranks of the results. `key` is the rank."""
    expected = batch_pipeline.with_ranks(results, settings).where("rank is not null").withColumn("partition", F.lit(0))
    joined = _joined(expected, _latest(records, settings), settings, "rank")
    joined = joined.withColumn("left_out", _left_out(output.ranks_closed_until, since))
    # A window of which the aggregator refused partials is left out as a whole: the keys may have other ranks.
    joined = _with_expired_left_out(joined, output.dead_letters, settings, ["window_start"])
    return joined.withColumn("kind", _kind(batch_pipeline.fields(settings)))


def _with_refused(records: DataFrame, dead_letters: DataFrame | None, settings: PipelineSettings) -> DataFrame:
    """Return the input of the batch, with the reasons of records that may be valid when they are read again."""
    source = kafka_source.of_source(records, settings)
    if dead_letters is None:
        return source
    # These decisions depend on the wall clock and the registry. They cannot be recomputed, so the dead letters of the
    # live run are used.
    return kafka_source.with_refused(source, kafka_source.refused_of_source(dead_letters, settings))


def _latest(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return the last record of each Kafka key, and the number of its records. Keys with a tombstone are left out."""
    newest = batch_pipeline.newest_results(records, settings, F.count("*").alias("records"))
    return newest.where("value is not null").drop("value").withColumnRenamed("result", "found")


def _joined(expected: DataFrame, latest: DataFrame, settings: PipelineSettings, name: str = "key") -> DataFrame:
    """Join expected and found results by Kafka key. The partition is that of the key, if the result is expected.

    `name` is the column that follows the window in the Kafka key.
    """
    expected_by_record_key = expected.select(
        batch_pipeline.record_key(name),
        F.col("partition").alias("key_partition"),
        F.struct(*batch_pipeline.fields(settings)).alias("expected"),
    )
    joined = expected_by_record_key.join(latest, "record_key", "full_outer")
    return joined.select(
        *batch_pipeline.of_record_key(),
        F.coalesce("key_partition", "partition").alias("partition"),
        "expected",
        "found",
        "records",
    )


def _left_out(closed_until: Mapping[int, int], since: int | None) -> Column:
    """Return the reason why a row cannot be compared, or null if it can."""
    return F.when(is_too_old(since), TOO_OLD).when(is_open(closed_until, F.col("partition")), NOT_CLOSED)


def is_too_old(since: int | None) -> Column:
    """Return whether the window of a row starts before `since` (ms)."""
    return F.lit(False) if since is None else F.col("window_start") < since


def is_open(closed_until: Mapping[int, int], partition: Column) -> Column:
    """Return whether the window of a row is not complete. `closed_until`: as of `PipelineOutput`."""
    limit = by_partition(closed_until, partition)
    end = F.coalesce("expected.window_end", "found.window_end")
    return limit.isNull() | ((limit < MAX_WATERMARK) & (end > limit))


def by_partition(values: Mapping[int, int], partition: Column) -> Column:
    """Return the value of a partition, null if it has none."""
    items = [F.lit(item) for pair in values.items() for item in pair]
    return F.create_map(*items)[partition] if items else F.lit(None).cast("bigint")


def _with_expired_left_out(
    rows: DataFrame,
    dead_letters: DataFrame | None,
    settings: PipelineSettings,
    columns: Sequence[str] = ("window_start", "key"),
) -> DataFrame:
    """Leave out the (window, key) pairs of partials that the aggregator refused because the window had expired."""
    if dead_letters is None:
        return rows
    # The dead letter of such partials has them as value, an Arrow table. It names the window if windows overlap.
    assigner = settings.aggregator.windows

    def windows_and_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch["value"].to_pylist():
                table = read_table(value)
                named = table["window"].combine_chunks() if "window" in table.column_names else None
                windows = pa.array(assigner.slices(table["pane"].to_numpy())) if named is None else named
                yield pa.record_batch([windows, table["key"].combine_chunks()], ["span", "key"])

    refused = kafka_source.dead_letters(dead_letters, [WINDOW_EXPIRED])
    refused = refused.where(F.col("topic") == settings.topic("partials")).select("value")
    expired = refused.mapInArrow(windows_and_keys, "span bigint, key string")
    span = F.col("window_start")
    if isinstance(assigner, SessionWindows):  # any session of the span could have had them
        span -= F.pmod(span, F.lit(assigner.max_ms))
    named = ["span" if column == "window_start" else column for column in columns]
    expired = expired.select(*named).distinct()
    joined = rows.withColumn("span", span).join(expired.withColumn("refused", F.lit(True)), named, "left")
    reason = F.coalesce("left_out", F.when(F.col("refused"), REFUSED))
    return joined.withColumn("left_out", reason).drop("refused", "span")


def _kind(names: Iterable[str]) -> Column:
    """Return the kind of difference of a row, or null if it has none."""
    return (
        F.when(F.col("found").isNull(), MISSING)
        .when(F.col("expected").isNull(), UNEXPECTED)
        .when(~are_equal(names), DIFFERENT)
        .when(F.col("records") > F.col("found.revision") + 1, DUPLICATE)
    )


def are_equal(names: Iterable[str]) -> Column:
    """Return whether both sides of a row have the same fields. NaN equals NaN, and null equals null."""
    return reduce(Column.__and__, (F.col(f"expected.{name}").eqNullSafe(F.col(f"found.{name}")) for name in names))


def summary(rows: DataFrame, first: int, out: str | None, **sides: Sequence[str]) -> dict[str, Any]:
    """Return the counts of compared results, of those left out and of differences, and the `first` differences.

    `rows` have `window_start`, `key`, `left_out`, `kind`, and both sides. All differences are written to the folder
    `out`, as JSON lines, with the named fields of each side as JSON, null if it is missing.
    """
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        differences = _differences(rows, sides)
        if out is not None:
            differences.write.mode("overwrite").json(out)
        return _counted(rows, differences, first)
    finally:
        rows.unpersist()


def _differences(rows: DataFrame, sides: Mapping[str, Sequence[str]]) -> DataFrame:
    texts = [
        F.when(
            F.col(side).isNotNull(), F.to_json(F.struct(*(F.col(f"{side}.{name}").alias(name) for name in names)))
        ).alias(side)
        for side, names in sides.items()
    ]
    return rows.where("left_out is null and kind is not null").select("kind", "window_start", "key", *texts)


def _counted(rows: DataFrame, differences: DataFrame, first: int) -> dict[str, Any]:
    groups = rows.groupBy("left_out", "kind").agg(F.count("*").alias("rows")).collect()
    windows = rows.where("left_out is null").agg(F.count_distinct("window_start")).first()
    left_out: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for row in groups:
        if row.left_out is not None:
            left_out[row.left_out] = left_out.get(row.left_out, 0) + row.rows
        elif row.kind is not None:
            kinds[row.kind] = row.rows
    return {
        "compared": sum(row.rows for row in groups if row.left_out is None),
        "compared_windows": windows[0] if windows else 0,
        "left_out": left_out,
        "differences": sum(kinds.values()),
        "differences_by_kind": kinds,
        "first_differences": (
            [row.asDict() for row in differences.orderBy("window_start", "key").limit(first).collect()] if kinds else []
        ),
    }
