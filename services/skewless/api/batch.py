"""Results of recorded data as a DataFrame of Spark, in the session of the user."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.jars import ensure
from skewless.operations.offset_range import START, source_ranges
from skewless.spark import batch_pipeline, kafka_options, kafka_source


class Batch:
    """Results of recorded data, and numbers of records. Close it, or use it in a `with` block: Spark caches parts."""

    def __init__(self, answer: batch_pipeline.BatchResult, rows: DataFrame) -> None:
        self._answer = answer
        self.rows = rows
        """One row per window and key: the fields of topic `aggregates` except `revision`, and the key's `partition`."""

    @property
    def records(self) -> int:
        """Number of records that were read."""
        return self._answer.records

    @property
    def tuples(self) -> int:
        """Number of tuples that are in results."""
        return self._answer.tuples

    @property
    def late(self) -> int:
        """Number of late tuples."""
        return self._answer.late

    @property
    def invalid(self) -> Mapping[str, int]:
        """Number of invalid records by reason."""
        return self._answer.invalid

    def close(self) -> None:
        """Remove what Spark has cached."""
        self._answer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def batch(spark: SparkSession, settings: PipelineSettings, paths: Sequence[str | Path]) -> Batch:
    """Compute the results of the files, or of the source topics from where the pipeline started, if there are none."""
    if paths:
        records = kafka_source.of_files(spark, [_uri(path) for path in paths], settings)
    else:
        ranges = source_ranges(OffsetReader(settings.kafka), settings, START, "latest")
        read = kafka_options.read(spark, settings.kafka, ranges, headers=settings.splitter.reads_headers)
        records = kafka_source.of_source(read, settings)
    answer = batch_pipeline.answer(records, batch_pipeline.read_plan(settings, now=round(time.time() * 1000)))
    return Batch(answer, batch_pipeline.results(answer, settings))


def _uri(path: str | Path) -> str:
    """Return a path as Spark reads it, which may run in another folder."""
    return path if isinstance(path, str) and "://" in path else Path(path).resolve().as_uri()


def spark_jars() -> str:
    """Return the locked jars of Spark's Kafka connector for `spark.jars`. Downloads missing ones."""
    return ",".join(map(str, ensure("spark")))
