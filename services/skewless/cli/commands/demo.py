"""Implements `skewless demo`: runs Kafka and all stages on this machine, with real data."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skewless.cli.interrupts import TERMINATED, handled
from skewless.cli.options import is_given
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from skewless.lab.demo.console import DemoConsole


@click.command()
@click.option(
    "--input",
    "inputs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File to count instead of Python's standard library; its data set is detected. May be given repeatedly.",
)
@click.option(
    "--grouping",
    "groupings",
    multiple=True,
    help="Grouping to compare. Default: key, partial_key and even. The last one counts the data set.",
)
@click.option("--workers", type=click.IntRange(1, 1024), default=10, show_default=True, help="Number of workers.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    default="skewless-demo.html",
    show_default=True,
    help="File for the report of the evaluation with Spark.",
)
@click.option(
    "--database",
    type=click.Path(path_type=Path, dir_okay=False),
    default="skewless-demo.db",
    metavar="FILE",
    show_default=True,
    help="File of SQLite for the counts, which only another demo replaces. The pipeline's file FILE.yaml is written "
    "next to it.",
)
@click.option("--no-report", is_flag=True, help="Skip the evaluation with Spark and its report.")
@click.option(
    "--prometheus",
    is_flag=True,
    help="Run the Prometheus on PATH. On a terminal it runs until you press Enter.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with the broker's data, the pipeline files and the logs.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object; the rest goes to stderr.")
def demo(  # noqa: PLR0913 - click passes an argument per option
    *,
    inputs: tuple[Path, ...],
    groupings: tuple[str, ...],
    workers: int,
    report: Path,
    database: Path,
    no_report: bool,
    prometheus: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Compare groupings on a live stream with real Kafka, then count words, and check and query the counts.

    In the live stream, 80 % of the tuples have one key, and a worker takes 10 ms per tuple. Without --input the words
    of Python's standard library are counted. A page shows the loads live in a browser: the demo prints its address. All
    processes are stopped at the end, and only the report and the table of counts are kept.

    \b
    Examples:
      skewless demo
      skewless demo --prometheus
      skewless demo --input ticks.jsonl.zst --grouping key --grouping shuffle --workers 20
    """  # noqa: D301 - \b is click's marker for unwrapped text
    from rich.console import Console

    from skewless.lab.demo.console import DemoConsole
    from skewless.lab.demo.demo_plan import make_plan
    from skewless.lab.demo.demo_run import Demo
    from skewless.lab.local.prometheus import find

    if no_report and is_given("report"):
        raise ConfigurationError("--report: not with --no-report, leave one out")
    plan = make_plan(
        inputs, groupings, workers, None if no_report else report, prometheus=prometheus, database=database
    )
    if prometheus:
        find()
    screen = DemoConsole(Console(stderr=as_json))
    # SIGTERM runs the clean-up, as Ctrl-C does.
    with handled(signal.SIGTERM, lambda *_: sys.exit(TERMINATED)), _folder(screen, keep=keep) as folder:
        _set_environment(folder)
        demonstration = Demo(plan, screen, folder)
        exact = demonstration.run()
        demonstration.report()
    if as_json:
        click.echo(json.dumps(demonstration.to_json()))
    sys.exit(0 if exact else 1)


def _set_environment(folder: Path) -> None:
    """Set the environment of the stages: no settings of the user's pipelines, and temporary files in `folder`."""
    from skewless.config.loader import PREFIX
    from skewless.lab.local.java import QUICK_START

    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    os.environ["TMPDIR"] = str(folder)
    # A Spark job as short as this one would spend half of its time on compiling code that it hardly runs.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_START))


@contextlib.contextmanager
def _folder(screen: DemoConsole, *, keep: bool) -> Iterator[Path]:
    """Create a folder for all files of the demo, and remove it at the end, also after an error or a signal."""
    from skewless.lab.local import child_process

    folder = Path(tempfile.mkdtemp(prefix="skewless-demo-"))
    if not keep:
        with child_process.temporary_folder(folder):
            yield folder
        return
    try:
        yield folder
    finally:
        screen.print_line(f"Kept: {folder}; `skewless broker start --data {folder / 'broker'}` serves its topics")
