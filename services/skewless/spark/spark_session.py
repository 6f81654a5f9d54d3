"""The Spark session of a command: small and without log output on this machine, or any master of a cluster."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import java
from skewless.spark import executor_archive, gateway
from skewless.spark.failures import EXCEPTION_PREFIX, PYTHON

LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
UNRESPONSIVE_MASTER = ("All masters are unresponsive", "Failed to connect", "UnknownHost", "Connection refused")
_ALLOCATOR = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": f"{4 * 2**20}",
    "MALLOC_TRIM_THRESHOLD_": f"{16 * 2**20}",
}
"""Environment variables of glibc for the processes of tasks. By default, each of eight arenas per core may keep up to
64 MB that are free. That is more than the windows of a query."""
CONNECT_S = 5.0
_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})(?!\d)")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options of a session. `memory` is that of the driver, which on this machine also runs the tasks."""

    master: str = "local[*]"
    jars: Sequence[str] = ()
    packages: Sequence[str] = ()
    """Maven coordinates that Spark downloads; used on a cluster instead of `jars`."""
    memory: str | None = None
    """Such as 2g. None: an eighth of this machine's memory, between 1 and 4 GB; on a cluster Spark's own setting."""
    settings: Sequence[tuple[str, str]] = ()
    """Additional Spark options, which override the others."""
    ui: bool = False
    archive: Path | None = None
    """Packages of the executors (`executor_archive`). None: their Python has the packages."""
    submitted: Mapping[str, str] = field(default_factory=dict)
    """Settings of spark-submit, if it has started this process and Java. They override the defaults."""

    @property
    def is_local(self) -> bool:
        """Whether this process runs the tasks. `local-cluster` starts executors on this machine."""
        return re.match(r"local(\[|$)", self.master) is not None

    def all(self) -> dict[str, str]:
        """Return all options by Spark's names."""
        options = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
            # Cached data is read once or twice, so compression costs more than it saves.
            "spark.sql.inMemoryColumnarStorage.compressed": "false",
            **{f"spark.executorEnv.{name}": value for name, value in _ALLOCATOR.items()},
        }
        if self.is_local:
            options["spark.sql.shuffle.partitions"] = "32"
        if not self.submitted:
            options |= self._of_java()
        options |= {**self.submitted, **dict(self.settings)}
        if self.archive:
            others = [options["spark.archives"]] if "spark.archives" in options else []
            archive = f"{self.archive.as_uri()}#{executor_archive.FOLDER}"
            options["spark.archives"] = ",".join([archive, *others])
            own_python = os.environ.get(PYTHON, executor_archive.own_python())
            options[f"spark.executorEnv.{executor_archive.OWN_PYTHON}"] = own_python
        return options

    def _of_java(self) -> dict[str, str]:
        """Return the options that Java reads when it starts."""
        java_options = f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}"
        options = {
            "spark.master": self.master,
            "spark.ui.enabled": str(self.ui).lower(),
            "spark.ui.showConsoleProgress": "false",
        }
        if self.is_local:
            java_options += f" {' '.join(java.QUICK_START)}"
            # By default Spark uses the address of the machine, and it fails when that changes (VPN, sleep).
            options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            options["spark.driver.memory"] = self.memory or f"{_eighth_of_memory_mb()}m"
            # On a cluster, the Python of the executors may lack this package until their first task.
            options["spark.python.daemon.module"] = "skewless.spark.python_daemon"
        elif self.memory:
            options["spark.driver.memory"] = self.memory
        if self.jars:
            options["spark.jars"] = ",".join(self.jars)
        if self.packages:
            options["spark.jars.packages"] = ",".join(self.packages)
        return options | {"spark.driver.extraJavaOptions": java_options}

    def environment(self) -> dict[str, str | None]:
        """Return the environment variables that Spark reads when it starts, None for one that must not be set."""
        python = sys.executable if self.is_local else os.environ.get(PYTHON, sys.executable)
        variables: dict[str, str | None] = {PYTHON: executor_archive.PYTHON if self.archive else python}
        if not self.submitted and java.find().path.parents[1] != Path(os.environ.get("JAVA_HOME", "")):
            variables["JAVA_HOME"] = None  # Spark prefers it to the Java of PATH, and it is not suitable
        if self.is_local:
            # Otherwise the host name of the machine must resolve.
            variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        return variables


@contextlib.contextmanager
def session(name: str, options: SparkOptions) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end of the block. If this process has an active session, that one is used.

    Raises ConfigurationError if Spark rejects its options, and UnreachableError if the master stops answering.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName(name)
    for option, value in options.all().items():
        builder = builder.config(option, value)
    with gateway.quiet(), _variables_set(options.environment()):
        spark = _start(builder, options)
        try:
            yield spark
        finally:
            if gateway.java_runs():
                with contextlib.suppress(Py4JError):  # Java is ending: a signal to the process group reaches both
                    spark.stop()
            if not options.submitted:
                gateway.end_java()


@contextlib.contextmanager
def _variables_set(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables of this process during the block. None removes one."""
    before = {name: os.environ.get(name) for name in variables}
    _set_variables(variables)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _start(builder: SparkSession.Builder, options: SparkOptions) -> SparkSession:
    with tempfile.TemporaryFile() as stderr_file:
        try:
            with _stderr_to(stderr_file):
                return builder.getOrCreate()
        except Exception as error:  # noqa: BLE001 - py4j, sockets and Java raise different types
            gateway.end_java()
            stderr_file.seek(0)
            raise _start_error(options, f"{error}\n{stderr_file.read().decode(errors='replace')}") from None


def submitted_settings() -> dict[str, str]:
    """Return the settings of the spark-submit that has started this process."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - the public way is a context, which needs the settings first
    default_name = Path(sys.argv[0]).name
    return {name: value for name, value in SparkConf().getAll() if (name, value) != ("spark.app.name", default_name)}


def check_reachable(master: str) -> None:
    """Raise UnreachableError if no address of the master accepts connections."""
    # Checked before the start, because Spark itself takes a minute to report an unreachable master.
    addresses = _HOST_AND_PORT.findall(master) if master.startswith(("spark://", "k8s://")) else []
    reasons = [reason for host, port in addresses if (reason := _connection_error(host.strip("[]"), int(port)))]
    if addresses and len(reasons) == len(addresses):
        raise UnreachableError(f"the Spark master {master} does not answer: {reasons[0]}")


def _connection_error(host: str, port: int) -> str:
    """Return why no connection can be opened, or an empty text if one can."""
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""


def _start_error(options: SparkOptions, text: str) -> ConfigurationError | UnreachableError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    candidates = [line for name in ("Exception: ", "Error: ") for line in lines if name in line] or lines
    reason = EXCEPTION_PREFIX.sub("", candidates[-1]) if candidates else "no reason given"
    if any(message in text for message in UNRESPONSIVE_MASTER):
        return UnreachableError(f"the Spark master {options.master} does not answer: {reason}")
    return ConfigurationError(f"Spark does not start with --master {options.master}: {reason}")


@contextlib.contextmanager
def _stderr_to(file: IO[bytes]) -> Iterator[None]:
    """Redirect stderr of this process and of the processes that it starts into a file during the block."""
    # Java's own warnings are meaningless to the user.
    sys.stderr.flush()
    saved_stderr = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)


def _eighth_of_memory_mb() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return min(4096, max(1024, total // 8))
