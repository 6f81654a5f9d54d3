"""The sink's process with a real broker and real databases, killed and cut off: the table is that of the topic.

`make sql-kills` runs all databases in both modes, with more kills: $SKEWLESS_SQL_ROUNDS is their number at each point.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka import Producer

from helpers.databases import SERVERS, Server, TestDatabase, new_database
from helpers.kafka import Pipeline, Source, differences, read, truth, zipf_records
from helpers.stage_hosts import MODULES
from helpers.waiting import until
from integration.sql.faulty_sink import POINTS
from integration.sql.sql_sink import START, partials, result
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.ports import find_free_ports
from skewless.lab.local.stage_host import StageHost
from skewless.sql.dialects import DATABASES

KEYS = 400
ROUND_WINDOWS = 2
STOP_S = 180.0
ROUNDS = int(os.environ.get("SKEWLESS_SQL_ROUNDS", "1"))
CUTS = 4 * ROUNDS
"""Number of times that the connections are cut."""


class SinkProcess:
    """The sink of a pipeline whose topic `aggregates` the test writes."""

    stage, mode, input = "sink", "replace", "aggregates"
    columns = "sum, revision"
    """Columns of the table that the test compares."""

    def __init__(self, bootstrap: str, folder: Path, database: TestDatabase, host: StageHost) -> None:
        self.database = database
        self._host = host
        self.pipeline = Pipeline(
            bootstrap,
            folder,
            Source(bootstrap, 2),
            transport={"session_timeout_s": 6},
            sink={
                **database.settings,
                "mode": self.mode,
                "table": "results",
                "transaction_rows": 100,
                "transaction_s": 0.1,
            },
        )
        self.topic = self.pipeline.settings.topic(self.input)
        self.expected: dict[tuple[int, str], tuple[int, int]] = {}
        self.child: ChildProcess | None = None
        (self.port,) = find_free_ports(1)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        )

    def start(self) -> None:
        environment = {
            **os.environ,
            "SKEWLESS_TEST_FAULTS": str(self.pipeline.folder / f"{self.stage}-0"),
            "SKEWLESS__METRICS__PORT": str(self.port),
        }
        arguments = ["run", self.stage, "--file", str(self.pipeline.file)]
        log = self.pipeline.folder / "sink.log"
        self.child = self._host.start(self.stage, arguments, environment, log=log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.child is not None
        self.child.send_signal(number)
        return self.child.wait(STOP_S)

    def wait_until_killed(self) -> None:
        child = self.child
        assert child is not None
        until(lambda: child.poll() is not None)
        assert child.poll() == -signal.SIGKILL, self.log

    def feed(self, round_: int) -> None:
        """Write results: the windows of this round, and a revision of those of the round before."""
        for window in range(max(0, round_ - 1) * ROUND_WINDOWS, (round_ + 1) * ROUND_WINDOWS):
            revision = round_ - window // ROUND_WINDOWS
            for number in range(KEYS):
                key, value = result(f"k{number}", START + window * 60_000, revision, count=number, sum=round_ - number)
                self._producer.produce(self.topic, value, key, partition=number % 2)
                self.expected[START + window * 60_000, f"k{number}"] = (round_ - number, revision)
        assert self._producer.flush(60) == 0

    def rows(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Read the table by its own means."""
        start = {
            "postgresql": "extract(epoch from window_start) * 1000",
            "mysql": "timestampdiff(microsecond, '1970-01-01', window_start) / 1000",
            "sqlite": "unixepoch(window_start) * 1000",
        }[self.database.dialect]
        key = self.database.quoted("key")
        rows = self.database.query(f"SELECT {start}, {key}, {self.columns} FROM results")
        return {(int(window), key): (int(total), int(other)) for window, key, total, other in rows}

    def wait_until_stored(self) -> None:
        until(self._is_alive_and_done)

    def _is_alive_and_done(self) -> bool:
        assert self.child is not None
        assert self.child.poll() is None, self.log
        with contextlib.suppress(Exception):  # the table or the server may not be there yet
            return self.rows() == self.expected
        return False

    @property
    def log(self) -> str:
        return (self.pipeline.folder / "sink.log").read_text(errors="replace")[-4000:]

    def page(self, path: str) -> str:
        """Read a page of the process; empty if it does not answer."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            text: str = answer.read().decode()
            return text
        return ""

    def arm(self, point: str) -> None:
        self.pipeline.arm(f"{self.stage}-0", point, "kill")


class FlusherProcess(SinkProcess):
    """The flusher of a pipeline whose topic `partials` the test writes."""

    stage, mode, input = "flusher", "merge", "partials"
    columns = "sum, count"

    def feed(self, round_: int) -> None:
        """Write partials: some of the windows of this round, and more of those of the round before."""
        for window in range(max(0, round_ - 1) * ROUND_WINDOWS, (round_ + 1) * ROUND_WINDOWS):
            start = START + window * 60_000
            for partition in range(2):
                keys = [f"k{number}" for number in range(partition, KEYS, 2)]
                for part in (keys, keys[: KEYS // 4]):
                    rows = [{"pane": start, "key": key, "count": 2, "sum": Decimal(round_ - 5)} for key in part]
                    record = partials(*rows)
                    headers = [(name, value) for name, value in record.headers]
                    self._producer.produce(self.topic, record.value, partition=partition, headers=headers)
                    for key in part:
                        total, count = self.expected.get((start, key), (0, 0))
                        self.expected[start, key] = (total + round_ - 5, count + 2)
        assert self._producer.flush(60) == 0


MODES: dict[str, type[SinkProcess]] = {"replace": SinkProcess, "merge": FlusherProcess}
KILLED = [("postgresql", "replace"), ("mysql", "merge")]
CUT = [("mysql", "replace"), ("postgresql", "merge")]
FROZEN = [("postgresql", "replace")]
FENCED = [("sqlite", "merge")]
FREEZE_S = 60.0 if ROUNDS > 1 else 3.0
if ROUNDS > 1:
    FROZEN = list(itertools.product(SERVERS, MODES))
    FENCED = list(itertools.product(DATABASES, MODES))
    KILLED = list(itertools.product(DATABASES, MODES))
    CUT = list(itertools.product(SERVERS, MODES))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageHost]:
    """Host whose processes have fault points in their transactions."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    modules = (*MODULES, "integration.sql.faulty_databases")
    running = StageHost(modules, log=tmp_path_factory.mktemp("host") / "host.log", environment=environment)
    yield running
    running.close()


@pytest.fixture
def sink(  # noqa: PLR0913, PLR0917 - fixtures
    broker: str,
    tmp_path: Path,
    database_servers: Callable[[str], Server],
    host: StageHost,
    dialect: str,
    mode: str,
) -> Iterator[SinkProcess]:
    process = MODES[mode](broker, tmp_path, new_database(dialect, database_servers, tmp_path), host)
    try:
        yield process
    finally:
        if process.child is not None:
            child_process.kill(process.child)


@pytest.mark.thorough
@pytest.mark.timeout(900 * ROUNDS)
@pytest.mark.parametrize(("dialect", "mode"), KILLED)
def test_sink_killed_at_each_point_of_a_transaction_stores_every_result(sink: SinkProcess) -> None:
    sink.feed(0)
    sink.start()
    sink.wait_until_stored()
    for round_, point in enumerate(POINTS * ROUNDS, 1):
        sink.arm(point)
        sink.feed(round_)
        sink.wait_until_killed()
        sink.start()
        sink.wait_until_stored()
    assert sink.database.query("SELECT count(*) FROM results_refused") == [(0,)]
    assert sink.stop() == 0, sink.log
    reader, group = OffsetReader(sink.pipeline.settings.kafka), sink.pipeline.settings.group(sink.stage)
    stored = sink.database.query(f"SELECT {sink.database.quoted('partition')}, next_offset FROM skewless_offsets")
    assert dict(stored) == reader.end(sink.topic)
    assert {number: at.offset for number, at in reader.committed(group, sink.topic).items()} == dict(stored)


@pytest.mark.thorough
@pytest.mark.timeout(900 * ROUNDS)
@pytest.mark.parametrize(("dialect", "mode"), CUT)
def test_sink_server_killed_and_connections_cut_stores_every_result(sink: SinkProcess) -> None:
    server = sink.database.server
    assert server is not None
    server.kill()
    sink.feed(0)
    sink.start()
    until(lambda: "skewless_sink_store_up{" in sink.page("/metrics"))
    assert json.loads(sink.page("/livez"))["alive"]
    assert sink.page("/readyz") == ""  # status 503
    server.start()
    sink.wait_until_stored()
    for round_ in range(1, CUTS + 1):
        sink.feed(round_)
        server.cut_connections()
        sink.wait_until_stored()
    for round_ in range(CUTS + 1, CUTS + ROUNDS + 1):
        server.kill()
        sink.feed(round_)
        until(lambda: _metric(sink, "skewless_sink_store_up") == 0.0)
        server.start()
        sink.wait_until_stored()
    until(lambda: _metric(sink, "skewless_sink_store_up") == 1.0)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("dialect", "mode"), FROZEN)
def test_sink_server_frozen_stores_every_result(sink: SinkProcess) -> None:
    server = sink.database.server
    assert server is not None
    assert server.child is not None
    sink.feed(0)
    sink.start()
    sink.wait_until_stored()
    server.child.send_signal(signal.SIGSTOP)
    try:
        sink.feed(1)
        time.sleep(FREEZE_S)
        assert sink.child is not None
        assert sink.child.poll() is None, sink.log
        assert json.loads(sink.page("/livez"))["alive"]
    finally:
        server.child.send_signal(signal.SIGCONT)
    sink.wait_until_stored()


@pytest.mark.thorough
@pytest.mark.parametrize(("dialect", "mode"), FENCED)
def test_sink_second_process_of_the_same_member_takes_over_and_stores_every_result(sink: SinkProcess) -> None:
    sink.feed(0)
    sink.start()
    sink.wait_until_stored()
    for round_ in range(1, ROUNDS + 1):
        first, (sink.port,) = sink.child, find_free_ports(1)
        assert first is not None
        sink.feed(round_)
        sink.start()
        try:
            assert first.wait(STOP_S) == 3, sink.log
        finally:
            child_process.kill(first)
        sink.wait_until_stored()
    assert "group instance id" in (sink.pipeline.folder / "sink.log").read_text(errors="replace")


def _metric(sink: SinkProcess, name: str) -> float | None:
    values = [line.rpartition(" ")[2] for line in sink.page("/metrics").splitlines() if line.startswith(f"{name}{{")]
    return float(values[0]) if values else None


def test_pipeline_with_a_sink_drains_into_the_table(
    broker: str, tmp_path: Path, database_servers: Callable[..., object]
) -> None:
    database = new_database("sqlite", database_servers, tmp_path)  # type: ignore[arg-type]
    source = Source(broker, 2)
    source.send(zipf_records(20_000, 2, 5, keys=500))
    pipeline = Pipeline(broker, tmp_path, source, sink={**database.settings, "table": "results"})
    pipeline.drain()
    results, wrong = pipeline.results()
    assert wrong == []
    rows = database.query("SELECT unixepoch(window_start) * 1000, key, count, sum, revision FROM results")
    table = {(window, key): (count, total, revision) for window, key, count, total, revision in rows}
    assert table == {at: (fact["count"], fact["sum"], fact["revision"]) for at, fact in results.items()}
    assert differences(pipeline, truth(read(broker, source.topic))) == []


def test_pipeline_with_a_flusher_drains_into_the_table(
    broker: str, tmp_path: Path, database_servers: Callable[..., object]
) -> None:
    database = new_database("sqlite", database_servers, tmp_path)  # type: ignore[arg-type]
    source = Source(broker, 2)
    source.send(zipf_records(20_000, 2, 5, keys=500))
    sink = {**database.settings, "mode": "merge", "table": "results"}
    pipeline = Pipeline(broker, tmp_path, source, sink=sink)
    pipeline.drain()
    results, wrong = pipeline.results()
    assert wrong == []
    rows = database.query("SELECT unixepoch(window_start) * 1000, key, count, sum FROM results_results")
    assert len(rows) == len(results)
    table = {(window, key): (count, total) for window, key, count, total in rows}
    assert table == {at: (fact["count"], fact["sum"]) for at, fact in results.items()}
