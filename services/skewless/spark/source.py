"""Records for the batch, from Kafka or from files: `origin`, `block`, `offset`, `timestamp` (ms), `value`.

An origin is what the stream calls a source partition: what is late in it depends on its own records alone, in the order
of (block, offset). Every task gets parts of origins in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings

ERRORS = "__skewless.errors."
"""Prefix of the headers of dead letters."""


def of_topic(records: DataFrame) -> DataFrame:
    """Take what Kafka's source of Spark gives; the origin is the partition."""
    return records.select(
        F.col("partition").alias("origin"),
        F.lit(0).cast("long").alias("block"),
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "value",
    )


def of_files(spark: SparkSession, paths: Sequence[str], settings: PipelineSettings) -> DataFrame:
    """Read files with a record per line, plain or compressed as Spark can; each file is an origin.

    Raises ConfigurationError where there are none, or when the pipeline takes its times from Kafka.
    """
    if settings.splitter.time.field is None:
        raise ConfigurationError("splitter.time.field: lines of files have no Kafka timestamp, so a field must have it")
    try:
        lines = spark.read.option("lineSep", "\n").option("recursiveFileLookup", "true").text(list(paths))
    except AnalysisException as error:
        raise ConfigurationError(f"--input: {str(error).splitlines()[0]}") from None
    return lines.select(
        F.col("_metadata.file_path").alias("origin"),
        F.col("_metadata.file_block_start").alias("block"),
        F.lit(0).cast("long").alias("offset"),
        F.lit(-1).cast("long").alias("timestamp"),
        F.col("value").cast("binary").alias("value"),
    )


def without(records: DataFrame, refused: DataFrame) -> DataFrame:
    """Mark records that the stream refused (`origin`, `offset`): a column `refused`. The order is kept."""
    marked = F.broadcast(refused.select("origin", "offset", F.lit(True).alias("known")))
    joined = records.join(marked, ["origin", "offset"], "left")
    return joined.select(*records.columns, F.col("known").isNotNull().alias("refused"))


def dead_letters(records: DataFrame, reason: str) -> DataFrame:
    """Find the dead letters of a reason: `topic`, `origin`, `offset` of what was refused, and its `value`."""
    headers = F.map_from_entries("headers")
    facts = records.where(F.col("headers").isNotNull()).select(headers.alias("headers"), "value")
    named = {name: F.col("headers")[ERRORS + name].cast("string") for name in ("topic", "partition", "offset")}
    return facts.where(F.col("headers")[f"{ERRORS}reason"].cast("string") == reason).select(
        named["topic"].alias("topic"),
        named["partition"].cast("int").alias("origin"),
        named["offset"].cast("long").alias("offset"),
        "value",
    )
