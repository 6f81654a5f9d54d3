"""Results of recorded data as a DataFrame of Spark, in the session of the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, how_to_add
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local.jars import ensure
from skewless.operations.offset_range import START, source_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, eq=False)
class Batch:
    """Results of recorded data, and numbers of records. Close it, or use it in a `with` block: Spark caches parts."""

    rows: DataFrame
    """One row per window and key: the fields of topic `aggregates` except `revision`, and the key's `partition`."""
    records: int
    """Number of records that were read."""
    tuples: int
    """Number of tuples that are in results."""
    late: int
    """Number of late tuples."""
    invalid: Mapping[str, int]
    """Number of invalid records by reason."""
    close: Callable[[], None]
    """Removes what Spark has cached."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def batch(spark: SparkSession, settings: PipelineSettings, paths: Sequence[str | Path]) -> Batch:
    """Compute the results of the files, or of the source topics from where the pipeline started, if there are none."""
    try:
        from skewless.spark import batch_pipeline, kafka_source
        from skewless.spark.batch_job import local_uri
    except ImportError as error:
        raise ConfigurationError(f"PySpark cannot be imported ({error}): {how_to_add('spark')}") from None
    if paths:
        uris = [path if isinstance(path, str) and "://" in path else local_uri(Path(path)) for path in paths]
        records = kafka_source.of_files(spark, uris, settings)
    else:
        ranges = source_ranges(OffsetReader(settings.kafka), settings, START, "latest")
        records = kafka_source.of_ranges(spark, ranges, settings)
    answer = batch_pipeline.answer(records, batch_pipeline.read_plan(settings, now=round(time.time() * 1000)))
    rows = batch_pipeline.results(answer, settings)
    return Batch(rows, answer.records, answer.tuples, answer.late, answer.invalid, answer.close)


def spark_jars() -> str:
    """Return the locked jars of Spark's Kafka connector for `spark.jars`. Downloads missing ones."""
    return ",".join(map(str, ensure("spark")))
