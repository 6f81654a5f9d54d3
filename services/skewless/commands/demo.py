"""`skewless demo`: everything on this machine, with real data."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from skewless.demo.screen import Screen

TERMINATED = 128 + signal.SIGTERM


@click.command()
@click.option(
    "--input",
    "inputs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File to count instead of Python's standard library; what it holds is recognized. May be given repeatedly.",
)
@click.option("--grouping", "groupings", multiple=True, help="Grouping to show. Default: key, partial_key and even.")
@click.option("--workers", type=click.IntRange(1, 1024), default=10, show_default=True, help="Workers to spread over.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    default="skewless-demo.html",
    show_default=True,
    help="File for the report of Spark's evaluation.",
)
@click.option("--no-report", is_flag=True, help="Do without Spark and its report.")
@click.option(
    "--prometheus",
    is_flag=True,
    help="Let Prometheus watch: the one on PATH, else Debian's is fetched. On a terminal it stays until Enter.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with the broker's data, the pipeline files and the logs.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object; all else goes to stderr.")
def demo(  # noqa: PLR0913 - click passes an argument per option
    *,
    inputs: tuple[Path, ...],
    groupings: tuple[str, ...],
    workers: int,
    report: Path,
    no_report: bool,
    prometheus: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Count words on this machine by real Kafka and a process per stage, once per grouping; compare and check.

    Without --input the words are those of Python's own standard library. Nothing is left running, and
    nothing is left lying about but the report.

    \b
    Examples:
      skewless demo
      skewless demo --prometheus
      skewless demo --input ticks.jsonl.zst --grouping key --grouping shuffle --workers 20
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    from rich.console import Console

    from skewless.demo.plan import make_plan
    from skewless.demo.run import Demo
    from skewless.demo.screen import Screen
    from skewless.local.prometheus import find

    plan = make_plan(inputs, groupings, workers, None if no_report else report, prometheus=prometheus)
    if prometheus:
        find("prometheus")
    screen = Screen(Console(stderr=as_json))
    with _terminable(), _folder(screen, keep=keep) as folder:
        _set_environment(folder)
        shown = Demo(plan, screen, folder)
        exact = shown.run()
        shown.report()
    if as_json:
        click.echo(json.dumps(shown.facts()))
    sys.exit(0 if exact else 1)


def _set_environment(folder: Path) -> None:
    """Prepare what the stages inherit: no settings of the user's own pipelines, and temporary files in our folder."""
    from skewless.config import PREFIX

    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    os.environ["TMPDIR"] = str(folder)
    # Half of what so short a Spark job takes would go into optimized machine code that it hardly uses.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@contextlib.contextmanager
def _folder(screen: Screen, *, keep: bool) -> Iterator[Path]:
    """Make a folder for everything, and remove it at the end, however we end."""
    from skewless.local import process

    folder = Path(tempfile.mkdtemp(prefix="skewless-demo-"))
    if not keep:
        with process.removed_afterwards(folder):
            yield folder
        return
    try:
        yield folder
    finally:
        screen.say(f"Kept: {folder}; `skewless broker start --data {folder / 'broker'}` has the topics")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end us in good order, as Ctrl-C does."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
