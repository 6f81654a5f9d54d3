"""The job of `skewless batch`: computes the results of historical records and writes a table or a topic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError, ConfigurationError
from skewless.spark import batch_pipeline, kafka_options
from skewless.spark.batch_pipeline import BatchResult
from skewless.spark.failures import CONNECTOR, cause_of
from skewless.wire.aggregates import AGGREGATE_HEADERS

PACKAGES = {
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": f"org.apache.iceberg:iceberg-spark-runtime-{'.'.join(pyspark.__version__.split('.')[:2])}_2.13:VERSION",
}
"""Maven packages of the formats that Spark does not include."""
NOT_FOUND = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")
"""Spark's codes for a folder or a table that does not exist."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Results as a table in a folder, at any path that Spark can write to."""

    path: str
    format: str = "parquet"
    overwrite: bool = False

    def check(self, records: DataFrame) -> None:
        """Raise ConfigurationError if the results cannot be written to the folder. Runs before the computation.

        The format and the library of the file system must be installed. The folder must not exist, or may be replaced
        and has none of the files with the records.
        """
        spark = records.sparkSession
        folder_error = _load_error(spark, "text", self.path)
        format_error = _load_error(spark, self.format, self.path) if self.format in PACKAGES else ""
        if "DATA_SOURCE_NOT_FOUND" in format_error:
            raise ConfigurationError(
                f"--format: {self.format} is not installed: add --packages {PACKAGES[self.format]}; with "
                f"--packages, reading a topic needs --packages {CONNECTOR} too"
            )
        # The name of an Iceberg table is not a path.
        error = format_error if self.format == "iceberg" else folder_error
        if error and not any(code in error for code in NOT_FOUND):
            raise ConfigurationError(f"--out: {self.path}: {cause_of(error)}")
        if self.overwrite:
            if not folder_error:
                self._check_has_no_input(records)
        elif not folder_error or (self.format in PACKAGES and not format_error):
            raise ConfigurationError(
                f"--out: {self.path} exists: name another folder or table, or replace it with --overwrite"
            )

    def _check_has_no_input(self, records: DataFrame) -> None:
        files = records.sparkSession.read.option("recursiveFileLookup", "true").text(self.path).inputFiles()
        if shared := sorted({*files} & {*records.inputFiles()}):
            raise ConfigurationError(
                f"--overwrite: --out {self.path} contains {shared[0]}, a file of --input, and would delete it: name "
                "another folder"
            )

    def write(self, result: BatchResult, settings: PipelineSettings) -> dict[str, Any]:
        """Write the results, and return their number and first and last window."""
        rows = batch_pipeline.results(result, settings)
        if settings.aggregator.top is not None:
            rows = batch_pipeline.with_ranks(rows, settings)
        observation = Observation()
        self.save(rows.observe(observation, *_size_columns()).drop("partition"))
        return dict(observation.get)

    def save(self, rows: DataFrame) -> None:
        """Write the rows. With `overwrite`, a table that exists gets their columns."""
        if self.overwrite and self.format == "iceberg" and "/" not in self.path:
            # The mode `overwrite` of Iceberg neither creates a table nor changes its columns.
            rows.writeTo(self.path).using("iceberg").createOrReplace()
            return
        writer = rows.write.format(self.format).mode("overwrite" if self.overwrite else "errorifexists")
        writer.option("overwriteSchema", self.overwrite).save(self.path)  # an option of Delta


def local_uri(path: Path) -> str:
    """Return a path as Spark reads it, which may run in another folder."""
    # Spark does not decode URIs, so nothing is escaped as by as_uri().
    return f"file://{path.resolve()}"


def _size_columns() -> tuple[Column, ...]:
    """Return the aggregations for the report; a function, because a Column can only be created in a Spark session."""
    return (
        F.count("*").alias("results"),
        F.min("window_start").alias("first_window"),
        F.max("window_start").alias("last_window"),
    )


def _load_error(spark: SparkSession, format_name: str, path: str) -> str:
    """Return Spark's error message for loading a path, or an empty text if it can be loaded."""
    try:
        # Otherwise Spark derives columns from the names of folders.
        spark.read.format(format_name).option("recursiveFileLookup", "true").load(path)
    except Exception as error:  # noqa: BLE001 - Spark, Java and the format raise different types
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Topic:
    """Results as records like those of `aggregates`, each at least once, in the key's partition there."""

    name: str
    partitions: int

    def write(self, result: BatchResult, settings: PipelineSettings) -> dict[str, Any]:
        """Write the results, and return their number and first and last window.

        Spark's Kafka sink sets no timestamps, so the records have the time of writing.
        """
        # Cached instead of observed: Spark's Kafka sink does not update an Observation.
        cached = batch_pipeline.records(result, settings, self.partitions).persist(StorageLevel.DISK_ONLY)
        key = batch_pipeline.record_key().cast("binary").alias("key")
        rows = cached.select(key, "value", _headers(), "partition")
        kafka_options.write(rows, settings.kafka, settings.transport.compression, self.name)
        sizes = cached.agg(*_size_columns()).collect()[0]
        cached.unpersist()
        return dict(sizes.asDict())


def _headers() -> Column:
    """Return the headers of the records, which are those of the stream."""
    pairs = (
        F.struct(F.lit(name).alias("key"), F.lit(value.decode()).cast("binary").alias("value"))
        for name, value in AGGREGATE_HEADERS
    )
    return F.array(*pairs).alias("headers")


def run(records: DataFrame, settings: PipelineSettings, target: Folder | Topic, *, now: int) -> dict[str, Any]:
    """Compute the results of records (see `kafka_source`), write them, and return the report.

    `now`: wall-clock time in ms, used to detect timestamps too far in the future. Raises ConfigurationError if the
    results cannot be written to a folder, and CheckFailedError, and writes nothing, if no record contains a tuple.
    """
    if isinstance(target, Folder):
        target.check(records)
    result = batch_pipeline.answer(records, batch_pipeline.read_plan(settings, now))
    try:
        _check_has_tuples(result)
        return counts(result) | target.write(result, settings)
    finally:
        result.close()


def _check_has_tuples(result: BatchResult) -> None:
    if result.tuples or result.late:
        return
    reasons = "".join(f"\n  {count:,} dead letters: {reason}" for reason, count in result.invalid.items())
    if reasons:
        raise CheckFailedError(f"none of {result.records:,} records can be read: check splitter{reasons}")
    raise CheckFailedError(f"the {result.records:,} records that were read contain no tuples")


def counts(result: BatchResult) -> dict[str, Any]:
    """Return the counts of the report: records, tuples, late tuples, filtered records, rounded values, dead letters."""
    return {
        "records": result.records,
        "tuples": result.tuples,
        "late": result.late,
        "filtered": result.filtered,
        "rounded": result.rounded,
        "dead_letters": sum(result.invalid.values()),
        "dead_letters_by_reason": dict(result.invalid),
    }
