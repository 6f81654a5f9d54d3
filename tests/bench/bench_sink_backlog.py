"""A sink that is N results behind: memory and rebalances while its database is away, and rows per second afterwards.

A real server with the durability of its defaults. The results are in the topic before the sink starts, in windows of
200,000 keys. When the sink has stored a tenth of them, the server is killed. It is started again after `--away`
seconds, and the sink stores the rest. One JSON line per database.

    PYTHONPATH=services:tests python tests/bench/bench_sink_backlog.py [--dialects postgresql,mysql]
    [--rows 10000000] [--away 600]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from bench.bench_sink import durable_server, stored_rows
from helpers.databases import Server, new_database
from helpers.kafka import Pipeline, Source
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker
from skewless.lab.local.ports import find_free_ports

PARTITIONS = 4
EVERY_S = 0.5
LIMIT_S = 3_600.0
MEGABYTE = 2**20


class SinkProcess:
    """The process of the sink, its memory, and its metrics."""

    def __init__(self, tested: Pipeline) -> None:
        (self._port,) = find_free_ports(1)
        command = [sys.executable, "-m", "skewless", "run", "sink", "--file", str(tested.file)]
        environment = {**os.environ, "SKEWLESS__METRICS__PORT": str(self._port)}
        self.child = child_process.start(command, environment, log=tested.folder / "sink.log")
        self._process = psutil.Process(self.child.pid)
        self.peak_bytes = 0

    def metrics(self) -> Counter[str]:
        """Read the metrics, summed over their labels; nothing while the process does not listen."""
        found: Counter[str] = Counter()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return found
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] += int(sample.value)
        return found

    def stored(self) -> int:
        """Return the number of rows that were stored, and sample the memory."""
        if self.child.poll() is not None:
            raise SystemExit(f"the sink ended with exit code {self.child.returncode}")
        self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)
        return self.metrics()["skewless_sink_rows_total"]

    def wait(self, rows: int) -> float:
        """Wait until so many rows are stored; returns the seconds."""
        began = time.monotonic()
        until(lambda: self.stored() >= rows, every_s=EVERY_S, limit_s=LIMIT_S)
        return time.monotonic() - began


def write_results(tested: Pipeline, rows: int) -> None:
    producer = Producer({"bootstrap.servers": tested.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    topic = tested.settings.topic("aggregates")
    for number, result in enumerate(stored_rows(rows)):
        while True:
            try:
                producer.produce(topic, result.value, result.key, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not accept all results")


def measured(bootstrap: str, folder: Path, dialect: str, server: Server, args: argparse.Namespace) -> dict[str, Any]:
    database = new_database(dialect, lambda _dialect: server, folder)
    tested = Pipeline(
        bootstrap,
        folder,
        Source(bootstrap, PARTITIONS),
        topics={"aggregator_partitions": PARTITIONS},
        aggregator={"aggregates": ["count", "sum", "mean", "max"]},
        sink={**database.settings, "table": "results"},
    )
    write_results(tested, args.rows)
    sink = SinkProcess(tested)
    try:
        sink.wait(args.rows // 10)
        server.kill()
        before, peak_before = sink.metrics(), sink.peak_bytes
        sink.peak_bytes, ends = 0, time.monotonic() + args.away
        until(lambda: sink.stored() < 0 or time.monotonic() >= ends, every_s=EVERY_S, limit_s=args.away + 60)
        away, peak_away = sink.metrics(), sink.peak_bytes
        server.start()
        sink.peak_bytes = 0
        at_return = sink.stored()
        seconds = sink.wait(args.rows)
        child_process.stop(sink.child)
    finally:
        sink.child.kill()
    ((rows,),) = database.query("SELECT count(*) FROM results")
    return {
        "bench": "sink backlog",
        "dialect": dialect,
        "rows": args.rows,
        "away_s": args.away,
        "rebalances_while_away": away["skewless_rebalances_total"] - before["skewless_rebalances_total"],
        "peak_mb": {
            name: round(peak / MEGABYTE)
            for name, peak in (("before", peak_before), ("away", peak_away), ("after", sink.peak_bytes))
        },
        "rows_per_s_after": round((args.rows - at_return) / seconds),
        "in_table": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialects", default="postgresql,mysql")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--away", type=float, default=600.0, help="seconds without a database")
    args = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for dialect in args.dialects.split(","):
            with durable_server(dialect) as server:
                line = measured(broker.bootstrap, Path(folder), dialect, server, args)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
