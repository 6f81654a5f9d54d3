"""Input records of the batch, from Kafka or from files.

Columns: `source_partition`, `block`, `offset`, `timestamp` (ms) and `value`; `key` and `headers` if the splitter reads
them. In a topic a source partition is a Kafka partition; a file is one source partition. Lateness depends on the
records of one source partition alone, in the order of (block, offset). Each task gets parts of source partitions in
that order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import filterfalse
from pathlib import Path

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import NOT_FINAL
from skewless.spark import kafka_options
from skewless.spark.failures import EXCEPTION_PREFIX
from skewless.spark.kafka_options import TopicRanges

ERRORS = "__skewless.errors."
"""Prefix of the headers of dead letters."""
HIDDEN = ("_", ".")
"""Beginnings of the names of files that Spark skips."""
_CODES_OF_SPARK = re.compile(r"^\[\w+(\.\w+)*\] |\.? SQLSTATE: \w+$")
"""The parts of an error of Spark that are not its text."""


def of_topic(records: DataFrame, splitter: ParsingSettings, *, several: bool = False) -> DataFrame:
    """Convert rows of Spark's Kafka source. They need `headers` if the splitter reads headers.

    With `several` topics, a source partition is named `topic/partition`, and there is a column `partition`.
    """
    return records.select(
        (_name("topic", "partition") if several else F.col("partition")).alias("source_partition"),
        F.lit(0).cast("long").alias("block"),
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "value",
        *(["key"] if splitter.reads_record_key else []),
        *(["headers"] if splitter.reads_headers else []),
        *(["partition"] if several else []),
    )


def of_source(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Convert rows of the source topics as `of_topic` does. Partitions have names unless there is only one topic."""
    return of_topic(records, settings.splitter, several=settings.has_several_sources)


def of_ranges(spark: SparkSession, ranges: TopicRanges, settings: PipelineSettings) -> DataFrame:
    """Read these offsets of the source topics."""
    read = kafka_options.read(spark, settings.kafka, ranges, headers=settings.splitter.reads_headers)
    return of_source(read, settings)


def _name(topic: str, partition: str) -> Column:
    return F.concat_ws("/", F.col(topic), F.col(partition).cast("string"))


def refused_of_source(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return the dead letters of `NOT_FINAL` of the source topics, with source partitions as `of_source` names them."""
    letters, topic = dead_letters(records, NOT_FINAL), settings.aggregated.topic
    if topic is None:
        return letters.withColumn("source_partition", _name("topic", "source_partition"))
    return letters.where(F.col("topic") == topic)


def of_files(spark: SparkSession, paths: Sequence[str], settings: PipelineSettings) -> DataFrame:
    """Read files with one record per line, plain or in a compression that Spark supports.

    Raises ConfigurationError if a path does not exist or is that of a file that Spark skips, or if the pipeline reads
    more of a record than its value.
    """
    if problems := list(_unknown_in_files(settings.splitter)):
        raise ConfigurationError(*problems)
    reader = spark.read.option("lineSep", "\n").option("recursiveFileLookup", "true")
    try:
        lines = reader.text(list(paths))
        # Spark reads a folder with such a name.
        skipped = [path for path in paths if Path(path).name.startswith(HIDDEN) and not reader.text(path).inputFiles()]
    except (AnalysisException, IllegalArgumentException) as error:
        raise ConfigurationError(_text_of(error)) from None
    if skipped:
        names = ", ".join(path.removeprefix("file://") for path in skipped)
        raise ConfigurationError(f"{names}: Spark skips files whose names begin with _ or .; rename it")
    return lines.select(
        F.col("_metadata.file_path").alias("source_partition"),
        F.col("_metadata.file_block_start").alias("block"),
        F.lit(0).cast("long").alias("offset"),
        F.lit(-1).cast("long").alias("timestamp"),
        F.col("value").cast("binary").alias("value"),
    )


def _text_of(error: AnalysisException | IllegalArgumentException) -> str:
    """Return the text of an error of reading files, without the codes of Spark."""
    if error.getCondition() == "PATH_NOT_FOUND":
        path = (error.getMessageParameters() or {}).get("path", "")
        return f"{path.removeprefix('file:')}: no such file; check its name"
    text = _CODES_OF_SPARK.sub("", str(error).splitlines()[0])
    remedy = "; write ./ before a name with a colon" if "URISyntaxException" in text else ""
    return f"files cannot be read: {EXCEPTION_PREFIX.sub('', text)}{remedy}"


def _unknown_in_files(splitter: ParsingSettings) -> Iterator[str]:
    """Yield a line for each setting that reads something that lines of files do not have."""
    lines = "lines of files have no"
    sources = {splitter.key.from_, *(part.from_ for part in splitter.key.fields)}
    for source, name in (("record_key", "record keys"), ("partition", "partitions of a topic")):
        if source in sources:
            yield f"splitter.key: {lines} {name}, so name the field of the key"
    in_value = (lambda _: False) if splitter.envelope is None else splitter.envelope.provides
    for header in filterfalse(in_value, splitter.headers):
        yield f"splitter: {lines} headers, and the pipeline reads the header {header}"
    if splitter.time.field is None and splitter.time.header is None:
        yield f"splitter.time.field: missing; {lines} Kafka timestamp, so name the field of the event time"


def with_refused(
    records: DataFrame, refused: DataFrame, keys: Sequence[str] = ("source_partition", "offset")
) -> DataFrame:
    """Add the column `refused`: the reason for which the live run refused the record, or null.

    `refused` has `reason` and the keys of the record, and may have a record twice. The order of the records stays.
    """
    reasons = refused.select(*keys, F.col("reason").alias("refused")).dropDuplicates([*keys])
    return records.join(F.broadcast(reasons), [*keys], "left").select(*records.columns, "refused")


def dead_letters(records: DataFrame, endings: Sequence[str]) -> DataFrame:
    """Return `reason`, `topic`, `source_partition`, `offset` and `value` of records with such an end of the reason.

    Another program may have written some of the records, with any headers.
    """
    letters = records.where(F.col("headers").isNotNull()).select(
        _header("reason").alias("reason"),
        _header("topic").alias("topic"),
        _header("partition").try_cast("int").alias("source_partition"),
        _header("offset").try_cast("long").alias("offset"),
        "value",
    )
    return letters.where(reduce(Column.__or__, (F.col("reason").endswith(ending) for ending in endings)))


def _header(name: str) -> Column:
    """Return the text of the last header with a name, or null."""
    found = F.filter("headers", lambda header: header["key"] == ERRORS + name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")
