"""The connection to Spark's Java: ends it in the order that leaves no thread of py4j talking to a dead process."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker  # type: ignore[import-untyped]
from pyspark import SparkContext

WAIT_S = 10.0
RAISED_TOO = ("Exception while sending command.", "KeyboardInterrupt while sending command.")
"""What py4j logs with a traceback, by the root logger, just before it raises it as an error too."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep py4j's tracebacks off the screen during the block, and give Ctrl-C back to its former handler after it."""

    def is_news(record: logging.LogRecord) -> bool:
        return record.msg not in RAISED_TOO

    before = signal.getsignal(signal.SIGINT)
    root = logging.getLogger()
    root.addFilter(is_news)
    try:
        yield
    finally:
        root.removeFilter(is_news)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def end_java() -> None:
    """End the Java process of a stopped session; the next session starts its own."""
    # PySpark keeps them for the next session of the process, and has no public way to drop them.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None  # noqa: SLF001
    if gateway is None:
        return
    _end_finalizer(gateway)
    gateway.shutdown()
    java: subprocess.Popen[bytes] | None = gateway.proc
    if java is not None and java.stdin is not None:
        java.stdin.close()  # Spark's Java ends at the end of its input
        with contextlib.suppress(subprocess.TimeoutExpired):
            java.wait(WAIT_S)


def _end_finalizer(gateway: Any) -> None:
    """Stop the thread that frees Java's objects: with Java gone it would log a reset connection."""
    tasks = getattr(gateway._gateway_client, "finalizer_deque", None)  # noqa: SLF001 - py4j has no name for it
    if tasks is None:
        return
    tasks.clear()
    tasks.appendleft(SHUTDOWN_FINALIZER_WORKER)
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker) and thread.deque is tasks:
            thread.join(WAIT_S)
