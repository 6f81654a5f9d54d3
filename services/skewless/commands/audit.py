"""`skewless audit`: the pipeline's answer computed again, and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.commands.options import load_settings, pipeline_file, results_folder
from skewless.commands.spark_options import spark_options, started
from skewless.errors import CheckFailedError, ConfigurationError

if TYPE_CHECKING:
    from skewless.commands.audit_positions import Found
    from skewless.settings import PipelineSettings
    from skewless.transport.positions import Positions

REPORT, DIFFERENCES = "audit.json", "differences"

_EPILOG = """\b
Everything that the pipeline has read is read again by Spark. Of a pipeline that is stopped or has nothing left to do
all windows are compared, of one that runs those that are closed. Exit code 1 says that something differs.

\b
Examples:
  skewless audit -f pipeline.yaml
  skewless audit -f pipeline.yaml --since 2026-03-01T00:00:00 --out audit --json
"""


@click.command(epilog=_EPILOG)
@pipeline_file
@click.option("--since", metavar="TIME", help="Compare windows that start then or later (event time, ISO 8601).")
@click.option("--first", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Differences to show.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for audit.json, and all differences as JSON lines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@spark_options
def audit(*, file: Path | None, since: str | None, first: int, out: Path | None, as_json: bool, **spark: Any) -> None:
    """Compute a pipeline's answer again from its source, and compare it with what the pipeline wrote."""
    settings = load_settings(file)
    from skewless.commands.audit_positions import find
    from skewless.commands.spark_input import instant
    from skewless.transport.positions import Positions

    start = None if since is None else instant("--since", since)
    positions = Positions(settings.kafka)
    _check_not_empty(positions, settings)
    found = find(positions, settings)
    if start is None and (lost := list(_lost(settings, found))):
        raise ConfigurationError(*lost)
    if out is not None:
        results_folder(out, REPORT, [DIFFERENCES])
    with started("audit", spark) as running:
        from skewless.spark import audit as job

        written = job.read(running, settings, found.spans, found.closed_to)
        with job.compared(written, settings, since=start, first=first) as comparison:
            report = _report(settings, found, comparison.facts)
            if out is not None:
                (out / REPORT).write_text(json.dumps(report, indent=2) + "\n")
                comparison.differences.write.mode("overwrite").json(str(out / DIFFERENCES))
    click.echo(json.dumps(report) if as_json else _text(report))
    if report["differences"]:
        raise CheckFailedError(f"the answer of pipeline {settings.name} differs in {report['differences']:,} places")
    if not report["compared"]:
        raise CheckFailedError(f"nothing to compare: no window of pipeline {settings.name} is closed yet")


def _check_not_empty(positions: Positions, settings: PipelineSettings) -> None:
    """Raise CheckFailedError where the pipeline has run and there was nothing to read."""
    topics = [settings.topic("source"), settings.topic("aggregates")]
    empty = all(positions.begin(topic) == positions.end(topic) for topic in topics)
    if empty and positions.has_run(settings):
        raise CheckFailedError(f"nothing to compare: topics {' and '.join(topics)} are empty")


_NEEDED = {
    "source": "what was before cannot be counted again",
    "aggregates": "results that were before cannot be compared",
    "dead-letters": "which records and parts the pipeline had refused before is not known any more",
}


def _lost(settings: PipelineSettings, found: Found) -> Iterator[str]:
    """Say of which topics the beginning is gone, and what that means."""
    for topic, partitions in found.lost.items():
        for at, first in partitions.items():
            begins = f"partition {at} of {settings.topic(topic)} begins at offset {first}"
            yield f"{begins}: {_NEEDED[topic]}, so compare later windows only with --since TIME"


def _report(settings: PipelineSettings, found: Found, facts: dict[str, Any]) -> dict[str, Any]:
    offsets = {topic: {str(at): span for at, span in spans.items()} for topic, spans in found.spans.items()}
    return {"pipeline": settings.name, "settled": found.settled, "offsets": offsets, **facts}


def _text(report: dict[str, Any]) -> str:
    lines = [f"{report['records']:,} records, {report['tuples']:,} tuples, {report['late']:,} late"]
    lines += [f"  {count:,} dead letters: {reason}" for reason, count in report["dead_letters_by_reason"].items()]
    lines.append(f"compared {report['compared']:,} results of {report['compared_windows']:,} windows")
    lines += [f"  left out {count:,}: {reason}" for reason, count in report["left_out"].items()]
    lines += [f"{count:,} {kind}" for kind, count in report["differences_by_kind"].items()] or ["no differences"]
    for row in report["first_differences"]:
        lines.append(f"  {row['kind']}: expected {row['expected'] or 'nothing'}, found {row['found'] or 'nothing'}")
    if not report["settled"] and report["differences"]:
        lines.append("the pipeline was running: a partition that woke up may show here; stop it and audit again")
    return "\n".join(lines)
