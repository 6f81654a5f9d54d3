"""Implements `skewless status`: shows the state of a pipeline from its topics and consumer groups."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from skewless.cli.options import Duration, FiniteFloat, load_settings, pipeline_file
from skewless.cli.plain_text import counted
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError, UnreachableError

if TYPE_CHECKING:
    from skewless.operations.status import PipelineStatus

INTERVAL_S = 2.0


@click.command()
@pipeline_file
@click.option("--watch", is_flag=True, help="Repeat every 2 seconds until Ctrl-C.")
@click.option(
    "--wait",
    type=Duration(),
    metavar="TIME",
    help="Wait at most this long until each stage has a process, all of them are ready, and there are no problems.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, or one per line with --watch.")
@click.option(
    "--recent",
    type=Duration(),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="Period in which late tuples, late records of a join and dead letters are counted.",
)
@click.option(
    "--max-late-share",
    type=FiniteFloat(0, 1),
    default=0.001,
    show_default=True,
    metavar="SHARE",
    help="Share of the tuples of this period that may be late without a warning.",
)
@click.option(
    "--max-lag",
    type=Duration(),
    metavar="TIME",
    help="Age of an unprocessed record, by its Kafka timestamp, above which it is a problem. Results"
    " that the sink or the mirror has not read do not count.  [default: none]",
)
def status(  # noqa: PLR0913 - the options of the command
    file: Path | None,
    *,
    watch: bool,
    wait: float | None,
    as_json: bool,
    recent: float,
    max_late_share: float,
    max_lag: float | None,
) -> None:
    """Show each stage of a pipeline with its processes, lag and watermark, the load of the workers, and problems.

    Needs only the topics and consumer groups, so it works wherever the stages run. Values are those of the last commit.
    Processes whose metrics ports can be reached also report why they are not ready.
    Exits with 1 if there are problems: a stage without a process, deleted records, a missing topic, a lag above
    --max-lag, only invalid records. Also exits with 1 if there are warnings: too many of the recent tuples are late, or
    more than 1 % of the recent records are invalid. With --wait, warnings do not matter, but a process that is not
    ready does.

    \b
    Examples:
      skewless status -f pipeline.yaml
      skewless status -f pipeline.yaml --watch
      skewless status -f pipeline.yaml --wait 3m
      skewless status -f pipeline.yaml --max-lag 5m --json
    """  # noqa: D301 - \b is click's marker for unwrapped text
    if watch and wait is not None:
        raise ConfigurationError("--wait ends and --watch does not: use one of them")
    settings = load_settings(file)
    from skewless.cli.status_text import text as status_text
    from skewless.operations.status import status as status_of

    def read() -> PipelineStatus:
        now_ms = time.time_ns() // 1_000_000
        return status_of(settings, now_ms, recent_s=recent, max_lag_s=max_lag, max_late_share=max_late_share)

    text = _json if as_json else status_text
    if watch:
        _watch(read, text, on_terminal=sys.stdout.isatty() and not as_json)
    report = read() if wait is None else _wait(read, wait)
    click.echo(text(report))
    found = ((report.problems, "problem"), (() if wait else report.warnings, "warning"))
    if counts := [counted(len(lines), noun) for lines, noun in found if lines]:
        raise CheckFailedError(f"pipeline {settings.name}: {', '.join(counts)}")
    if wait is not None and not report.is_ready:
        raise CheckFailedError(f"pipeline {settings.name}: not all processes are ready")


def _wait(read: Callable[[], PipelineStatus], limit_s: float) -> PipelineStatus:
    """Return the first state in which the pipeline is ready, else the last one before the limit.

    Until then, errors of the broker may be due to topics that do not exist yet. Raises the last one.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            report = read()
        except (BrokerError, UnreachableError):
            if time.monotonic() >= deadline:
                raise
        else:
            if report.is_ready or time.monotonic() >= deadline:
                return report
        time.sleep(INTERVAL_S)


def _watch(read: Callable[[], PipelineStatus], text: Callable[[PipelineStatus], str], *, on_terminal: bool) -> NoReturn:
    """Print the state again and again: in place on a terminal. Waits while no broker answers."""
    while True:
        try:
            shown = text(read())
        except UnreachableError as error:
            click.echo(f"error: {error}", err=True)
        else:
            if on_terminal:
                click.clear()
            click.echo(shown)
        time.sleep(INTERVAL_S)


def _json(report: PipelineStatus) -> str:
    from skewless.operations.status import as_json

    return json.dumps(as_json(report))
