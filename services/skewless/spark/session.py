"""The Spark session of a command: small and quiet on this machine, any master on a cluster."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pyspark.sql import SparkSession

from skewless.errors import ConfigurationError, JobFailedError, UnreachableError
from skewless.spark import gateway

QUIET = Path(__file__).with_name("log4j2.properties")
UNRESPONSIVE = ("All masters are unresponsive", "Failed to connect", "UnknownHost", "Connection refused")
_UNREACHABLE = ("org.apache.kafka.common.errors.TimeoutException", "java.net.", "java.util.concurrent.TimeoutException")
_SHORT_JOBS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java on this machine: compiling for the long run, and collecting in parallel, cost more than jobs here take."""
CONNECT_S = 5.0
_MACHINE = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})(?!\d)")
_CAUSE = re.compile(r"[\w.]+(Error|Exception)(: |$)")
_THROWN = re.compile(r"^.*?[\w.]+(Error|Exception): ")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How a session is started. `memory` is the driver's, which on this machine also runs the tasks."""

    master: str = "local[*]"
    jars: Sequence[str] = ()
    packages: Sequence[str] = ()
    """Maven coordinates that Spark fetches itself, on a cluster in the place of `jars`."""
    memory: str | None = None
    """As 2g; None: an eighth of this machine's memory, between 1 and 4 GB, and what Spark is set to on a cluster."""
    settings: Sequence[tuple[str, str]] = ()
    """Any further Spark options; they win."""
    ui: bool = False

    @property
    def is_local(self) -> bool:
        """Whether this process runs the tasks."""
        return self.master.startswith("local")

    def _java_options(self) -> str:
        return f" {_SHORT_JOBS}" if self.is_local else ""

    def all(self) -> dict[str, str]:
        """Tell Spark everything, by its own names."""
        options = {
            "spark.master": self.master,
            "spark.ui.enabled": str(self.ui).lower(),
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
            # What is held is read once or twice: packing it costs more than the disk it saves.
            "spark.sql.inMemoryColumnarStorage.compressed": "false",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}{self._java_options()}",
        }
        if self.is_local:
            # Without these Spark asks the machine for an address, and one that changes (VPN, sleep) stops it.
            options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            options["spark.sql.shuffle.partitions"] = "32"
            options["spark.driver.memory"] = self.memory or f"{_eighth_of_memory_mb()}m"
        elif self.memory:
            options["spark.driver.memory"] = self.memory
        if self.jars:
            options["spark.jars"] = ",".join(self.jars)
        if self.packages:
            options["spark.jars.packages"] = ",".join(self.packages)
        return options | dict(self.settings)


@contextlib.contextmanager
def session(name: str, options: SparkOptions) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end of the block; where this process has a session, that one is used.

    Raises ConfigurationError when it refuses its options, UnreachableError when the master does not answer.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    _check_reachable(options.master)
    builder = SparkSession.builder.appName(name)
    for option, value in options.all().items():
        builder = builder.config(option, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if options.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a machine whose own name nobody knows can run Spark too
    with gateway.quiet():
        spark = _started(builder, options)
        try:
            yield spark
        finally:
            spark.stop()
            gateway.end_java()


def _started(builder: SparkSession.Builder, options: SparkOptions) -> SparkSession:
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_to(said):
                return builder.getOrCreate()
        except Exception as error:  # noqa: BLE001 - py4j, sockets, Java: whatever it is, Spark did not start
            gateway.end_java()
            said.seek(0)
            raise _refusal(options, f"{error}\n{said.read().decode(errors='replace')}") from None


def _check_reachable(master: str) -> None:
    """Look whether one of the machines of a master answers: Spark itself takes a minute to say that none does."""
    machines = _MACHINE.findall(master) if master.startswith(("spark://", "k8s://")) else []
    reasons = [reason for host, port in machines if (reason := _silence(host.strip("[]"), int(port)))]
    if machines and len(reasons) == len(machines):
        raise UnreachableError(f"the Spark master {master} does not answer: {reasons[0]}")


def _silence(host: str, port: int) -> str:
    """Say why nobody answers there; nothing if somebody does."""
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""


def _refusal(options: SparkOptions, text: str) -> ConfigurationError | UnreachableError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for mark in ("Exception: ", "Error: ") for line in lines if mark in line] or lines
    reason = _THROWN.sub("", telling[-1]) if telling else "no reason given"
    if any(mark in text for mark in UNRESPONSIVE):
        return UnreachableError(f"the Spark master {options.master} does not answer: {reason}")
    return ConfigurationError(f"Spark does not start with --master {options.master}: {reason}")


def failure_of(error: Exception) -> JobFailedError | UnreachableError:
    """Tell in one line why a job failed: the innermost cause, of Python's tasks or of Java's."""
    lines = [line.strip().removeprefix("Caused by: ") for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    reason = (causes or lines or ["no reason given"])[-1 if causes else 0]
    for outer in reversed(causes):
        if _THROWN.sub("", reason) in outer:
            reason = outer  # which says the same, and of what
    if any(mark in reason for mark in _UNREACHABLE):
        return UnreachableError(f"Spark lost what it reads or writes: {reason}")
    return JobFailedError(f"Spark could not do this: {reason}")


@contextlib.contextmanager
def _stderr_to(file: IO[bytes]) -> Iterator[None]:
    """Let what is started here write its stderr into a file: Java's own warnings mean nothing to a user."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _eighth_of_memory_mb() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return min(4096, max(1024, total // 8))
