"""CPU time of an aggregation, exactly once: Skewless, Flink and Kafka Streams, one after the other on one broker.

Each system counts and sums the values of each key in tumbling windows of 60 s: JSON records with Zipf 1.1 over 50,000
keys, 1,000 records per second of event time, in 4 partitions. It starts without state, reads the topic to its end,
writes the final results to a topic, and ends. The results must equal a plain count of the records, otherwise the
benchmark fails. All systems commit every 500 ms.

`skewless` and `buffer` are `skewless up --drain` with `grouping: even`, 8 workers and `emit: final`, without and with
`splitter.local.mode: buffer`. Flink runs in one JVM with parallelism 2. It parses with Jackson's streaming parser,
reuses objects, aggregates in each source task before it partitions by key, and keeps its state on the heap. Kafka
Streams runs in one JVM with two threads. It uses the same parser, has a cache of 128 MB and suppresses updates. Both
JVMs have a heap of 1 GB at most.

One JSON line per run: CPU seconds of all processes of the system including their start, CPU seconds of the broker, the
peak of the resident memory, summed over the processes, and the wall time. `--table FILE` prints the table of
docs/explanation/performance.md from these lines, and measures nothing.

    PYTHONPATH=services:tests python tests/bench/bench_peers.py [--records 10000000] [--repeats 1]
    [--systems skewless,buffer,flink,streams]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import yaml
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bench.bench_latency import compile_fully
from bench.bench_pipeline import pipeline, produce
from bench.java_programs import COUNT, FLINK, compiled
from helpers.kafka import create_topics
from skewless.lab.local.broker import Broker

SYSTEMS = {
    "skewless": "Skewless",
    "buffer": "Skewless, `splitter.local.mode: buffer`",
    "flink": "Flink",
    "streams": "Kafka Streams",
}
BASELINE = "flink"
"""System whose records per CPU second are 1 in the column of the ratio."""
SOURCE = "events"
PARTITIONS = 4
WINDOW_MS, COMMIT_MS = 60_000, 500
PARALLELISM = 2
GRACE_MS = 3_600_000
"""How much event time a source partition may be behind another one. Kafka Streams drops later records."""
LOOK_S = 0.2
LIMIT_S = 900.0
Results = dict[tuple[str, int], tuple[int, int]]
"""Count and sum by key and start of the window."""


class Record(msgspec.Struct):
    """A source record."""

    key: str
    value: int
    time: int


class Result(msgspec.Struct):
    """A result of any of the systems."""

    key: str
    window_start: int
    count: int
    sum: int


class Usage(NamedTuple):
    """What the processes of a command have used."""

    cpu_s: float
    peak_bytes: int
    wall_s: float


def values(bootstrap: str, topic: str) -> Iterator[bytes]:
    """Yield the values of the committed records of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    ended = 0
    while ended < len(partitions):
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                yield message.value() or b""
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended += 1
    consumer.close()


def plain_count(bootstrap: str) -> Results:
    """Count and sum the records of the source topic in one dictionary each."""
    decode = msgspec.json.Decoder(Record).decode
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    for record in map(decode, values(bootstrap, SOURCE)):
        group = record.key, record.time // WINDOW_MS * WINDOW_MS
        counts[group] += 1
        sums[group] += record.value
    return {group: (count, sums[group]) for group, count in counts.items()}


def check(bootstrap: str, topic: str, expected: Results) -> None:
    """Exit if the results in a topic are not the expected ones, once each."""
    decode = msgspec.json.Decoder(Result).decode
    read = list(map(decode, values(bootstrap, topic)))
    results = {(result.key, result.window_start): (result.count, result.sum) for result in read}
    if len(read) != len(results) or results != expected:
        wrong = sum(results.get(group) != row for group, row in expected.items())
        raise SystemExit(f"{topic}: {len(read)} results for {len(expected)} groups, {wrong} missing or different")


def used(command: Sequence[str], folder: Path) -> Usage:
    """Run a command and return what it and all of its child processes have used."""
    began, peak = time.monotonic(), 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    log = folder / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=folder)
    process = psutil.Process(child.pid)
    pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    while not pid:
        if time.monotonic() - began > LIMIT_S:
            child.terminate()
        resident = 0
        with contextlib.suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    resident += each.memory_info().rss
        peak = max(peak, resident)
        time.sleep(LOOK_S)
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command!r} ended with {child.returncode}:\n{log.read_text()[-3000:]}")
    return Usage(usage.ru_utime + usage.ru_stime, peak, time.monotonic() - began)


def skewless(bootstrap: str, name: str, folder: Path, local_mode: str) -> tuple[Sequence[str], str]:
    """Write a pipeline file; returns the command that drains the topic, and the topic of its results."""
    document = pipeline(name, bootstrap, "exactly_once", "even", SOURCE)
    document["splitter"]["local"] = {"mode": local_mode}
    document["aggregator"] = {"emit": "final", "aggregates": ["count", "sum"], "window_s": WINDOW_MS / 1000}
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    options = ("--drain", "--log-dir", str(folder / "logs"), "-f", str(file))
    return [sys.executable, "-m", "skewless", "up", *options], f"{name}.aggregates"


def java(  # noqa: PLR0913, PLR0917 - what a run depends on
    system: str, program: Sequence[str], bootstrap: str, name: str, folder: Path, records: int, results: int
) -> tuple[Sequence[str], str]:
    """Create the topic of the results; returns the command of Flink or Kafka Streams, and the topic."""
    topic = f"{name}.out"
    create_topics(bootstrap, {topic: PARTITIONS})
    times = (str(WINDOW_MS), str(COMMIT_MS), str(folder / "state"))
    if system == "flink":
        return [*program, bootstrap, SOURCE, topic, *times, str(PARALLELISM)], topic
    final = map(str, (PARALLELISM, GRACE_MS, PARTITIONS, records, results))
    return [*program, bootstrap, name, SOURCE, topic, *times, *final], topic


def measured(
    bootstrap: str, broker: psutil.Process, systems: Sequence[str], records: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Let each system aggregate the topic, in each repeat."""
    produce(bootstrap, SOURCE, records)
    expected = plain_count(bootstrap)
    with tempfile.TemporaryDirectory() as classes:
        sources = {"flink": FLINK, "streams": COUNT}
        programs = {name: compiled(source, Path(classes)) for name, source in sources.items() if name in systems}
        for repeat in range(repeats):
            for system in systems:
                with tempfile.TemporaryDirectory() as temporary:
                    name, folder = f"{system}-{repeat}", Path(temporary)
                    if system in programs:
                        arguments = (programs[system], bootstrap, name, folder, records, len(expected))
                        command, topic = java(system, *arguments)
                    else:
                        command, topic = skewless(bootstrap, name, folder, "buffer" if system == "buffer" else "none")
                    before = sum(broker.cpu_times()[:2])
                    usage = used(command, folder)
                    broker_s = sum(broker.cpu_times()[:2]) - before
                check(bootstrap, topic, expected)
                yield {
                    "bench": "peers",
                    "system": system,
                    "records": records,
                    "results": len(expected),
                    "records_per_cpu_s": round(records / usage.cpu_s),
                    "cpu_s": round(usage.cpu_s, 2),
                    "broker_cpu_s": round(broker_s, 2),
                    "peak_rss_mb": round(usage.peak_bytes / 1e6),
                    "wall_s": round(usage.wall_s, 1),
                    "load": round(os.getloadavg()[0], 1),
                }


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the documentation, with the smallest and the largest figure of the runs."""
    columns = {
        "records per CPU second": "records_per_cpu_s",
        "CPU time, s": "cpu_s",
        "CPU time of the broker, s": "broker_cpu_s",
        "memory, MB": "peak_rss_mb",
        "wall time, s": "wall_s",
    }
    runs = {system: [line for line in lines if line["system"] == system] for system in SYSTEMS}
    rates = {
        system: statistics.mean(line["records_per_cpu_s"] for line in found) for system, found in runs.items() if found
    }
    rows = [f"| system | ratio | {' | '.join(columns)} |", "| --- " * (len(columns) + 2) + "|"]
    for system, rate in rates.items():
        figures = [sorted({line[name] for line in runs[system]}) for name in columns.values()]
        cells = [" to ".join(f"{figure:,}" for figure in dict.fromkeys((each[0], each[-1]))) for each in figures]
        rows.append(f"| {SYSTEMS[system]} | {rate / rates[BASELINE]:.1f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--table", type=Path, help="print the table of these lines, and measure nothing")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    compile_fully()
    with Broker() as broker:
        process = psutil.Process(broker.pid)
        for line in measured(broker.bootstrap, process, options.systems.split(","), options.records, options.repeats):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
