"""Errors of Spark jobs: one line with the cause, and the next step where the executors lack something."""

from __future__ import annotations

import builtins
import platform
import re

import pyspark

from skewless.errors import CrashedError, JobFailedError, UnreachableError

PYTHON = "PYSPARK_PYTHON"
"""Environment variable of Spark with the Python of the executors."""
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
EXCEPTION_PREFIX = re.compile(r"^.*?[\w.]+(Error|Exception): ")
_EXCEPTION_LINE = re.compile(r"[\w.]+(Error|Exception)(: |$)")
_OVERFLOW = "java.lang.ArithmeticException: long overflow"
"""Cause of an exception that names the record: its timestamp, such as one in nanoseconds, is beyond those of Spark."""
_UNREACHABLE = (
    "org.apache.kafka.common.errors.TimeoutException",
    "java.util.concurrent.TimeoutException",
    *(f"java.net.{name}" for name in ("Connect", "NoRouteToHost", "Socket", "UnknownHost")),
)
_EXECUTOR_PROBLEMS = {
    r"No module named '?(\w+)|\[PACKAGE_NOT_INSTALLED\] (\S+)": "an executor's Python has no package {}: {remedy}",
    r'Cannot run program "([^"]+)"|exec: (\S+): not found': (
        f"the executors have no Python {{}}: name theirs in the environment variable {PYTHON}"
    ),
    r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: (\S+)": (
        f"the executors have Python {{}}, and this process has {platform.python_version()}: name one of the same minor "
        f"version in the environment variable {PYTHON}"
    ),
    r"data source: (kafka)|ClassNotFoundException: org.apache.spark.sql.(kafka010)": (
        f"Spark has no connector for Kafka: add --packages {CONNECTOR}"
    ),
    r"ConfigurationError: (.+: cannot be read: .+)": "an executor lacks a file: {}: copy it there, to the same path",
    r"InvalidClassException: (\S+); local class incompatible": (
        f"the cluster has another version of Spark than this PySpark, {pyspark.__version__}: install the cluster's"
    ),
}
"""Pattern of the error of a job -> what its executors lack, and the next step."""
_SHIP = "send the packages with --ship, or install Skewless there"
_INSTALL = "install it there, because --ship has not sent it"


def failure_of(error: Exception, *, shipped: bool = False) -> JobFailedError | UnreachableError | CrashedError:
    """Return the error of a failed job with a message of one line: the innermost cause, in Python or in Java.

    An exception of Python in a task is a bug, unless it is an error of the machine or of this package. `shipped`:
    whether the executors have the packages of this process.
    """
    if problem := _executor_problem(str(error), _INSTALL if shipped else _SHIP):
        return JobFailedError(f"the Spark job failed: {problem}")
    reason = cause_of(str(error))
    if any(exception in reason for exception in _UNREACHABLE):
        return UnreachableError(f"the Spark job lost its connection: {reason}")
    if _is_bug(reason):
        return CrashedError(
            f"the Spark job crashed, which is a bug in skewless: {reason}; report it to the maintainers"
        )
    return JobFailedError(f"the Spark job failed: {reason}")


def cause_of(text: str) -> str:
    """Return the innermost cause in the text of an error, in Python or in Java, as one line."""
    # py4j writes a colon before the exception of Java.
    stripped = (line.strip().removeprefix("Caused by: ").removeprefix(": ") for line in text.splitlines())
    lines = list(filter(None, stripped))
    causes = [line for line in lines if _EXCEPTION_LINE.match(line) and line != _OVERFLOW]
    first_line = lines[0] if lines else "no reason given"
    reason = causes[-1] if causes else first_line
    for outer in reversed(causes):
        if EXCEPTION_PREFIX.sub("", reason) in outer:
            reason = outer  # the same message with more context
    return reason


def failure_without_java(ended: str) -> JobFailedError:
    """Return the error of a job whose Java process has ended, and how."""
    return JobFailedError(
        f"the Spark job failed: Java has ended, {ended}, for example because the machine has no memory left: run the "
        "command again"
    )


def _executor_problem(text: str, remedy: str) -> str | None:
    """Return what the executors lack for a job that failed with this error; None if it is something else."""
    for pattern, problem in _EXECUTOR_PROBLEMS.items():
        if found := re.search(pattern, text):
            return problem.format(next(filter(None, found.groups())), remedy=remedy)
    return None


def _is_bug(reason: str) -> bool:
    """Return whether the reason is an exception that is built into Python, and not one of the machine."""
    exception = getattr(builtins, reason.partition(":")[0].strip(), None)
    return (
        isinstance(exception, type)
        and issubclass(exception, Exception)
        and not issubclass(exception, OSError | MemoryError | EOFError)
    )
