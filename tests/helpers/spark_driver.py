"""A process that runs commands of Spark one after the other in a single session."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner

from skewless.cli.main import main
from skewless.spark import spark_session

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
        self._pid = self._process.submit(os.getpid).result(LIMIT_S)

    def run(self, *arguments: str) -> Done:
        """Run a command to its end. Its options of Spark must be those of the first command."""
        return self._process.submit(_run, arguments).result(LIMIT_S)

    @contextlib.contextmanager
    def running(self, log: Path, *arguments: str) -> Iterator[None]:
        """Run a command that ends with 0 after SIGTERM, which it gets at the end of the block. Writes its output."""
        log.write_text("")
        command = self._process.submit(_run_until_stopped, log, arguments)
        try:
            yield
        finally:
            if not command.done():
                os.kill(self._pid, signal.SIGTERM)
        assert command.result(LIMIT_S) == 0, log.read_text()

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


def _run(arguments: tuple[str, ...]) -> Done:
    result = CliRunner().invoke(main, arguments)
    return Done(arguments, result.exit_code, result.stdout, result.stderr)


def _run_until_stopped(log: Path, arguments: tuple[str, ...]) -> int:
    with log.open("w", buffering=1) as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(arguments)
        except SystemExit as end:
            return int(end.code or 0)
    raise AssertionError  # the command exits
