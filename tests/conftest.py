"""Fixtures of all tests."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import settings

from helpers import spark_archive
from helpers.cost import Costs
from helpers.databases import Server, TestDatabase, new_database, running_servers
from helpers.schedule import ServerScheduling
from helpers.schema_registry import RegistryServer, running_registry
from helpers.tiers import COLLECTED
from skewless.errors import SkewlessError
from skewless.lab.local.broker import Broker
from skewless.lab.local.jars import ensure
from skewless.sql.dialects import DATABASES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

# Hypothesis draws the examples of the laws: new ones in each local run, the same ones in CI. By default it draws a
# quarter of them, with `--hypothesis-profile rest` the others, and with `full` all. A law that needs more or fewer
# multiplies the number of the profile. Deadlines per example are off: the time of one example is not reliable when
# tests run in parallel.
IN_CI = bool(os.environ.get("CI"))
DATABASE: dict[str, Any] = {"database": None} if IN_CI else {}
settings.register_profile("quarter", deadline=None, max_examples=25, derandomize=IN_CI, **DATABASE)
# Derandomized, the rest would begin with the examples of the quarter. In CI, `make test-rest` gives it a seed.
settings.register_profile("rest", deadline=None, max_examples=75, derandomize=False, **DATABASE)
settings.register_profile("full", deadline=None, max_examples=100, derandomize=IN_CI, **DATABASE)
settings.load_profile("quarter")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore SIGINT, and so would the processes that tests stop with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


EMBEDDED = pytest.StashKey[Broker]()
"""The broker of the tests, while it runs."""
SERVERS = {"broker", "database_servers", "registry_server", "spark"}
"""Fixtures of servers, and marks of tests that start such servers themselves."""
SERVER_TIMEOUT_S = 900
"""Timeout of tests with a server. They wait for many conditions in turn, each with its own deadline."""

LONG_FILES = ("tests/acceptance/", "tests/spark/")
"""Folders whose files take minutes. They are the first, so that no worker ends long after the others."""

MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes folders of its own there
"""File system of Linux in memory. There a broker creates a partition in half of the CPU time."""
NEEDED_BYTES = 12 * 2**30
"""Free memory from which temporary files are in memory. Those of a run of all tests have some GB."""

LOG_LINES = 6
"""Lines of each log of a failed test that pytest prints."""


def pytest_configure(config: pytest.Config) -> None:
    if "TMPDIR" not in os.environ:  # the workers of the run have it
        # What killed processes leave ends with the run. The folders of tests do not: pytest keeps those of three runs.
        folder = Path(tempfile.mkdtemp(prefix="skewless-tests-", dir=MEMORY if has_space_in_memory() else None))
        folder.chmod(0o755)  # the servers of databases run as another user
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder.parent)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # No test may find a broker that the developer runs beside the tests.
    os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / "state")
    config.pluginmanager.register(Costs())


def has_space_in_memory() -> bool:
    return MEMORY.is_dir() and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > NEEDED_BYTES


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ServerScheduling | None:
    return ServerScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = list(items)
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))  # a stable sort
    for item in items:
        names = {*getattr(item, "fixturenames", ())}
        if "broker" in names:
            item.add_marker("broker")
        if "spark" in names:
            item.add_marker("spark")
        uses_server = not SERVERS.isdisjoint(names) or any(map(item.get_closest_marker, SERVERS))
        # The first test with a database may wait until the packages of the server are installed.
        if uses_server and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SERVER_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Import each module in one worker at a time: the others then find it compiled, which is most of its import."""
    with contextlib.ExitStack() as stack:
        file = os.open(collector.path, os.O_RDONLY)
        stack.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    # Modules and tests live until the end of the process. Each garbage collection would search them again.
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark"):
        spark_archive.use()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the last lines of each log that the processes of a failed test wrote."""
    report = yield
    folder: Path | None = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        ends = [
            (f"end of {log.relative_to(folder)}", "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
            for log in sorted(folder.rglob("*.log"))
            if log.is_file()
        ]
        report.sections[:0] = ends  # before what was captured, which may be long
    return report


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap servers of a real Kafka: $KAFKA_BOOTSTRAP_SERVERS or the embedded broker. Never skips."""
    if external := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield external
        return
    try:
        # It is never killed and started again. So its partitions stay available when it stands still for seconds, and
        # rare heartbeats are enough: they cost most of what an idle broker costs. Few threads save a fifth of the rest.
        idle = {"broker.session.timeout.ms": "30000", "broker.heartbeat.interval.ms": "5000"}
        threads = {"num.io.threads": "2", "num.network.threads": "1"}
        embedded = Broker(properties=idle | threads).start()
    except SkewlessError as error:
        pytest.fail(f"tests need a Kafka broker: {error}", pytrace=False)
    request.config.stash[EMBEDDED] = embedded
    yield embedded.bootstrap
    del request.config.stash[EMBEDDED]
    embedded.kill()  # a clean end writes the state of thousands of partitions, for about a minute
    embedded.stop()


@pytest.fixture(scope="module", autouse=True)
def _topics_end_with_their_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete the topics of the embedded broker after each module: each client of the next one asks for all topics."""
    yield
    if EMBEDDED in request.config.stash:
        from helpers.kafka import delete_topics

        gc.collect()  # ends clients that refer to themselves: they would run on, and report that the broker has gone
        delete_topics(request.config.stash[EMBEDDED].bootstrap)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark with two cores and 1 GB of memory, with Kafka's connector."""
    from skewless.spark.spark_session import SparkOptions, session

    settings = [(name, value) for name, _, value in (setting.partition("=") for setting in spark_archive.FEW_RECORDS)]
    jars = [str(jar) for jar in ensure("spark")]
    options = SparkOptions("local[2]", jars=jars, memory="1g", settings=settings)
    with session("tests", options) as running:
        yield running


@pytest.fixture(scope="session")
def database_servers() -> Iterator[Callable[[str], Server]]:
    """Yield a function that returns the real server of a dialect, and starts it at the first call. Never skips."""
    with running_servers() as server:
        yield server


@pytest.fixture(params=list(DATABASES))
def database(request: pytest.FixtureRequest, database_servers: Callable[[str], Server], tmp_path: Path) -> TestDatabase:
    """Empty database of each dialect."""
    return new_database(request.param, database_servers, tmp_path)


@pytest.fixture(scope="session")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Real schema registry, which is downloaded once. Never skips."""
    try:
        with running_registry(tmp_path_factory.mktemp("registry")) as server:
            yield server
    except SkewlessError as error:
        pytest.fail(f"tests need a schema registry: {error}", pytrace=False)
