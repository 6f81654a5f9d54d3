"""Implements `skewless batch`: computes a pipeline's results from recorded data with Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli import join_spark
from skewless.cli.join_spark import JOIN_OPTION
from skewless.cli.options import is_given, load_settings, pipeline_file, topic_of
from skewless.cli.plain_text import input_lines
from skewless.cli.spark_options import spark_options
from skewless.errors import CheckFailedError, ConfigurationError
from skewless.spark.job_runner import check_start, spark_running

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.kafka.consumer.offsets import OffsetRanges
    from skewless.spark.batch_job import Folder

_EPILOG = """\b
Without --input the committed records of the pipeline's source topic are read. WHERE is source.start (the offsets at
which the pipeline started, or would start), earliest, latest, committed (the offsets that the pipeline's splitter has
committed), a time such as 2026-03-01T00:00:00 (of the records' Kafka timestamps), or offsets by partition such as
'{"0": 1000}'. Partitions that are not named are read completely.

\b
Examples:
  skewless batch -f pipeline.yaml --out history
  skewless batch -f pipeline.yaml --ending-offsets committed --format json --out history
  skewless batch -f pipeline.yaml --input 'archive/*.gz' --output-topic shop.aggregates
  skewless batch -f pipeline.yaml --join --out pairs
"""

_SPARK_OPTIONS_BY_FORMAT = {
    "delta": (
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
}


@click.command(epilog=_EPILOG)
@pipeline_file
@click.option(
    "--input", "inputs", multiple=True, metavar="PATH", help="File with one record per line, or folder; repeatable."
)
@click.option(
    "--starting-offsets", "start", metavar="WHERE", help="First record of the topic to read.  [default: source.start]"
)
@click.option("--ending-offsets", "end", metavar="WHERE", help="End of the records to read.  [default: latest]")
@click.option("--out", metavar="DIR", help="Folder to write the results into; any path that Spark can write to.")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["parquet", "json", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format of --out.",
)
@click.option("--overwrite", is_flag=True, help="Replace the contents of --out.")
@click.option("--output-topic", metavar="TOPIC", help="Write the results into a topic, in the format of `aggregates`.")
@JOIN_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@spark_options
def batch(  # noqa: PLR0913 - click passes an argument per option
    *,
    file: Path | None,
    inputs: tuple[str, ...],
    start: str | None,
    end: str | None,
    out: str | None,
    table_format: str,
    overwrite: bool,
    output_topic: str | None,
    of_join: bool,
    as_json: bool,
    **spark: Any,
) -> None:
    """Compute a pipeline's results from the records of a topic or from files. They equal the results of the stream.

    Of a join, the results are the records of its topics, in columns `topic`, `partition`, `key`, `value` and
    `timestamp`. The end of both topics is the end of time.

    Refuses to write into the topic `aggregates` of the pipeline while its processes run.
    """
    from skewless import topology
    from skewless.operations.offset_range import START, check
    from skewless.operations.reset import wait_until_stopped

    settings = load_settings(file)
    if (out is None) == (output_topic is None):
        raise ConfigurationError("give the target of the results: either --out DIR or --output-topic TOPIC")
    if output_topic and overwrite:
        raise ConfigurationError("--overwrite: applies only to --out; records are always appended to a topic")
    if output_topic and is_given("table_format"):
        raise ConfigurationError("--format: applies only to --out; records have the format of `aggregates`")
    if inputs and (start or end):
        raise ConfigurationError(
            "--starting-offsets and --ending-offsets apply only to a topic: files are read completely"
        )
    if output_topic:
        _check_output_topic(settings, output_topic)
    check("--starting-offsets", start or START)
    check("--ending-offsets", end or "latest")
    check_start(spark)
    if join_spark.is_wanted(settings, of_join=of_join):
        folder = _folder_of_join(out, table_format, inputs, (start, end), overwrite=overwrite)
        spark = with_format(table_format, spark)
        report = join_spark.batch(settings, start or "earliest", end or "latest", folder, spark)
        click.echo(json.dumps(report) if as_json else join_spark.batch_text(report))
        return
    if output_topic == settings.topic("aggregates"):
        # Otherwise the result of an open window would follow a newer one of the stream, and count as the newest.
        wait_until_stopped(settings, lambda line: click.echo(line, err=True), topology.QUERIED_STAGES)
    from skewless.kafka.consumer.offsets import OffsetReader
    from skewless.spark import kafka_source
    from skewless.spark.batch_job import Folder, Topic, run

    ranges = {} if inputs else _source_ranges(settings, start or START, end or "latest")
    target = (
        Topic(output_topic, len(OffsetReader(settings.kafka).begin(output_topic)))
        if output_topic
        else Folder(out or "", table_format, overwrite=overwrite)
    )
    with spark_running("batch", with_format(table_format, spark)) as session:
        records = (
            kafka_source.of_files(session, inputs, settings)
            if inputs
            else kafka_source.of_ranges(session, ranges, settings)
        )
        report = run(records, settings, target, now=round(time.time() * 1000))
    source = {"files": inputs} if inputs else _read_topics(settings, ranges)
    report = {"pipeline": settings.name, "source": source, "written_to": out or output_topic, **report}
    click.echo(json.dumps(report) if as_json else _text(report))


def _check_output_topic(settings: PipelineSettings, name: str) -> None:
    """Raise ConfigurationError for a topic that the pipeline reads, or whose records are no results."""
    topic_of("--output-topic", name)
    if settings.aggregator.format != "json":
        raise ConfigurationError(
            f"--output-topic: only the aggregator writes results in the format {settings.aggregator.format}; write "
            "a folder with --out"
        )
    results, pattern = settings.topic("aggregates"), settings.source_pattern
    is_read = name in settings.user_topics.values() or (pattern is not None and pattern.matches(name))
    if is_read or (name in settings.own_topics and name != results):
        raise ConfigurationError(
            f"--output-topic: pipeline {settings.name} reads or writes {name}; name {results} or another topic"
        )


def _folder_of_join(
    out: str | None, table_format: str, inputs: tuple[str, ...], where: tuple[str | None, ...], *, overwrite: bool
) -> Folder:
    """Return the target of a join. Raises ConfigurationError for options that apply to results per key only."""
    from skewless.spark.batch_job import Folder

    if inputs:
        raise ConfigurationError("--input: not with a join, which needs the keys and partitions of topics")
    if out is None:
        raise ConfigurationError("--output-topic: not with a join, whose results belong to several topics: give --out")
    if "source.start" in where:
        raise ConfigurationError("--starting-offsets: source.start is not where a join starts: give earliest or a time")
    if any(each and each.lstrip().startswith("{") for each in where):
        raise ConfigurationError(
            "--starting-offsets and --ending-offsets: offsets by partition are not possible with a join, which reads "
            "two topics: give a time"
        )
    return Folder(out, table_format, overwrite=overwrite)


def with_format(table_format: str, spark: Mapping[str, Any]) -> dict[str, Any]:
    """Return `spark` with the Spark options that a table format needs, if its package is among `packages`.

    Options of the user come last and so take precedence.
    """
    is_package = any(table_format in package for package in spark["packages"])
    required = _SPARK_OPTIONS_BY_FORMAT.get(table_format, ()) if is_package else ()
    return {**spark, "conf": (*required, *spark["conf"])}


def _source_ranges(settings: PipelineSettings, start: str, end: str) -> dict[str, OffsetRanges]:
    from skewless.kafka.consumer.offsets import OffsetReader
    from skewless.operations.offset_range import source_ranges

    ranges = source_ranges(OffsetReader(settings.kafka), settings, start, end)
    if all(first == last for of_topic in ranges.values() for first, last in of_topic.values()):
        raise CheckFailedError(f"topic {', '.join(ranges)} has no records in this range: nothing to compute")
    return ranges


def _read_topics(settings: PipelineSettings, ranges: Mapping[str, OffsetRanges]) -> dict[str, Any]:
    """Return what was read, for the report."""
    from skewless.operations.offset_range import by_partition

    only = settings.aggregated.topic
    topics: dict[str, Any] = {"topics": list(ranges)} if only is None else {"topic": only}
    return {**topics, "offsets": by_partition(settings, ranges)}


def _text(report: dict[str, Any]) -> str:
    return "\n".join([*input_lines(report), f"{report['results']:,} results in {report['written_to']}"])
