"""`skewless batch`: the pipeline on history, by Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.commands.options import load_settings, pipeline_file, topic_of
from skewless.commands.spark_options import spark_options, started
from skewless.errors import CheckFailedError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skewless.settings import PipelineSettings
    from skewless.spark.batch import Folder, Topic

_EPILOG = """\b
Without --input the records of the pipeline's source topic are read, committed ones only. WHERE is earliest, latest,
committed (where the pipeline's splitter is), a time such as 2026-03-01T00:00:00 (of Kafka), or offsets by partition
such as '{"0": 1000}'; partitions that are not named are read from their beginning, to their end.

\b
Examples:
  skewless batch -f pipeline.yaml --out history
  skewless batch -f pipeline.yaml --until committed --format json --out history
  skewless batch -f pipeline.yaml --input 'archive/*.gz' --to-topic shop.aggregates
"""

_NEEDED_BY = {
    "delta": (
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
}


@click.command(epilog=_EPILOG)
@pipeline_file
@click.option(
    "--input", "inputs", multiple=True, metavar="PATH", help="Files of lines to read, or folders; repeatable."
)
@click.option("--from", "first", metavar="WHERE", help="First record of the topic to read.  [default: earliest]")
@click.option("--until", metavar="WHERE", help="Where to stop reading.  [default: latest]")
@click.option("--out", metavar="DIR", help="Folder to write the results into; any path that Spark can write to.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "json", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format of --out.",
)
@click.option("--overwrite", is_flag=True, help="Replace what is in --out.")
@click.option("--to-topic", metavar="TOPIC", help="Write the results into a topic, as records of `aggregates`.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@spark_options
def batch(  # noqa: PLR0913 - click passes an argument per option
    *,
    file: Path | None,
    inputs: tuple[str, ...],
    first: str | None,
    until: str | None,
    out: str | None,
    kind: str,
    overwrite: bool,
    to_topic: str | None,
    as_json: bool,
    **spark: Any,
) -> None:
    """Compute a pipeline's answer on history: a topic, or files. It is the answer that the stream gives."""
    from skewless.commands.spark_input import check

    settings = load_settings(file)
    if (out is None) == (to_topic is None):
        raise ConfigurationError("say where the results go: --out DIR or --to-topic TOPIC")
    if to_topic and overwrite:
        raise ConfigurationError("--overwrite: is for --out; records are added to a topic")
    if inputs and (first or until):
        raise ConfigurationError("--from and --until are for topics: files are read as a whole")
    if to_topic:
        topic_of("--to-topic", to_topic)
    check("--from", first or "earliest")
    check("--until", until or "latest")
    where = {} if inputs else _spans(settings, first or "earliest", until or "latest")
    partitions = _partitions(settings, to_topic)
    with started("batch", with_format(kind, spark)) as running:
        from skewless.spark.batch import run

        records = _records(running, settings, inputs, where)
        target = _target(settings, out, kind, to_topic, overwrite=overwrite)
        report = run(records, settings, target, now=round(time.time() * 1000), partitions=partitions)
    offsets = {str(partition): span for partition, span in where.items()}
    source = {"files": inputs} if inputs else {"topic": settings.source.topic, "offsets": offsets}
    report = {"pipeline": settings.name, "source": source, "written_to": out or to_topic, **report}
    click.echo(json.dumps(report) if as_json else _text(report))


def with_format(kind: str, spark: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options of Spark that a format needs, where it comes as a package; those that are given win."""
    comes = any(kind in package for package in spark["packages"])
    return {**spark, "conf": (*(_NEEDED_BY.get(kind, ()) if comes else ()), *spark["conf"])}


def _spans(settings: PipelineSettings, first: str, until: str) -> dict[int, tuple[int, int]]:
    from skewless.commands.spark_input import spans
    from skewless.transport.positions import Positions

    found = spans(Positions(settings.kafka), settings, first, until)
    if all(start == end for start, end in found.values()):
        raise CheckFailedError(f"topic {settings.source.topic} has no records there: nothing to compute")
    return found


def _partitions(settings: PipelineSettings, topic: str | None) -> int | None:
    from skewless.transport.positions import Positions

    return len(Positions(settings.kafka).begin(topic)) if topic else None


def _records(
    spark: SparkSession, settings: PipelineSettings, inputs: tuple[str, ...], where: dict[int, tuple[int, int]]
) -> DataFrame:
    from skewless.spark import kafka, source

    if inputs:
        return source.of_files(spark, inputs, settings)
    return source.of_topic(
        kafka.read(spark, kafka.client_options(settings), settings.source.topic, where, headers=False)
    )


def _target(
    settings: PipelineSettings, out: str | None, kind: str, topic: str | None, *, overwrite: bool
) -> Folder | Topic:
    from skewless.spark import kafka
    from skewless.spark.batch import Folder, Topic

    if topic:
        return Topic(topic, kafka.client_options(settings), settings)
    return Folder(out or "", kind, overwrite=overwrite)


def _text(report: dict[str, Any]) -> str:
    lines = [
        f"{report['records']:,} records, {report['tuples']:,} tuples, {report['late']:,} late",
        *(f"  {count:,} dead letters: {reason}" for reason, count in report["dead_letters_by_reason"].items()),
        f"{report['results']:,} results in {report['written_to']}",
    ]
    return "\n".join(lines)
