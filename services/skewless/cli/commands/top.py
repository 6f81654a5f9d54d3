"""Implements `skewless top`: shows the load of the workers, the hot keys and the stages of a pipeline live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from skewless.cli.options import Duration, load_settings, pipeline_file
from skewless.errors import ConfigurationError, SkewlessError, UnreachableError

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.operations.status import PipelineStatus

RECENT_S = 300.0
"""Period in which late tuples, late records of a join and dead letters are counted."""
WEB_PORT = 8765
SHOWN_RESULTS = 10
"""Latest results on the page."""


@click.command()
@pipeline_file
@click.option(
    "--interval", type=Duration(), default="2s", show_default=True, metavar="TIME", help="Time between two updates."
)
@click.option(
    "--web",
    "web_port",
    type=click.IntRange(0, 65_535),
    is_flag=False,
    flag_value=WEB_PORT,
    metavar="[PORT]",
    help=f"Show it in a browser, with the latest results: serve a page on this port, {WEB_PORT} without a number. "
    "0 is any free port.",
)
@click.option(
    "--web-address",
    metavar="ADDRESS",
    help="Address of the page. Default: 127.0.0.1, this machine only. For other addresses the URL has a token.",
)
def top(file: Path | None, interval: float, web_port: int | None, web_address: str | None) -> None:
    """Show the load of each worker, the hot keys and the stages of a pipeline, until you press q.

    Needs only the topics and consumer groups. The load is that of the newest tick. Without a terminal it prints a line
    per update, until Ctrl-C. While the pipeline has finished, it prints only changes.

    \b
    Examples:
      skewless top -f pipeline.yaml
      skewless top -f pipeline.yaml --web
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    _ = settings.aggregated  # an error if the pipeline only joins
    if web_address is not None and web_port is None:
        raise ConfigurationError("--web-address: only with --web, add it")
    from skewless.operations.status import status

    def read() -> PipelineStatus:
        return status(settings, time.time_ns() // 1_000_000, recent_s=RECENT_S, max_lag_s=None)

    first = read()  # errors of the first request end the command before it takes over the screen
    if web_port is not None:
        _serve(settings, first, read, interval, web_port, web_address)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_lines(first, read, interval)
    from skewless.cli.top_view import TopApp

    app = TopApp(first, read, interval)
    app.run()
    click.get_current_context().exit(app.return_code or 0)


def _serve(  # noqa: PLR0913, PLR0917 - what the command has read, and its options
    settings: PipelineSettings,
    report: PipelineStatus,
    read: Callable[[], PipelineStatus],
    interval: float,
    port: int,
    address: str | None,
) -> NoReturn:
    """Serve the page until Ctrl-C. The pipeline is read only while a browser shows the page."""
    from skewless.cli.top_page import card
    from skewless.operations.live_page.server import LOOPBACK, LivePage, served
    from skewless.operations.results.topic import latest

    aggregates = tuple(result.name for result in settings.results)
    page = LivePage(f"skewless top: {report.pipeline}", interval)
    cards = [card(report, latest(settings, SHOWN_RESULTS), aggregates)]
    page.show(cards)
    with served(page, address=address or LOOPBACK, port=port) as url:
        click.echo(f"{report.pipeline} is shown at {url} until Ctrl-C")
        while True:
            page.wait_for_viewer()
            try:
                cards = [card(read(), latest(settings, SHOWN_RESULTS), aggregates)]
                page.show(cards)
            except SkewlessError as error:
                page.show(cards, str(error))
            time.sleep(interval)


def _print_lines(report: PipelineStatus, read: Callable[[], PipelineStatus], interval: float) -> NoReturn:
    from skewless.cli.plain_text import iso
    from skewless.cli.top_view import summary

    previous = ""
    while True:
        line = summary(report)
        if line != previous or report.state != "finished":
            click.echo(f"{iso(report.time_ms)}  {line}")
        previous = line
        report = _next(read, interval)


def _next(read: Callable[[], PipelineStatus], interval: float) -> PipelineStatus:
    """Return the state after the interval. While no broker answers, print that once per interval."""
    while True:
        time.sleep(interval)
        try:
            return read()
        except UnreachableError as error:
            click.echo(f"error: {error}", err=True)
