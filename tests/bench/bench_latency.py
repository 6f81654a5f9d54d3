"""Time from writing a record to the first result that counts it, at a steady rate, and the share of each stage.

A pipeline on a local broker, one process per stage. A probe record is written every 10 ms among the Zipf records. Each
probe has a unique key, which identifies its result. With `--emit final` the time is measured from the end of the window
on the wall clock to its results. With `--table` the time ends when the row of the probe is visible in a database, which
stores each transaction with fsync; `--mode` is that of section `sink`. One JSON line per run, in seconds. `hops` are
the medians of the time between the writes of two successive stages. With `--against` both versions of the code run in
each repeat, and their order alternates. With several modes of local aggregation in `--local` each of them runs in each
repeat.

    PYTHONPATH=services:tests python tests/bench/bench_latency.py [--rates 5000,50000] [--against OTHER/services]
    [--seconds 30] [--repeats 1] [--busy 0] [--emit updates] [--keys 50000] [--table postgresql --mode replace]
    [--local none,buffer,windows]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import psycopg
import pyarrow as pa
import pymysql
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.bench_sink import DURABLE, durable_server
from bench.bench_soak import scraped
from helpers.databases import Server, TestDatabase, new_database
from helpers.kafka import BASE, Pipeline, Source, read
from helpers.waiting import until
from skewless.algorithms.hashing import partition_of_keys
from skewless.lab.local import java, kafka_process
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Supervisor
from skewless.sql.dialects import DATABASES
from skewless.wire.columns import read_table

PARTITIONS = 4
"""Partitions of the results."""
PORTION_S = 0.01
WARM_UP_S = 10.0
READY_S = 120.0
LATE_S = 10.0
"""Time in s that the reader waits for the results of the last probes."""
LOCAL_WINDOW_S = 5
WINDOW_S = {"updates": 60, "final": 1}
PROBE = re.compile(rb"probe-\d+")
AWAITED = 500
"""Probes that a query of a table looks for: those of 5 s."""
HOPS = ("tuples", "worker-input", "partials")
BUSY = "while True: pass"


def compile_fully() -> None:
    """Start the brokers of this process without `QUICK_START`, which slows them down later."""
    kafka_process.JVM = tuple(option for option in kafka_process.JVM if option not in java.QUICK_START)


def probe_keys(seconds: float) -> list[str]:
    """Return the keys of the probes. All belong to one partition of the results, so a reader needs this one only."""
    names = [f"probe-{number}" for number in range(round(8 * seconds / PORTION_S))]
    found: list[str] = np.array(names)[partition_of_keys(pa.array(names), PARTITIONS) == 0].tolist()
    return found


def feed(  # noqa: PLR0913, PLR0917 - the arguments of a process
    bootstrap: str, topic: str, rate: float, seconds: float, distinct: int, partitions: int, padding: int
) -> None:
    """Write records of these many distinct keys at this rate, and print when each probe was written.

    Each record has `padding` bytes in a field that the pipeline does not read.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    keys = np.minimum(np.random.default_rng(7).zipf(1.2, 1_000_000), distinct).tolist()
    probes = iter(probe_keys(seconds))
    field = b',"text":"%s"' % (b"x" * padding) if padding else b""
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        now, probe = time.time(), next(probes)
        stamp = int(now * 1000)
        due = int(elapsed * rate) - sent
        # A partition for each portion, as producers without keys do. One for each record sends as many requests.
        partition = int(elapsed / PORTION_S) % partitions
        for at in range(sent, sent + due):
            value = b'{"key":"key-%06d","value":1,"time":%d%s}' % (keys[at % len(keys)], stamp, field)
            producer.produce(topic, value, partition=partition)
        producer.produce(topic, json.dumps({"key": probe, "value": 1, "time": stamp}), partition=partition)
        sent += due
        producer.poll(0)
        print(probe, now)
        time.sleep(max(0.0, PORTION_S - (time.monotonic() - began - elapsed)))
    producer.flush()


@contextlib.contextmanager
def running(tested: Pipeline, code: Path) -> Iterator[Supervisor]:
    """Run all stages with this version of the code."""

    def command(stage: str, instance: int) -> list[str]:
        run = [sys.executable, "-m", "skewless", "run", stage, "--instance", str(instance), "--file", str(tested.file)]
        return ["env", f"PYTHONPATH={code}", *run]

    supervisor = Supervisor(tested.file, tested.settings, drain=False, logs=tested.folder, command=command)
    try:
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop()


class Usage:
    """CPU time and commits of all processes since this object was created."""

    def __init__(self, supervisor: Supervisor, broker: int) -> None:
        self._processes = {"broker": psutil.Process(broker)}
        self._ports = {}
        for name, replica in supervisor.processes.items():
            self._processes[replica.stage] = psutil.Process(replica.pid)
            self._ports[name] = replica.metrics_port
        self._began = time.monotonic()
        self._cpu, self._commits = self._now()

    def _now(self) -> tuple[dict[str, float], dict[str, float]]:
        cpu = {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}
        return cpu, {
            name: scraped(port)["skewless_commit_duration_seconds_count"] for name, port in self._ports.items()
        }

    def per_second(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return CPU seconds and commits by process, per second."""
        seconds, (cpu, commits) = time.monotonic() - self._began, self._now()
        return (
            {name: round((cpu[name] - before) / seconds, 3) for name, before in self._cpu.items()},
            {name: round((commits[name] - before) / seconds, 1) for name, before in self._commits.items()},
        )


Poll = Callable[[], Iterable[str]]
"""Waits for some milliseconds, and returns the keys of probes that are visible."""


@contextlib.contextmanager
def topic_reader(tested: Pipeline) -> Iterator[Poll]:
    """Read the results from the topic."""
    consumer = Consumer({"bootstrap.servers": tested.bootstrap, "group.id": "reader", "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(tested.settings.topic("aggregates"), 0, 0)])

    def poll() -> Iterator[str]:
        for message in consumer.consume(10_000, 0.005):
            if message.error() is None and (found := PROBE.search(message.key() or b"")):
                yield found.group().decode()

    yield poll
    consumer.close()


@contextlib.contextmanager
def table_reader(database: TestDatabase, seconds: float) -> Iterator[Poll]:
    """Query the table for the next probes, by the index of its keys."""
    awaited = probe_keys(seconds)
    with contextlib.closing(_connection(database)) as connection, contextlib.closing(connection.cursor()) as cursor:

        def poll() -> list[str]:
            time.sleep(0.005)
            names = ", ".join(f"'{probe}'" for probe in awaited[:AWAITED])
            key = database.quoted("key")
            with contextlib.suppress(pymysql.err.ProgrammingError, psycopg.errors.UndefinedTable, sqlite3.Error):
                cursor.execute(f"SELECT {key} FROM results WHERE {key} IN ({names})")
                found = {probe for (probe,) in cursor.fetchall()}
                awaited[:AWAITED] = [probe for probe in awaited[:AWAITED] if probe not in found]
                return list(found)
            return []

        yield poll


def _connection(database: TestDatabase) -> Any:
    if database.server is not None:
        return database.server.connect(database.name)
    return sqlite3.connect(database.url.removeprefix("sqlite://"), timeout=10)


def arrivals(poll: Poll, feeding: subprocess.Popen[str], supervisor: Supervisor, broker: int) -> dict[str, Any]:
    """Read results while records are written; returns the first result of each probe, and the resources of the run."""
    seen: dict[str, float] = {}
    usage, began, ends = None, time.monotonic(), None
    while ends is None or time.monotonic() < ends:
        for probe in poll():
            seen.setdefault(probe, time.time())
        for event in supervisor.poll(time.monotonic()):
            raise SystemExit(f"{event.name} {event.kind}: {event.detail}")
        if usage is None and time.monotonic() - began > WARM_UP_S:
            usage = Usage(supervisor, broker)
        if ends is None and feeding.poll() is not None:
            ends = time.monotonic() + LATE_S
            cpu, commits = usage.per_second() if usage else ({}, {})
    return {"seen": seen, "cpu_per_s": cpu, "commits_per_s": commits}


def hops(tested: Pipeline, sent: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """Return the median time from one topic to the next, from the timestamps of the records that contain the probes."""
    at: list[Mapping[str, float]] = [sent]
    for topic in HOPS:
        times: dict[str, float] = {}
        for record in read(tested.bootstrap, tested.settings.topic(topic)):
            if record.value and (found := PROBE.findall(_keys(record.value))):
                for probe in found:
                    times.setdefault(probe.decode(), record.timestamp / 1000)
        at.append(times)
    at.append(seen)
    names = ["splitter", "router", "worker", "later"]
    return {
        name: round(float(np.median([after[probe] - before[probe] for probe in sent if probe in after])), 3)
        for name, before, after in zip(names, at, at[1:], strict=False)
    }


def _keys(value: bytes) -> bytes:
    keys = read_table(value)["key"].unique().to_pylist()
    return " ".join(keys).encode()


def measure(  # noqa: PLR0913, PLR0917 - what a run depends on
    broker: Broker,
    folder: Path,
    code: Path,
    rate: float,
    args: argparse.Namespace,
    server: Server | None,
) -> dict[str, Any]:
    """Run a pipeline at one rate with one version of the code. `args.local` is one mode of local aggregation.

    With a table if there is a server or SQLite.
    """
    window_s, seconds = WINDOW_S[args.emit], WARM_UP_S + args.seconds
    local = {"mode": args.local} | ({"window_s": min(LOCAL_WINDOW_S, window_s)} if args.local == "windows" else {})
    database = new_database(args.table, lambda _dialect: cast("Server", server), folder) if args.table else None
    sink = {"table": "results", "mode": args.mode, "transaction_s": args.commit_interval}
    tested = Pipeline(
        broker.bootstrap,
        folder,
        Source(broker.bootstrap, args.partitions),
        splitter=BASE["splitter"] | {"local": local},
        topics={"aggregator_partitions": PARTITIONS},
        worker_input={"max_workers": args.workers},
        router={"workers": args.workers},
        transport={"commit_interval_s": args.commit_interval},
        worker={"pane_s": window_s},
        aggregator={"window_s": window_s, "emit": args.emit},
        replicas={"observer": args.observers},
        sink={**database.settings, **sink} if database else None,
    )
    with running(tested, code) as supervisor, tempfile.TemporaryFile("w+") as written:
        until(lambda: is_ready(supervisor), limit_s=READY_S)
        options = [tested.bootstrap, tested.source.topic, *map(str, (rate, seconds, args.keys))]
        options += map(str, (args.partitions, args.padding))
        feeding = subprocess.Popen([sys.executable, __file__, "--feed", *options], stdout=written, text=True)
        with table_reader(database, seconds) if database else topic_reader(tested) as poll:
            found = arrivals(poll, feeding, supervisor, broker.pid or 0)
        written.seek(0)
        sent = {probe: float(at) for probe, at in map(str.split, written)}
    first = min(sent.values()) + WARM_UP_S
    measured = {probe: at for probe, at in sent.items() if at >= first}
    seen = found.pop("seen")
    if args.emit == "final":
        ended = {probe: (at // window_s + 1) * window_s for probe, at in measured.items()}
        delays = [seen[probe] - at for probe, at in ended.items() if probe in seen]
    else:
        delays = [seen[probe] - at for probe, at in measured.items() if probe in seen]
        found["hops"] = hops(tested, measured, seen)
    p50, p95, p99, most = (round(float(each), 3) for each in np.quantile(delays, [0.5, 0.95, 0.99, 1.0]))
    return {
        "bench": "latency",
        "emit": args.emit,
        "local": args.local,
        "rate": rate,
        "workers": args.workers,
        "partitions": args.partitions,
        "padding": args.padding,
        "busy": args.busy,
        "table": args.table and f"{args.table}, {args.mode}",
        "probes": len(delays),
        "unseen": sum(probe not in seen for probe in measured),
        "p50_s": p50,
        "p95_s": p95,
        "p99_s": p99,
        "max_s": most,
        **found,
    }


def is_ready(supervisor: Supervisor) -> bool:
    """Return whether all processes are ready."""
    return all(scraped(replica.metrics_port).get("skewless_ready") for replica in supervisor.processes.values())


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run processes that use the CPU during the measurement."""
    children = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="5000,50000", help="records per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured time, after a warm-up")
    parser.add_argument("--warm-up", type=float, default=180.0, help="seconds in which the broker compiles its code")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--commit-interval", type=float, default=0.1)
    parser.add_argument("--emit", choices=sorted(WINDOW_S), default="updates")
    parser.add_argument("--observers", type=int, default=0)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the source")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--padding", type=int, default=0, help="bytes of a field that the pipeline does not read")
    parser.add_argument("--table", choices=list(DATABASES))
    parser.add_argument("--mode", choices=["replace", "merge"], default="replace")
    parser.add_argument("--busy", type=int, default=0, help="loops that use the CPU at the same time")
    parser.add_argument("--local", default="none", help="modes of local aggregation, separated by commas")
    parser.add_argument("--against", type=Path, help="folder of another version of the code")
    return parser


def main() -> None:
    args = parser().parse_args()
    compile_fully()
    versions = {"this": Path(__file__).resolve().parents[2] / "services"}
    if args.against:
        versions = {"against": args.against.resolve(), **versions}
    rates, modes = [float(rate) for rate in args.rates.split(",")], args.local.split(",")
    with contextlib.ExitStack() as stack:
        broker, folder = stack.enter_context(Broker()), Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(busy(args.busy))
        server = stack.enter_context(durable_server(args.table)) if args.table in DURABLE else None
        # The first run is not reported: the broker compiles its code in it, which makes later runs several times
        # faster.
        first = argparse.Namespace(**{**vars(args), "seconds": args.warm_up, "local": modes[0]})
        measure(broker, folder, versions["this"], max(rates), first, server)
        for repeat, rate in itertools.product(range(args.repeats), rates):
            # The order alternates, because the broker is faster in later runs.
            runs = sorted(itertools.product(versions.items(), modes), reverse=repeat % 2 == 1)
            for (name, code), mode in runs:
                one = argparse.Namespace(**{**vars(args), "local": mode})
                found = measure(broker, folder, code, rate, one, server)
                print(json.dumps({"code": name, "repeat": repeat} | found), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--feed"]:
        bootstrap, topic, rate, seconds, *counts = sys.argv[2:]
        feed(bootstrap, topic, float(rate), float(seconds), *map(int, counts))
    else:
        main()
