"""Starts Spark for a job with the options of the command line, and displays the progress of its tasks."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from skewless.errors import ConfigurationError, how_to_add
from skewless.lab.local import child_process, jars, java
from skewless.lab.progress import is_hidden
from skewless.spark.submission import check as check_submitted
from skewless.spark.submission import is_submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skewless.spark.spark_session import SparkOptions

LOCAL = "local[*]"
"""Default master: all cores of this machine."""
MAJOR_VERSION = "4"
"""Version of PySpark that the jobs support."""
REFRESH_S = 0.5
"""Interval at which the progress is refreshed."""


@contextlib.contextmanager
def spark_running(job: str, command_options: Mapping[str, Any]) -> Iterator[SparkSession]:
    """Start Spark with its Kafka connector and display its tasks during the block.

    Raises ConfigurationError if Java or PySpark is missing, or if Spark rejects its options. Spark's errors in the
    block become a JobFailedError, UnreachableError or CrashedError with a message of one line.
    """
    check_start(command_options)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from skewless.spark.failures import failure_of, failure_without_java
    from skewless.spark.gateway import end_of_java
    from skewless.spark.spark_session import session

    options = _options(command_options)
    with contextlib.ExitStack() as stack:
        # Java exits when its connection to this process ends. An interrupt during the start leaves Java without a
        # connection, so it must be terminated explicitly.
        with child_process.ended_on_failure():
            spark = stack.enter_context(session(f"skewless {job}", options))
        if options.submitted:
            context = spark.sparkContext
            where = f"master {context.master}, application {context.applicationId}"
            click.echo(f"skewless {job}: Spark {context.version}, {where}", err=True)
        stack.enter_context(_progress(spark, job))
        try:
            yield spark
        except (PySparkException, Py4JError, ConnectionRefusedError, ConnectionResetError) as error:
            # A BrokenPipeError is that of stdout: py4j has an error of its own.
            if (ended := end_of_java(error)) is not None:
                raise failure_without_java(ended) from None
            # Convert the error while Java still runs: py4j fetches the text of some errors from Java.
            raise failure_of(error, shipped=options.archive is not None) from None


def check_start(command_options: Mapping[str, Any]) -> None:
    """Raise an error if Spark cannot start, as far as that can be known without starting it.

    Raises ConfigurationError if Java or PySpark is missing or has another version, or for options that spark-submit
    must have instead, and UnreachableError if the master does not answer.
    """
    try:
        import pyspark
    except ImportError:
        raise ConfigurationError(f"PySpark is not installed: {how_to_add('spark')}") from None
    _check_version(pyspark.__version__)
    master = command_options["master"]
    _check_classic(master)
    from skewless.spark.spark_session import check_reachable, submitted_settings

    if is_submitted():
        check_submitted(command_options)
        master = submitted_settings()["spark.master"]
    else:
        java.find()
    check_reachable(master or LOCAL)


def _check_version(version: str) -> None:
    """Raise ConfigurationError for a version of PySpark that is not supported."""
    if version.partition(".")[0] != MAJOR_VERSION:
        raise ConfigurationError(
            f"PySpark {version} is installed, and Skewless needs version {MAJOR_VERSION}: {how_to_add('spark')}"
        )


def _check_classic(master: str | None) -> None:
    """Raise ConfigurationError for Spark Connect, whose clients have no access to tasks and to executors' packages."""
    address = master if master is not None and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if address:
        raise ConfigurationError(
            f"{address}: Spark Connect is not supported: name the master of the cluster, such as spark://HOST:7077, or "
            "start the command with spark-submit (docs/how-to/spark-cluster.md)"
        )


def _options(command_options: Mapping[str, Any]) -> SparkOptions:
    """Return the options of a session. Those of Java are left out if spark-submit has started Java."""
    from skewless.spark.spark_session import SparkOptions, submitted_settings

    settings = tuple(map(_setting, command_options["conf"]))
    if is_submitted():
        submitted = submitted_settings()
        options = SparkOptions(submitted["spark.master"], settings=settings, submitted=submitted)
    else:
        packages = command_options["packages"] or _connector()
        options = SparkOptions(
            master=command_options["master"] or LOCAL,
            jars=() if packages else tuple(map(str, jars.ensure("spark"))),
            packages=packages,
            memory=command_options["driver_memory"],
            settings=settings,
            ui=command_options["ui"],
        )
    return _with_archive(options) if command_options["ship"] else options


def _connector() -> tuple[str, ...]:
    """Return the connector for Kafka that Spark must download; none if PySpark works with the locked one."""
    import pyspark

    from skewless.spark.failures import CONNECTOR

    (locked,) = (jar.jar for jar in jars.locked("spark") if "spark-sql-kafka" in jar.jar)
    # The connector of an older version works, and that of a newer one does not.
    if _minor(pyspark.__version__) >= _minor(version := locked.rpartition(":")[2]):
        return ()
    click.echo(
        f"warning: Spark downloads {CONNECTOR} without a locked checksum; PySpark {version} and newer use locked jars",
        err=True,
    )
    return (CONNECTOR,)


def _minor(version: str) -> tuple[int, ...]:
    """Return the major and the minor number of a version."""
    return tuple(map(int, version.split(".")[:2]))


def _with_archive(options: SparkOptions) -> SparkOptions:
    """Return the options with the packages of the executors. Raises ConfigurationError if there are no executors."""
    from skewless.spark import executor_archive

    if options.is_local:
        raise ConfigurationError(
            f"--ship: {options.master} has no executors: name a cluster with --master, or leave it out"
        )
    return replace(options, archive=executor_archive.ensure())


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--conf: {text!r} is not NAME=VALUE, such as spark.executor.memory=4g")
    return name, value


@contextlib.contextmanager
def _progress(spark: SparkSession, job: str) -> Iterator[None]:
    """Display the tasks of the running stages, if stderr is a terminal and progress is not hidden."""
    from py4j.protocol import Py4JError
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if is_hidden() or not console.is_terminal:
        yield
        return
    columns = (TextColumn(job), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    finished = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(job, total=None, state="starting")

        def refresh() -> None:
            with contextlib.suppress(Py4JError, ConnectionError):  # Java has ended: the job fails with the cause
                while not finished.wait(REFRESH_S):
                    done, total = _task_counts(spark)
                    if total:
                        progress.update(task, completed=done, total=total, state=f"{done} of {total} tasks")

        refresher = threading.Thread(target=refresh, name="progress", daemon=True)
        refresher.start()
        try:
            yield
        finally:
            finished.set()
            refresher.join()


def _task_counts(spark: SparkSession) -> tuple[int, int]:
    """Return the completed tasks and all tasks of the active stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    active = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in active), sum(stage.numTasks for stage in active)
