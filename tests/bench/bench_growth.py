"""Measures what a pipeline costs as its load grows: records, keys of a window, workers, partitions, sizes of records.

Each run differs from the first one in one number. `drain` writes JSON records of uniform keys into a topic of a local
broker, all in one window, and measures `skewless up --drain` with the default settings: CPU time of each stage and of
the broker per record, without the start of the processes, peak memory, and bytes on the broker after compression.
`latency` measures the time from a record to the first result that counts it, at a steady rate, with the default
settings. `restore` processes the records without the end of the input, so that the window stays open, and measures the
time in which an aggregator restores it after a restart. One JSON line per run.

    PYTHONPATH=services:tests python tests/bench/bench_growth.py [--dimensions workers,keys] [--lines FILE]
        [--measures drain,latency,restore] [--page docs/reference/growth.md]

With --lines the lines are appended to a file, and --page makes the page from the file's lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer

from bench import bench_latency, growth_page
from bench.bench_costs import log_bytes
from bench.bench_soak import scraped
from helpers.kafka import START_MS, Pipeline, Source
from helpers.waiting import until
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Supervisor

CODE = Path(__file__).resolve().parents[2] / "services"
WINDOW_S = 3_600
LOOK_S = 0.1
FEW_RECORDS = 1_000
"""Records of the run that measures the start of the processes."""
PROCESSED_S = 600
LATENCY_RATE = 5_000
LATENCY_S = 20.0
TEXT_BYTES = 2**20
"""Half the length of the text from which records take their padding."""
FIELDS_BYTES = 61
"""Bytes of a record of the latency measurement without its padding."""
BLOCK = 100
"""Successive records in one partition."""


@dataclass(frozen=True)
class Load:
    """What a run has to process."""

    records: int = 2_000_000
    keys: int = 50_000
    workers: int = 8
    partitions: int = 4
    record_bytes: int = 100


DIMENSIONS = {
    "records": (100_000, 1_000_000, 10_000_000),
    "keys": (1_000, 10_000, 100_000, 1_000_000),
    "workers": (32, 128, 256),
    "partitions": (1, 16, 64),
    "record_bytes": (50, 1_000, 10_000),
}
"""The numbers of each dimension besides that of `Load`."""
LARGE = {"records": (40_000_000,), "keys": (10_000_000,)}
"""Numbers whose runs take several minutes and need gigabytes."""
BYTES = 4_000_000_000
"""Bytes of records that a run writes at most. Runs with large records have fewer of them."""


def loads(dimension: str, numbers: tuple[int, ...]) -> Iterator[Load]:
    """Yield a load for each number."""
    for number in numbers:
        load = replace(Load(), **{dimension: number})
        # Each key has several records, and the last records fit on a disk.
        yield replace(load, records=min(max(load.records, 2 * load.keys), BYTES // load.record_bytes))


def fill(broker: Broker, source: Source, load: Load) -> None:
    """Write the records."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        | {"queue.buffering.max.kbytes": 262_144, "compression.type": "lz4"}
    )
    random, step = np.random.default_rng(7), 0.9 * WINDOW_S * 1000 / load.records
    record = b'{"key":"key-%09d","value":1,"time":%d,"text":"%s"}'
    length = max(0, load.record_bytes - len(record % (0, START_MS, b"")))
    # Compresses by half, as text of a log does.
    text = random.bytes(TEXT_BYTES).hex().encode()
    for first in range(0, load.records, 1_000_000):
        keys = random.integers(0, load.keys, min(1_000_000, load.records - first)).tolist()
        for number, key in enumerate(keys, first):
            at = number * 4_096 % TEXT_BYTES
            value = record % (key, START_MS + int(number * step), text[at : at + length])
            while True:
                try:
                    producer.produce(source.topic, value, partition=number // BLOCK % load.partitions)
                    break
                except BufferError:
                    producer.poll(0.05)
    producer.flush()


def pipeline(broker: Broker, folder: Path, source: Source, load: Load) -> Pipeline:
    """Return a pipeline with the default settings, and as much memory for states as the load needs."""
    state_bytes = max(2**29, 150 * load.keys)
    defaults = dict.fromkeys(("topics", "event_time", "transport"))
    return Pipeline(
        broker.bootstrap,
        folder,
        source,
        **defaults,
        worker_input={"max_workers": load.workers},
        router={"workers": load.workers},
        aggregator={"window_s": WINDOW_S, "max_state_bytes": state_bytes},
    )


def drain(broker: Broker, folder: Path, load: Load) -> dict[str, Any]:
    """Process the records once, and return what it costs."""
    source = Source(broker.bootstrap, load.partitions)
    fill(broker, source, load)
    tested, server = pipeline(broker, folder, source, load), psutil.Process(broker.pid)
    written, broker_s, began = log_bytes(folder / "broker"), sum(server.cpu_times()[:2]), time.monotonic()
    cpu_s, peak = _drained(tested, load.records)
    seconds, broker_s = time.monotonic() - began, sum(server.cpu_times()[:2]) - broker_s
    written = log_bytes(folder / "broker") - written
    return {
        **{f"{stage}_cpu_s": round(spent, 3) for stage, spent in cpu_s.items()},
        "broker_cpu_s": round(broker_s, 2),
        "seconds": round(seconds, 1),
        "peak_mb": {stage: round(size / 1e6) for stage, size in peak.items()},
        "bytes": sum(size for topic, size in written.items() if topic.startswith(tested.name)),
    }


def _drained(tested: Pipeline, records: int) -> tuple[dict[str, float], dict[str, int]]:
    """Run `skewless up --drain`. Returns CPU seconds and peak memory in bytes by stage."""
    cpu_s: dict[str, float] = {}
    peak: dict[str, int] = {}
    with (tested.folder / "up.log").open("w+") as log:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "skewless", "up", "--drain", "--file", str(tested.file)]
        child = psutil.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        while child.poll() is None:
            with contextlib.suppress(psutil.Error):
                for process in child.children(recursive=True):
                    stage, _, number = process.name().rpartition("-")
                    if number.isdigit():
                        cpu_s[stage] = sum(process.cpu_times()[:2])
                        peak[stage] = max(peak.get(stage, 0), process.memory_info().rss)
            time.sleep(LOOK_S)
        log.seek(0)
        printed = log.read()
    if child.returncode or f"{records:,} records: " not in printed or "0 late, 0 invalid" not in printed:
        raise SystemExit(f"`skewless up --drain` ended with {child.returncode}:\n{printed[-3000:]}")
    return cpu_s, peak


def restore(broker: Broker, folder: Path, load: Load) -> dict[str, Any]:
    """Measure the time in which an aggregator restores the state of an open window."""
    source = Source(broker.bootstrap, load.partitions)
    fill(broker, source, load)
    tested = pipeline(broker, folder, source, load)
    with bench_latency.running(tested, CODE) as supervisor:
        until(lambda: _metrics(supervisor).get("skewless_tuples_total") == load.records, limit_s=PROCESSED_S)
    with bench_latency.running(tested, CODE) as supervisor:
        until(lambda: bench_latency.is_ready(supervisor), limit_s=bench_latency.READY_S)
        values = _metrics(supervisor)
    return {
        "restore_s": round(values["skewless_restore_duration_seconds_sum"], 2),
        "restored_records": values["skewless_restored_records_total"],
        "state_bytes": values["skewless_state_bytes"],
    }


def _metrics(supervisor: Supervisor) -> dict[str, float]:
    """Return the metrics of the aggregator. Empty while it does not answer."""
    (replica,) = (each for each in supervisor.processes.values() if each.stage == "aggregator")
    return scraped(replica.metrics_port)


def latency(broker: Broker, folder: Path, load: Load) -> dict[str, Any]:
    """Measure the latency at a steady rate."""
    args = bench_latency.parser().parse_args([])
    args.local, args.commit_interval, args.seconds = "none", 0.5, LATENCY_S
    args.keys, args.workers, args.partitions = load.keys, load.workers, load.partitions
    args.padding = max(0, load.record_bytes - FIELDS_BYTES)
    found = bench_latency.measure(broker, folder, CODE, LATENCY_RATE, args, None)
    return {name: found[name] for name in ("rate", "probes", "unseen", "p50_s", "p99_s", "max_s")}


MEASURES = {"drain": drain, "latency": latency, "restore": restore}
MEASURED = {
    "drain": tuple(DIMENSIONS),
    "latency": ("keys", "workers", "partitions", "record_bytes"),
    "restore": ("keys",),
}
"""The dimensions on which each measure depends."""


def runs(dimensions: list[str], measures: list[str], *, large: bool) -> Iterator[tuple[str, str, Load]]:
    """Yield the measure, the dimension and the load of each run."""
    for measure in measures:
        if measure == "drain":
            yield measure, "start", Load(records=FEW_RECORDS, keys=FEW_RECORDS)
        yield measure, "base", Load()
        for dimension in dimensions:
            if dimension in MEASURED[measure]:
                numbers = LARGE.get(dimension, ()) if large else DIMENSIONS[dimension]
                yield from ((measure, dimension, load) for load in loads(dimension, numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", default=",".join(DIMENSIONS))
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--large", action="store_true", help=f"only the largest numbers: {LARGE}")
    parser.add_argument("--lines", type=Path, help="file to which the lines are appended")
    parser.add_argument("--page", type=Path, help="page to make from the file of --lines")
    options = parser.parse_args()
    bench_latency.compile_fully()
    planned = runs(options.dimensions.split(","), options.measures.split(","), large=options.large)
    if options.measures:
        with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "broker") as broker:
            drain(broker, Path(name), Load())  # the broker compiles its code
            for measure, dimension, load in planned:
                found = MEASURES[measure](broker, Path(name), load)
                run = {"bench": "growth", "measure": measure, "dimension": dimension, **asdict(load), **found}
                machine = {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)}
                line = json.dumps(run | machine)
                print(line, flush=True)
                if options.lines:
                    with options.lines.open("a") as file:
                        file.write(line + "\n")
    if options.page:
        lines = [json.loads(line) for line in options.lines.read_text().splitlines()]
        options.page.write_text(growth_page.render(lines))


if __name__ == "__main__":
    main()
