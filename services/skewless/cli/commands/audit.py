"""Implements `skewless audit`: recomputes a pipeline's results from its source and compares them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli import join_spark
from skewless.cli.join_spark import JOIN_OPTION
from skewless.cli.options import load_settings, pipeline_file, prepare_output_folder
from skewless.cli.plain_text import input_lines
from skewless.cli.spark_options import spark_options
from skewless.errors import CheckFailedError, ConfigurationError
from skewless.operations.result_table import opened_table
from skewless.spark.job_runner import check_start, spark_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skewless.cli.audit_scope import AuditScope
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.kafka.consumer.offsets import OffsetReader

REPORT, DIFFERENCES, TABLE_DIFFERENCES = "audit.json", "differences", "table-differences"
RANK_DIFFERENCES = "rank-differences"

_EPILOG = """\b
Spark reads all records again that the pipeline has read. For a stopped or idle pipeline all windows are compared;
for a running one only the closed windows. The table of `sink` is compared, too. Exit code 1 means that results differ.

\b
Examples:
  skewless audit -f pipeline.yaml
  skewless audit -f pipeline.yaml --since 2026-03-01T00:00:00 --out audit --json
  skewless audit -f pipeline.yaml --since 2d
  skewless audit -f pipeline.yaml --join
"""


@click.command(epilog=_EPILOG)
@pipeline_file
@click.option(
    "--since",
    metavar="TIME",
    help="Compare only windows that start at or after TIME (event time, ISO 8601), or in the last TIME such as 2d.",
)
@click.option(
    "--limit", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Number of differences to print."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for audit.json and for all differences as JSON lines.",
)
@JOIN_OPTION
@click.option(
    "--no-table", is_flag=True, help="Do not compare the table of `sink`, for example where its file is not accessible."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@spark_options
def audit(  # noqa: PLR0913 - click passes an argument per option
    *,
    file: Path | None,
    since: str | None,
    limit: int,
    out: Path | None,
    of_join: bool,
    no_table: bool,
    as_json: bool,
    **spark: Any,
) -> None:
    """Recompute a pipeline's results from its source, and compare them with the results that the pipeline wrote."""
    settings = load_settings(file)
    if join_spark.is_wanted(settings, of_join=of_join):
        if since is not None:
            raise ConfigurationError("--since: not with a join, all records of which are compared")
        _audit_join(settings, limit, out, spark, as_json=as_json)
        return
    from skewless.cli.audit_scope import find
    from skewless.kafka.consumer.offsets import OffsetReader
    from skewless.operations.data_quality import cause_without_tuples

    start = None if since is None else _first_start(since)
    offset_reader = OffsetReader(settings.kafka)
    _check_not_empty(offset_reader, settings)
    scope = find(offset_reader, settings)
    if start is None and (problems := list(_truncation_problems(scope))):
        raise ConfigurationError(*problems)
    of_table = settings.sink is not None and not no_table
    if of_table:
        with opened_table(settings):
            pass  # an error comes before Spark starts
    if out is not None:
        prepare_output_folder(out, [REPORT], [DIFFERENCES, TABLE_DIFFERENCES, RANK_DIFFERENCES])
    with spark_running("audit", spark) as session:
        report = _compare(session, settings, offset_reader, scope, of_table=of_table, since=start, first=limit, out=out)
    click.echo(json.dumps(report) if as_json else _text(report))
    if problems := list(_problems(settings, report)):
        raise CheckFailedError("\n".join(problems))
    if not report["compared"]:
        if report["filtered"] and not report["tuples"] + report["late"]:
            cause = f"none of {report['records']:,} records has a tuple, because of {cause_without_tuples(settings)}"
            raise CheckFailedError(f"nothing to compare: {cause}")
        beginning = "" if since is None else f" that begins at or after --since {since}"
        raise CheckFailedError(f"nothing to compare: no window of pipeline {settings.name}{beginning} is closed yet")


def _first_start(since: str) -> int:
    """Return the first start of a window to compare, in ms."""
    from skewless.times import FORM, parse_duration, parse_instant

    duration_s = parse_duration(since)
    if duration_s is None:
        return parse_instant("--since", since, f"a time in ISO 8601, or {FORM}")
    return round((time.time() - duration_s) * 1000)


def _compare(  # noqa: PLR0913 - the parts of an audit, by name
    session: SparkSession,
    settings: PipelineSettings,
    offset_reader: OffsetReader,
    scope: AuditScope,
    *,
    of_table: bool,
    since: int | None,
    first: int,
    out: Path | None,
) -> dict[str, Any]:
    """Compare topic and table, write the differences to the folder `out`, and return the report.

    The table is compared with topic `aggregates` or, with `mode: merge`, with the batch answer.
    """
    from skewless.cli.audit_scope import complete_in_table
    from skewless.spark import audit_job, kafka_options, table_audit
    from skewless.spark.batch_job import local_uri

    names = (DIFFERENCES, RANK_DIFFERENCES, TABLE_DIFFERENCES)
    of_results, of_ranks, of_rows = (None if out is None else local_uri(out / name) for name in names)
    written = audit_job.read(
        session,
        settings,
        source_ranges=scope.source_ranges,
        offset_ranges=scope.offset_ranges,
        closed_until=scope.closed_until,
        ranks_closed_until=scope.ranks_closed_until,
    )
    with contextlib.closing(audit_job.answer_of(written, settings)) as answer:
        found = audit_job.compare(
            written, answer, settings, since=since, first=first, out=of_results, ranks_out=of_ranks
        )
        report = _report(settings, scope, found)
        if of_table:
            report["table"] = {"name": settings.sink_table().name}
            with table_audit.read(session, settings, since) as table:
                if settings.table_settings.mode == "merge":
                    complete = complete_in_table(offset_reader, settings, scope, table.offsets, table.watermarks)
                    report["table"] |= table_audit.compare_with_answer(
                        table, answer, settings, complete_until=complete, since=since, first=first, out=of_rows
                    )
                else:
                    # After the table, so that the topic has all that the table has.
                    name = settings.topic("aggregates")
                    ranges = {name: offset_reader.ranges(name)}
                    topic = kafka_options.read(session, settings.kafka, ranges, headers=False)
                    results = audit_job.results_as_json(topic, settings)
                    report["table"] |= table_audit.compare_with_topic(
                        table, results, settings, since=since, first=first, out=of_rows
                    )
    if out is not None:
        (out / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    return report


def _audit_join(
    settings: PipelineSettings, limit: int, out: Path | None, spark: dict[str, Any], *, as_json: bool
) -> None:
    check_start(spark)
    if out is not None:
        prepare_output_folder(out, [REPORT], [DIFFERENCES])
    report = join_spark.audit(settings, limit, out, spark)
    click.echo(json.dumps(report) if as_json else join_spark.audit_text(report))
    if report["differences"]:
        raise CheckFailedError(f"the join of pipeline {settings.name} differs in {report['differences']:,} places")
    if not report["compared"]:
        raise CheckFailedError(f"nothing to compare: the join of pipeline {settings.name} has decided no record yet")


def _check_not_empty(offset_reader: OffsetReader, settings: PipelineSettings) -> None:
    """Raise CheckFailedError if the pipeline has run, but its source and its results are empty."""
    from skewless import topology
    from skewless.config import topic_plan

    source_topics = topic_plan.source_topics(settings)
    topics = [*source_topics, settings.topic("aggregates")]
    empty = all(offset_reader.begin(topic) == offset_reader.end(topic) for topic in topics)
    if empty and any(offset_reader.committed(settings.group(topology.SOURCE_STAGE), topic) for topic in source_topics):
        raise CheckFailedError(f"nothing to compare: topics {' and '.join(topics)} are empty")


_CONSEQUENCES = {
    "source": "earlier records cannot be counted again",
    "aggregates": "earlier results cannot be compared",
    "top": "earlier ranks cannot be compared",
    "dead-letters": "the records and partials that the pipeline rejected earlier are unknown",
}
"""What a missing beginning of a topic means for the audit."""


def _truncation_problems(scope: AuditScope) -> Iterator[str]:
    """Yield a problem for each partition whose first records are deleted."""
    for kind, topic, partition, first_offset in scope.truncated:
        begins = f"partition {partition} of {topic} begins at offset {first_offset}"
        yield f"{begins}: {_CONSEQUENCES[kind]}, so compare only later windows with --since TIME"


def _problems(settings: PipelineSettings, report: dict[str, Any]) -> Iterator[str]:
    if report["differences"]:
        yield f"the results of pipeline {settings.name} differ in {report['differences']:,} places"
    if count := report.get("ranks", {}).get("differences"):
        yield f"the ranks of pipeline {settings.name} differ in {count:,} places"
    if count := report.get("table", {}).get("differences"):
        yield f"table {report['table']['name']} of pipeline {settings.name} differs in {count:,} places"


def _report(settings: PipelineSettings, scope: AuditScope, statistics: dict[str, Any]) -> dict[str, Any]:
    from skewless.operations.offset_range import by_partition

    offsets = {"source": by_partition(settings, scope.source_ranges)} | {
        topic: {str(partition): offset_range for partition, offset_range in ranges.items()}
        for topic, ranges in scope.offset_ranges.items()
    }
    return {"pipeline": settings.name, "settled": scope.settled, "offsets": offsets, **statistics}


def _text(report: dict[str, Any]) -> str:
    lines = [*input_lines(report), *_comparison_text(report, "results")]
    if "ranks" in report:
        lines += _comparison_text(report["ranks"], "ranks")
    if "table" in report:
        lines += _comparison_text(report["table"], f"rows of table {report['table']['name']}")
    if not report["settled"] and any(part["differences"] for part in _comparisons(report)):
        lines.append(
            "the pipeline was running, and a source partition that became active again can cause differences: "
            "stop the pipeline and repeat the audit"
        )
    return "\n".join(lines)


def _comparisons(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield report
    yield from (report[part] for part in ("ranks", "table") if part in report)


def _comparison_text(comparison: dict[str, Any], compared: str) -> list[str]:
    lines = [f"compared {comparison['compared']:,} {compared} of {comparison['compared_windows']:,} windows"]
    lines += [f"  left out {count:,}: {reason}" for reason, count in comparison["left_out"].items()]
    lines += [f"{count:,} {kind}" for kind, count in comparison["differences_by_kind"].items()] or ["no differences"]
    lines += [
        f"  {row['kind']}: expected {row['expected'] or 'nothing'}, found {row['found'] or 'nothing'}"
        for row in comparison["first_differences"]
    ]
    return lines
