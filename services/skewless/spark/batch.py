"""What `skewless batch` does: the pipeline's answer on history, written as a table, as JSON, or into a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings
from skewless.spark import kafka, pipeline
from skewless.spark.pipeline import Answer

PACKAGES = {
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
}
"""What brings formats that Spark has not by itself."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Results as a table in a folder, any that Spark can write to."""

    path: str
    format: str = "parquet"
    overwrite: bool = False

    def check(self, spark: SparkSession) -> None:
        """Raise ConfigurationError where the folder has something already: before anything is computed."""
        if self.overwrite:
            return
        try:
            spark.read.text(self.path)
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return
            raise ConfigurationError(f"--out: {self.path}: {str(error).splitlines()[0]}") from None
        raise ConfigurationError(f"--out: {self.path} exists: name another folder, or replace it with --overwrite")

    def write(self, rows: DataFrame) -> None:
        """Write the results; ConfigurationError where the format is not installed."""
        writer = rows.drop("partition").write.mode("overwrite" if self.overwrite else "errorifexists")
        try:
            writer.format(self.format).save(self.path)
        except AnalysisException as error:
            missing = error.getCondition() == "DATA_SOURCE_NOT_FOUND"
            hint = f"{self.format} is not installed: add --package {PACKAGES.get(self.format)}"
            reason = f"--format: {hint}" if missing else f"--out: {self.path}: {str(error).splitlines()[0]}"
            raise ConfigurationError(reason) from None


@dataclass(frozen=True, slots=True)
class Topic:
    """Results as records like those of `aggregates`, each at least once; a key goes to the partition it has there."""

    name: str
    client: Mapping[str, str]
    settings: PipelineSettings

    def check(self, spark: SparkSession) -> None:
        """Find nothing wrong: a topic may hold records already."""

    def write(self, rows: DataFrame) -> None:
        """Write the results; Spark's sink cannot set timestamps, these are the times of writing."""
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
    """
    target.check(records.sparkSession)
    found = pipeline.answer(records, pipeline.reading(settings, now))
    try:
        seen = Observation()
        start = F.col("window_start")
        sizes = (F.count("*").alias("results"), F.min(start).alias("first_window"), F.max(start).alias("last_window"))
        target.write(pipeline.results(found, settings, partitions).observe(seen, *sizes))
        sizes_seen: dict[str, Any] = seen.get
        return counts(found) | sizes_seen
    finally:
        found.close()


def counts(found: Answer) -> dict[str, Any]:
    """Tell what was read."""
    return {
        "records": found.records,
        "tuples": found.tuples,
        "late": found.late,
        "dead_letters": sum(found.bad.values()),
        "dead_letters_by_reason": dict(found.bad),
    }
