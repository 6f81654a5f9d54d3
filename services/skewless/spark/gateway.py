"""The connection to Spark's Java process: its end, without py4j threads that access a dead process, and its loss."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

WAIT_S = 10.0
EXIT_S = 2.0
"""Maximum time from the loss of the connection to the end of Java."""
RAISED_TOO = ("Exception while sending command.", "KeyboardInterrupt while sending command.")
"""Messages that py4j logs with a traceback on the root logger, just before it raises the same error."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress py4j's tracebacks during the block, and restore the handler of SIGINT after it."""

    def is_logged_only(record: logging.LogRecord) -> bool:
        return record.msg not in RAISED_TOO

    previous_handler = signal.getsignal(signal.SIGINT)
    root = logging.getLogger()
    root.addFilter(is_logged_only)
    try:
        yield
    finally:
        root.removeFilter(is_logged_only)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, previous_handler)


def java_runs() -> bool:
    """Return whether the Java process runs, as far as this process has started it."""
    java = _java()
    return java is None or java.poll() is None


def end_of_java(error: Exception) -> str | None:
    """Return how Java has ended, such as `killed by signal 9`, if that is the cause of an error. None: it runs."""
    java = _java()
    if java is None or isinstance(error, Py4JJavaError) or not isinstance(error, Py4JError | ConnectionError):
        return None
    try:
        code = java.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        return None
    return f"killed by signal {-code}" if code < 0 else f"with exit code {code}"


def _java() -> subprocess.Popen[bytes] | None:
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no public name for it
    return None if gateway is None else gateway.proc


def end_java() -> None:
    """End the Java process of a stopped session. The next session starts another one."""
    # PySpark keeps gateway and JVM for the next session of the process, and has no public way to drop them.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None  # noqa: SLF001
    if gateway is None:
        return
    _end_finalizer(gateway)
    java: subprocess.Popen[bytes] | None = gateway.proc
    if java is None or java.poll() is None:
        gateway.shutdown()
    if java is not None and java.stdin is not None:
        java.stdin.close()  # Spark's Java process exits at the end of its input
        with contextlib.suppress(subprocess.TimeoutExpired):
            java.wait(WAIT_S)


def _end_finalizer(gateway: Any) -> None:
    """Stop the thread that frees Java objects: after Java has exited it would log a connection reset."""
    tasks = getattr(gateway._gateway_client, "finalizer_deque", None)  # noqa: SLF001 - py4j has no public name for it
    if tasks is None:
        return
    tasks.clear()
    tasks.appendleft(SHUTDOWN_FINALIZER_WORKER)
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker) and thread.deque is tasks:
            thread.join(WAIT_S)
