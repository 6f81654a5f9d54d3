"""Measures what a pipeline costs at 10,000 source records per second: CPU time, memory, and bytes on the brokers.

Each variant changes one setting of the default pipeline, which has a process per stage. One JSON line per variant: CPU
seconds per second of the stages and of the broker, the memory of the stages, and the bytes that the broker has written
for each source record, by topic and after compression. `source` is the source topic itself, without compression.
`--table FILE` prints the table of docs/explanation/performance.md from these lines, and measures nothing.

    PYTHONPATH=services:tests python tests/bench/bench_costs.py [--rate 10000] [--seconds 20] [--variants default,one]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.bench_latency import compile_fully
from bench.bench_one_process import PARTITIONS, WARM_UP_S, commands, feed, is_ready, measured
from bench.java_programs import COUNT, compiled
from helpers.kafka import STAGES, Pipeline, Source
from helpers.waiting import until
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.settings import TransportSettings
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker

REPLICATION_FACTOR = 3
"""Copies of each byte on the brokers of a cluster. Computed: the broker of this benchmark is one node."""
PADDING = 150
"""Bytes of a field of the records that the pipeline does not read."""
STREAMS = "streams"
"""Name of the variant that runs Kafka Streams instead of the pipeline."""
WINDOW_MS, COMMIT_MS = 60_000, 500
"""Windows and commits of Kafka Streams: the defaults of a pipeline."""
SOURCE = "source"
"""Name of the source topic in the lines."""


class Variant(NamedTuple):
    """A pipeline that differs from the default one in one setting."""

    description: str
    parts: Mapping[str, Mapping[str, Any]] = {}
    processes: Sequence[str] = STAGES


VARIANTS = {
    "default": Variant("default settings"),
    "one": Variant("one process (`skewless run all`)", processes=("all",)),
    "key": Variant("`router.grouping: key`", {"router": {"grouping": "key"}}),
    "shuffle": Variant("`router.grouping: shuffle`", {"router": {"grouping": "shuffle"}}),
    "buffer": Variant("`splitter.local.mode: buffer`", {"splitter": {"local": {"mode": "buffer"}}}),
    "final": Variant("`aggregator.emit: final`", {"aggregator": {"emit": "final"}}),
    "100ms": Variant("`transport.commit_interval_s: 0.1`", {"transport": {"commit_interval_s": 0.1}}),
    "uncompressed": Variant("`transport.compression: none`", {"transport": {"compression": "none"}}),
    "zstd": Variant("`transport.compression: zstd`", {"transport": {"compression": "zstd"}}),
    STREAMS: Variant("Kafka Streams: windowed count, same windows and commits"),
    "arrow": Variant("`topics.columns: arrow`", {"topics": {"columns": "arrow"}}),
    "1s": Variant("`transport.commit_interval_s: 1`", {"transport": {"commit_interval_s": 1}}),
    "at-least-once": Variant(
        "`transport.guarantee: at_least_once`",
        {"transport": {"guarantee": "at_least_once", "commit_interval_s": TransportSettings().commit_interval_s}},
    ),
}


@contextlib.contextmanager
def streams(tested: Pipeline, source: Source, folder: Path) -> Iterator[tuple[list[int], list[psutil.Process]]]:
    """Run Kafka Streams until the end of the block, with topics named like those of the pipeline."""
    topics = (source.topic, tested.settings.topic("aggregates"), str(WINDOW_MS), str(COMMIT_MS), str(folder / "state"))
    command = [*compiled(COUNT, folder), tested.settings.kafka.bootstrap_servers, f"{tested.name}.streams", *topics]
    child = child_process.start(command, log=folder / "streams.log")
    try:
        yield [], [psutil.Process(child.pid)]
    finally:
        child.terminate()
        child.wait(60)


def log_bytes(folder: Path) -> Counter[str]:
    """Return the bytes of the log segments of a broker by topic."""
    found: Counter[str] = Counter()
    for segment in folder.glob("**/*.log"):
        with contextlib.suppress(OSError):  # the broker deletes segments
            found[segment.parent.name.rpartition("-")[0]] += segment.stat().st_size
    return found


def run(  # noqa: PLR0913, PLR0917 - what a run depends on
    name: str, broker: Broker, folder: Path, rate: float, seconds: float, uniform_keys: int
) -> dict[str, Any]:
    """Measure one variant."""
    variant = VARIANTS[name]
    source = Source(broker.bootstrap, PARTITIONS)
    # The other settings are the defaults, not those of the tests.
    defaults = dict.fromkeys(("worker_input", "router", "topics", "event_time", "transport"))
    parts: dict[str, Mapping[str, Any] | None] = {**defaults, **variant.parts}
    tested = Pipeline(broker.bootstrap, folder, source, **parts)
    offsets, over = OffsetReader(tested.settings.kafka), threading.Event()
    arguments = (broker.bootstrap, source.topic, rate, over, PADDING, uniform_keys)
    feeder = threading.Thread(target=feed, args=arguments)
    running = streams(tested, source, folder) if name == STREAMS else commands(tested, variant.processes)
    with running as (ports, processes):
        until(lambda: all(map(is_ready, ports)))
        feeder.start()
        time.sleep(2 * WARM_UP_S)
        records, segments = sum(offsets.end(source.topic).values()), log_bytes(folder)
        resources = measured(processes, psutil.Process(broker.pid), seconds)
        records = sum(offsets.end(source.topic).values()) - records
        written = log_bytes(folder) - segments
        over.set()
        feeder.join()
    names = {source.topic: SOURCE} | {
        topic: topic.removeprefix(f"{tested.name}.") for topic in written if topic.startswith((f"{tested.name}.", "__"))
    }
    return {
        "variant": name,
        **resources,
        "records_per_s": round(records / seconds),
        "uniform_keys": uniform_keys,
        "bytes_per_record": {names[topic]: round(written[topic] / records, 1) for topic in sorted(names)},
        "load_average": round(os.getloadavg()[0], 1),
    }


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the documentation."""
    # Not the CPU time of the broker: its JVM compiles code in the first minutes.
    columns = ("setting", "cores", "memory", "bytes per record", f"with {REPLICATION_FACTOR} replicas, per source byte")
    rows = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for line in lines:
        by_topic = line["bytes_per_record"]
        written = sum(by_topic.values()) - by_topic[SOURCE]
        rows.append(
            f"| {VARIANTS[line['variant']].description} | {line['cpu']:.2f} | {line['pss_mb']:,} MB | "
            f"{written:.0f} | {REPLICATION_FACTOR * written / by_topic[SOURCE]:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10_000, help="source records per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of each measurement")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--keys", type=int, default=0, help="keys of the same frequency instead of skewed ones")
    parser.add_argument("--table", type=Path, help="print the table of these lines, and measure nothing")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    compile_fully()
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        for name in options.variants.split(","):
            print(json.dumps(run(name, broker, Path(folder), options.rate, options.seconds, options.keys)), flush=True)


if __name__ == "__main__":
    main()
