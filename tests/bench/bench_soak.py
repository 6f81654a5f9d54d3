"""Resident memory and allocated blocks of every process of a pipeline that runs for S seconds at R records/s.

Event time is the wall clock, so windows open, close and expire continuously. One JSON line at the end. The first third
of the run is warm-up. Blocks are flat when they grow by less than GROWTH_PER_S. Resident memory is flat when its peak
in the last third is at most GROWTH_SHARE above the peak in the second third.

    PYTHONPATH=tests python tests/bench/bench_soak.py --seconds 3600 --rate 20000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from prometheus_client.parser import text_string_to_metric_families

from helpers.kafka import Pipeline, Sent, Source
from helpers.waiting import until
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Supervisor

PARTITIONS = 4
KEYS = 50_000
LOOKS = 60
"""Number of points of each series in a long run."""
WINDOW_S = 10
STRETCH_S = 2 * WINDOW_S
"""Minimum seconds between two points. A window closes in each interval, so its minimum of blocks has no keys of a
window.
"""
PORTION_S = 0.05
READY_S = 300.0
SCRAPE_S = 1.0
GROWTH_PER_S = 5.0
"""Blocks per second. A leak of one block per batch, at ten batches a second, is twice as much."""
GROWTH_SHARE = 0.1
SOURCE_BYTES = 256 * 2**20
"""Records that are retained of each source partition, so that an hour fits on a small disk."""
MEGABYTE = 2**20

Series = Mapping[str, list[tuple[float, int, int]]]
"""Seconds since the start, fewest blocks and most resident bytes in an interval, by process."""


class Load(threading.Thread):
    """Writes records with Zipf-distributed keys and the current time, at a steady rate until the end of the block."""

    def __init__(self, source: Source, rate: float) -> None:
        super().__init__(name="load")
        self._source = source
        self._rate = rate
        self._over = threading.Event()
        self.sent = 0
        self.seconds = 0.0

    def run(self) -> None:
        """Write the records that are due, in portions."""
        rng, began = np.random.default_rng(7), time.monotonic()
        while not self._over.wait(PORTION_S):
            due = int((time.monotonic() - began) * self._rate) - self.sent
            keys = np.minimum(rng.zipf(1.2, due), KEYS).tolist()
            self._source.send(_records(keys))
            self.sent += due
            self.seconds = time.monotonic() - began

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def _records(keys: list[int]) -> Iterator[Sent]:
    now = time.time_ns() // 1_000_000
    for at, key in enumerate(keys):
        yield at % PARTITIONS, b'{"key":"key-%06d","value":1,"time":%d}' % (key, now)


def bounded(bootstrap: str, topic: str) -> None:
    """Delete old records that have been read."""
    entries = {"retention.bytes": SOURCE_BYTES, "segment.bytes": SOURCE_BYTES // 8}
    expected = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in entries.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=expected)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@contextlib.contextmanager
def running(tested: Pipeline) -> Iterator[Supervisor]:
    """Run all stages, with their garbage collected every few seconds."""

    def command(stage: str, instance: int) -> list[str]:
        run = ["run", stage, "--instance", str(instance), "--file", str(tested.file)]
        return [sys.executable, str(Path(__file__).with_name("collecting_process.py")), *run]

    supervisor = Supervisor(tested.file, tested.settings, drain=False, logs=tested.folder, command=command)
    try:
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop()


def scraped(port: int) -> dict[str, float]:
    """Read the metrics of a process. Empty while it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def observe(supervisor: Supervisor, seconds: float) -> Series:
    """Scrape all processes every second. A process that must be restarted is an error."""
    series: defaultdict[str, list[tuple[float, int, int]]] = defaultdict(list)
    until(lambda: _ready(supervisor), limit_s=READY_S)
    began = time.monotonic()
    looks = max(3, min(LOOKS, int(seconds / STRETCH_S)))
    for look in range(1, looks + 1):
        lowest: dict[str, int] = {}
        highest: dict[str, int] = {}
        while time.monotonic() < began + seconds * look / looks:
            time.sleep(SCRAPE_S)
            for event in supervisor.poll(time.monotonic()):
                raise SystemExit(f"{event.name} {event.kind}: {event.detail}")
            for name, found in _all(supervisor):
                blocks = int(found["skewless_allocated_blocks"])
                resident = int(found["process_resident_memory_bytes"])
                # The number of blocks varies with garbage, so the minimum is the number of live blocks.
                lowest[name] = min(blocks, lowest.get(name, blocks))
                highest[name] = max(resident, highest.get(name, 0))
        for name, blocks in lowest.items():
            series[name].append((round(time.monotonic() - began, 1), blocks, highest[name]))
    return series


def _all(supervisor: Supervisor) -> Iterator[tuple[str, dict[str, float]]]:
    for name, replica in supervisor.processes.items():
        if found := scraped(replica.metrics_port):
            yield name, found


def _ready(supervisor: Supervisor) -> bool:
    ready = [found["skewless_ready"] for _, found in _all(supervisor)]
    return len(ready) == len(supervisor.processes) and all(ready)


def verdict(points: list[tuple[float, int, int]]) -> dict[str, Any]:
    """Return whether one process is flat."""
    times, blocks, resident = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    third = len(times) // 3
    slope = float(np.polyfit(times[third:], blocks[third:], 1)[0])
    middle, last = resident[third : 2 * third].max(), resident[2 * third :].max()
    return {
        "blocks_per_s": round(slope, 2),
        "rss_mb_middle": round(middle / MEGABYTE),
        "rss_mb_last": round(last / MEGABYTE),
        "flat": slope < GROWTH_PER_S and bool(last <= middle * (1 + GROWTH_SHARE)),
    }


def measure(bootstrap: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run a pipeline; returns the growth of its processes."""
    source = Source(bootstrap, PARTITIONS)
    bounded(bootstrap, source.topic)
    tested = Pipeline(
        bootstrap,
        folder,
        source,
        topics={"aggregator_partitions": PARTITIONS},
        worker_input={"max_workers": PARTITIONS},
        router={"workers": PARTITIONS},
        transport={"commit_interval_s": args.commit_interval},
        worker={"pane_s": WINDOW_S / 2},
        aggregator={"window_s": WINDOW_S, "closed_window_retention_s": WINDOW_S},
        observer={"tick_s": WINDOW_S},
    )
    with running(tested) as supervisor, Load(source, args.rate) as load:
        series = observe(supervisor, args.seconds)
    judged = {name: verdict(points) for name, points in series.items()}
    return {
        "bench": "soak",
        "seconds": args.seconds,
        "rate": round(load.sent / load.seconds),
        "commit_interval_s": args.commit_interval,
        "flat": all(found["flat"] for found in judged.values()),
        "processes": judged,
        "series": {
            name: [(at, blocks, size // MEGABYTE) for at, blocks, size in points[:: max(1, len(points) // 12)]]
            for name, points in series.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--rate", type=float, default=20_000.0)
    parser.add_argument("--commit-interval", type=float, default=0.5)
    args = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        found = measure(broker.bootstrap, Path(folder), args)
    print(json.dumps(found), flush=True)
    sys.exit(0 if found["flat"] else 1)


if __name__ == "__main__":
    main()
