"""Implements `skewless inspect`: shows the keys, skew, sizes and times of a topic's records."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from skewless.cli.options import (
    Duration,
    bootstrap_servers_option,
    connections_of,
    no_progress,
    optional_pipeline_file,
    registry_option,
    topic_of,
    writing,
)
from skewless.errors import CheckFailedError, ConfigurationError
from skewless.spark.report import require_packages

DEFAULT_RECORDS = 1_000_000

_EPILOG = """\b
Measures of --fail-if: max_share, max_over_avg (of the partitions), key_max_over_avg (8 workers, grouping key),
zipf_exponent, cardinality, invalid_share, null_value_share, null_key_share, max_disorder_s, p99_bytes, max_bytes,
records_per_s.

\b
Examples:
  skewless inspect clicks
  skewless inspect clicks -b kafka:9092 --since 1h --key user.id --html clicks.html
  skewless inspect clicks --registry https://registry:8081
  skewless inspect clicks --json --fail-if 'max_share > 0.05' --fail-if 'max_over_avg > 1.5'
"""


@click.command("inspect", epilog=_EPILOG)
@click.argument("topic")
@bootstrap_servers_option("those of the pipeline with -f, else ")
@registry_option
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=DEFAULT_RECORDS,
    show_default=True,
    help="Number of records to read: the newest ones.",
)
@click.option("--since", type=Duration(), metavar="TIME", help="Read the records of this time, such as 1h, instead.")
@click.option(
    "--key", metavar="PATH", help="Field to use as key: a JSON path, the number of a column (from 0), or 'record key'."
)
@click.option("--json", "as_json", is_flag=True, help="Print all measures as one JSON object.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a report with charts."
)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if the condition is met, such as 'max_share > 0.05'; repeatable.",
)
@optional_pipeline_file
@no_progress
def inspect(  # noqa: PLR0913 - click passes an argument per option
    *,
    topic: str,
    bootstrap_servers: str | None,
    records: int,
    since: float | None,
    key: str | None,
    as_json: bool,
    html: Path | None,
    conditions: tuple[str, ...],
    file: Path | None,
) -> None:
    """Measure a topic: its format, hottest keys, skew, sizes and times, and the load balance of four groupings.

    Reads the newest records without a consumer group and writes nothing to Kafka. The file of -f is used only for its
    sections `kafka` and `registry`, with the security settings.
    """
    from skewless.lab.inspection.conditions import condition, measures_of
    from skewless.lab.inspection.read_topic import inspect_topic, sample_range
    from skewless.lab.progress import report_progress

    checks = [condition(text) for text in conditions]
    if html is not None:
        _require_writable(html)
    name = topic_of("TOPIC", topic)
    kafka, registry = connections_of(file, bootstrap_servers)
    sample = sample_range(kafka, name, records, since, time.time_ns() // 1_000_000)
    with report_progress("reading", sample.records, time.monotonic()) as progress:
        report = inspect_topic(kafka, name, sample, key, registry=registry, on_progress=progress)
    measures = measures_of(report)
    failures = [failure for check in checks if (failure := check(measures))]
    if html is not None:
        _write_page(html, report)
    if as_json:
        click.echo(json.dumps({**report, "measures": measures, "failures": failures}))
    else:
        from skewless.cli.inspect_view import show

        show(report)
    if failures:
        raise CheckFailedError("; ".join(failures))


def _require_writable(html: Path) -> None:
    require_packages()
    with writing("--html", html):
        if not html.absolute().parent.is_dir():
            raise ConfigurationError(f"--html: {html}: cannot be written: the folder does not exist")


def _write_page(html: Path, report: dict[str, Any]) -> None:
    from skewless.spark.report.inspection_report import report as page

    with writing("--html", html):
        html.write_text(page(report), encoding="utf-8")
