"""Options that all Spark jobs share, and how they start Spark."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = TypeVar("Command", bound=Callable[..., Any])
LOOK_S = 0.5

_OPTIONS = (
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        help="Spark's master: local[N], spark://..., k8s://..., yarn.",
    ),
    click.option(
        "--package",
        "packages",
        multiple=True,
        metavar="MAVEN",
        help="Maven coordinates that Spark fetches; with any, also its Kafka connector has to be among them.",
    ),
    click.option(
        "--memory", metavar="SIZE", help="The driver's memory, such as 4g; on this machine that of all tasks."
    ),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A further option of Spark; repeatable."),
    click.option("--ui", is_flag=True, help="Serve Spark's web pages while the job runs."),
)


def spark_options(command: Command) -> Command:
    """Add the options to a command, which gets them as `**spark`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextlib.contextmanager
def started(job: str, given: Mapping[str, Any]) -> Iterator[SparkSession]:
    """Start Spark with the options `given` and Kafka's connector, show its tasks, and turn what fails into one line.

    Raises ConfigurationError without Java or PySpark, or when Spark refuses its options; JobFailedError or
    UnreachableError for what fails in the block.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
    except ImportError:
        raise ConfigurationError("PySpark is not installed: pip install 'skewless[spark]'") from None
    from skewless.local import jars, java, process
    from skewless.spark.session import SparkOptions, failure_of, session

    java.find()
    options = SparkOptions(
        master=given["master"],
        jars=() if given["packages"] else tuple(map(str, jars.ensure("spark"))),
        packages=given["packages"],
        memory=given["memory"],
        settings=tuple(map(_setting, given["conf"])),
        ui=given["ui"],
    )
    with contextlib.ExitStack() as stack:
        # An interrupt while Java starts leaves it without the connection whose end would end it.
        with process.ended_on_failure():
            spark = stack.enter_context(session(f"skewless {job}", options))
        stack.enter_context(_progress(spark, job))
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            # Before Java ends: the text of some errors is read from Java.
            raise failure_of(error) from None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--conf: {text!r} is not NAME=VALUE, such as spark.executor.memory=4g")
    return name, value


@contextlib.contextmanager
def _progress(spark: SparkSession, job: str) -> Iterator[None]:
    """Show the tasks of the running stages, where stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn(job), BarColumn(), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    over = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(job, total=None, told="starting")

        def look() -> None:
            while not over.wait(LOOK_S):
                done, total = _tasks(spark)
                if total:
                    progress.update(task, completed=done, total=total, told=f"{done} of {total} tasks")

        watcher = threading.Thread(target=look, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _tasks(spark: SparkSession) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
