"""The connection to Spark's Java closes without log output of py4j."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.clientserver import FinalizerWorker  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from skewless.spark import gateway


class Java:
    """Replaces the gateway and its client. An object that is freed after `shutdown` causes a connection reset."""

    def __init__(self) -> None:
        self.finalizer_deque: deque[Any] = deque()
        self._gateway_client = self
        self.proc = None
        self.ended = False
        self.freed_after = 0

    def garbage_collect_object(self, _target: str, _enqueue: bool) -> None:  # noqa: FBT001 - py4j's signature
        time.sleep(0.001)
        self.freed_after += self.ended

    def shutdown(self) -> None:
        self.ended = True


def test_gateway_thread_that_frees_java_objects_ends_before_java(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java()
    monkeypatch.setattr(gateway, "WAIT_S", 60.0)
    monkeypatch.setattr(SparkContext, "_gateway", java)
    monkeypatch.setattr(SparkContext, "_jvm", SimpleNamespace())
    for number in range(100_000):
        java.finalizer_deque.appendleft((java, f"o{number}"))
    worker = FinalizerWorker(java.finalizer_deque)
    worker.daemon = True
    worker.start()
    gateway.end_java()
    assert java.ended
    assert not worker.is_alive()
    assert java.freed_after == 0
    assert (SparkContext._gateway, SparkContext._jvm) == (None, None)


def test_gateway_tracebacks_of_raised_errors_are_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The shared session of this test process has the same filter.
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    with gateway.quiet():
        for text in gateway.RAISED_TOO:
            logging.error(text)  # noqa: LOG015 - as py4j does
        logging.error("something else")  # noqa: LOG015
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    logging.error("Exception while sending command.")  # noqa: LOG015
    assert len(caplog.records) == 2


def test_gateway_after_the_session_restores_the_interrupt_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    with gateway.quiet():
        signal.signal(signal.SIGINT, lambda *_: None)  # as SparkContext does
    assert signal.getsignal(signal.SIGINT) is before


def test_gateway_without_java_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    threads = threading.active_count()
    gateway.end_java()
    assert threading.active_count() == threads


def test_gateway_java_that_was_killed_is_the_cause_of_lost_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        monkeypatch.setattr(gateway, "EXIT_S", 0.1)
        assert gateway.java_runs()
        assert gateway.end_of_java(ConnectionRefusedError()) is None
        java.kill()
        monkeypatch.setattr(gateway, "EXIT_S", 60.0)
        assert gateway.end_of_java(Py4JError("Answer from Java side is empty")) == "killed by signal 9"
        assert gateway.end_of_java(ValueError()) is None
        assert not gateway.java_runs()
