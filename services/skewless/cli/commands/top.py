"""Implements `skewless top`: shows the load of the workers, the hot keys and the stages of a pipeline live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from skewless.cli.options import Duration, load_settings, pipeline_file
from skewless.errors import UnreachableError

if TYPE_CHECKING:
    from skewless.operations.status import PipelineStatus

RECENT_S = 300.0
"""Period in which late tuples and dead letters are counted."""


@click.command()
@pipeline_file
@click.option(
    "--interval", type=Duration(), default="2s", show_default=True, metavar="TIME", help="Time between two updates."
)
def top(file: Path | None, interval: float) -> None:
    """Show the load of each worker, the hot keys and the stages of a pipeline, until you press q.

    Needs only the topics and consumer groups. The load is that of the newest tick. Without a terminal it prints a line
    per update, until Ctrl-C. While the pipeline has finished, it prints only changes.

    \b
    Example:
      skewless top -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    _ = settings.aggregated  # an error if the pipeline only joins
    from skewless.operations.status import status

    def read() -> PipelineStatus:
        return status(settings, time.time_ns() // 1_000_000, recent_s=RECENT_S, max_lag_s=None)

    first = read()  # errors of the first request end the command before it takes over the screen
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_lines(first, read, interval)
    from skewless.cli.top_view import TopApp

    app = TopApp(first, read, interval)
    app.run()
    click.get_current_context().exit(app.return_code or 0)


def _print_lines(report: PipelineStatus, read: Callable[[], PipelineStatus], interval: float) -> NoReturn:
    from skewless.cli.plain_text import iso
    from skewless.cli.top_view import summary

    previous = ""
    while True:
        line = summary(report)
        if line != previous or report.state != "finished":
            click.echo(f"{iso(report.time_ms)}  {line}")
        previous = line
        time.sleep(interval)
        try:
            report = read()
        except UnreachableError as error:
            click.echo(f"error: {error}", err=True)
