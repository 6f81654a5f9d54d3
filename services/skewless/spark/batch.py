"""What `skewless batch` does: the pipeline's answer on history, written as a table, as JSON, or into a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.storagelevel import StorageLevel

from skewless.errors import CheckFailedError, ConfigurationError
from skewless.settings import PipelineSettings
from skewless.spark import kafka, pipeline
from skewless.spark.pipeline import Answer

PACKAGES = {
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
}
"""What brings formats that Spark has not by itself."""
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
NOT_INSTALLED = ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException", ".DefaultSource")


@dataclass(frozen=True, slots=True)
class Folder:
    """Results as a table in a folder, any that Spark can write to."""

    path: str
    format: str = "parquet"
    overwrite: bool = False

    def check(self, spark: SparkSession) -> None:
        """Raise ConfigurationError where the format is not installed, or the folder is there: before computing."""
        reason = _refusal(spark, "text", self.path)
        lacking = _refusal(spark, self.format, self.path) if self.format in PACKAGES else ""
        if any(mark in lacking for mark in NOT_INSTALLED):
            raise ConfigurationError(
                f"--format: {self.format} is not installed: add --package {PACKAGES[self.format]}; with any --package, "
                f"reading a topic needs --package {CONNECTOR} too"
            )
        if self.overwrite or "PATH_NOT_FOUND" in reason:
            return
        raise ConfigurationError(
            f"--out: {self.path}: {reason.splitlines()[0]}"
            if reason
            else f"--out: {self.path} exists: name another folder, or replace it with --overwrite"
        )

    def write(self, rows: DataFrame) -> dict[str, Any]:
        """Write the results, and tell their sizes."""
        seen = Observation()
        writer = rows.observe(seen, *_sizes()).drop("partition").write
        writer.mode("overwrite" if self.overwrite else "errorifexists").format(self.format).save(self.path)
        return dict(seen.get)


def _sizes() -> tuple[Column, ...]:
    """Return what the report says of the results; a column can only be made where Spark runs."""
    return (
        F.count("*").alias("results"),
        F.min("window_start").alias("first_window"),
        F.max("window_start").alias("last_window"),
    )


def _refusal(spark: SparkSession, kind: str, path: str) -> str:
    """Say why Spark cannot read this; nothing if it can."""
    try:
        spark.read.format(kind).load(path)
    except Exception as error:  # noqa: BLE001 - of Spark, of Java, of the format: all say the same
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Topic:
    """Results as records like those of `aggregates`, each at least once; a key goes to the partition it has there."""

    name: str
    client: Mapping[str, str]
    settings: PipelineSettings

    def check(self, spark: SparkSession) -> None:
        """Find nothing wrong: a topic may hold records already."""

    def write(self, rows: DataFrame) -> dict[str, Any]:
        """Write the results, and tell their sizes; Spark's sink sets no timestamps, these are the times of writing."""
        held = rows.persist(StorageLevel.DISK_ONLY)  # and not observed: Spark's sink of Kafka tells no observer
        self._send(held)
        sizes = held.agg(*_sizes()).collect()[0]
        held.unpersist()
        return dict(sizes.asDict())

    def _send(self, rows: DataFrame) -> None:
        key = F.concat_ws("/", rows["window_start"].cast("string"), rows["key"])
        records = rows.select(
            key.cast("binary").alias("key"), pipeline.as_json(rows, self.settings).alias("value"), "partition"
        )
        kafka.write(records, self.client, self.name)


def run(
    records: DataFrame, settings: PipelineSettings, target: Folder | Topic, *, now: int, partitions: int | None = None
) -> dict[str, Any]:
    """Compute the answer of records (see `source`), write it, and report on it.

    `now`: ms of the clock that tells times too far ahead; `partitions`: of the topic that is written to.
    Raises CheckFailedError when there is nothing in the records that the pipeline can read; nothing is written then.
    """
    target.check(records.sparkSession)
    found = pipeline.answer(records, pipeline.reading(settings, now))
    try:
        _check_readable(found)
        return counts(found) | target.write(pipeline.results(found, settings, partitions))
    finally:
        found.close()


def _check_readable(found: Answer) -> None:
    if found.tuples or found.late:
        return
    reasons = "".join(f"\n  {count:,} dead letters: {reason}" for reason, count in found.bad.items())
    if reasons:
        raise CheckFailedError(f"none of {found.records:,} records can be read: check splitter{reasons}")
    raise CheckFailedError(f"there are no tuples in the {found.records:,} records that were read")


def counts(found: Answer) -> dict[str, Any]:
    """Tell what was read."""
    return {
        "records": found.records,
        "tuples": found.tuples,
        "late": found.late,
        "dead_letters": sum(found.bad.values()),
        "dead_letters_by_reason": dict(found.bad),
    }
