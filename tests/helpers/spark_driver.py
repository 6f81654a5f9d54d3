"""A process that runs commands of Spark one after the other in a single session."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner
from pyspark import SparkContext

from skewless.cli.main import main
from skewless.spark import spark_session
from skewless.spark.executor_archive import OWN_PYTHON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skewless.spark.spark_session import SparkOptions

LIMIT_S = 600.0
Done = subprocess.CompletedProcess[str]
Start = Callable[[str, "SparkOptions"], contextlib.AbstractContextManager["SparkSession"]]


class Driver:
    """Runs commands in a process with its own environment. The first one starts Spark, and the others use it too.

    A session on a cluster costs more CPU time than the command: Java on each side, and executors that unpack their
    packages and compile their functions.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, spawn, initializer=_prepare, initargs=({**environment},))

    def run(self, *arguments: str, python: Path | None = None, own_python: str | None = None) -> Done:
        """Run a command to its end. Its options of Spark must be those of the first command.

        Its tasks run in another Python of the executors: `python` has no packages of `--ship`, and `own_python` is the
        name of the one that runs with them. Spark sends both with each task.
        """
        return self._process.submit(_run, arguments, python, own_python).result(LIMIT_S)

    def close(self) -> None:
        """End Spark and the process."""
        self._process.submit(_shared.close).result(LIMIT_S)
        self._process.shutdown()


# The rest runs in the process of the driver.

_shared = contextlib.ExitStack()


def _prepare(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    setattr(spark_session, "session", _once(spark_session.session))  # noqa: B010 - mypy refuses the assignment


def _once(start: Start) -> Start:
    """Return a function that starts one session, and returns it to all commands, if they have the same options."""
    started: list[tuple[SparkOptions, SparkSession]] = []

    @contextlib.contextmanager
    def session(name: str, options: SparkOptions) -> Iterator[SparkSession]:
        if not started:
            started.append((options, _shared.enter_context(start(name, options))))
        ((first, running),) = started
        assert options == first, "the options of Spark are not those of the first command"
        yield running

    return session


def _run(arguments: tuple[str, ...], python: Path | None, own_python: str | None) -> Done:
    with _tasks_in(python, own_python):
        result = CliRunner().invoke(main, arguments)
    return Done(arguments, result.exit_code, result.stdout, result.stderr)


@contextlib.contextmanager
def _tasks_in(python: Path | None, own_python: str | None) -> Iterator[None]:
    """Let the tasks of the running session use another Python of the executors during the block."""
    context = SparkContext._active_spark_context
    if context is None:
        assert (python, own_python) == (None, None), "no session runs"
        yield
        return
    before = context.pythonExec, dict(context.environment)
    context.pythonExec = context.pythonExec if python is None else str(python)
    if own_python is not None:
        context.environment[OWN_PYTHON] = own_python
    try:
        yield
    finally:
        context.pythonExec, context.environment = before
