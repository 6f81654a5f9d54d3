"""Peak and final resident memory of each process of a pipeline: 50,000 keys, ten times as many, a hot key.

All cases have the same number of records, except one that runs twice as long. It separates growth with time from growth
with keys. Keys are even; in the hot case nine of ten records are of one key. The backlog exists before the pipeline
starts, so the pipeline runs at full speed. One JSON line per case.

    PYTHONPATH=tests python tests/bench/bench_memory.py [--records 2000000] [--commit-interval 0.5]
        [--cases keys-50k,keys-500k,hot,zipf,longer]
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from helpers.kafka import STAGES, START_MS, Pipeline, Sent, Source
from helpers.waiting import until
from skewless import topology
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Supervisor

PARTITIONS = 4
PORTION = 100_000
WINDOW_S = 60
RECORDS_PER_WINDOW = 1_000_000
EVERY_S = 0.1
QUIET_S = 5.0
LIMIT_S = 1_800.0
MEGABYTE = 2**20


@dataclass(frozen=True)
class Case:
    """Properties of the records of a case."""

    keys: int
    hot: float = 0.0
    """Fraction of the records with the hot key."""
    zipf: float = 0.0
    """Exponent of Zipf's law for the keys; 0 for even keys."""
    times: int = 1
    """Number of records, as a multiple of the other cases."""


CASES = {
    "keys-50k": Case(50_000),
    "keys-500k": Case(500_000),
    "hot": Case(500_000, hot=0.9),
    "zipf": Case(500_000, zipf=1.1),
    "longer": Case(500_000, times=2),
}


def records(case: Case, count: int) -> Iterator[Sent]:
    """Make records whose event time advances by one window per million records."""
    rng = np.random.default_rng(7)
    for first in range(0, count, PORTION):
        size = min(PORTION, count - first)
        keys = rng.integers(0, case.keys, size)
        if case.zipf:
            keys = np.minimum(rng.zipf(case.zipf, size), case.keys)
        keys[rng.random(size) < case.hot] = 0
        times = START_MS + (first + np.arange(size)) * WINDOW_S * 1000 // RECORDS_PER_WINDOW
        for at, (key, moment) in enumerate(zip(keys.tolist(), times.tolist(), strict=True)):
            yield at % PARTITIONS, b'{"key":"key-%06d","value":1,"time":%d}' % (key, moment)


class Scale(threading.Thread):
    """Samples the resident memory of the processes of a pipeline."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__(name="scale")
        pids = {name: replica.pid for name, replica in supervisor.processes.items()}
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items() if pid is not None}
        self._over = threading.Event()
        self.series: dict[str, list[int]] = {name: [] for name in self._processes}

    def run(self) -> None:
        """Sample memory until the end of the block."""
        while not self._over.wait(EVERY_S):
            for name, process in self._processes.items():
                self.series[name].append(process.memory_info().rss)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


class Reached:
    """Committed offsets of all stages."""

    def __init__(self, tested: Pipeline) -> None:
        self._quiet_since = time.monotonic()
        self._last: list[int] = []
        self._readers = [
            (
                Consumer({"bootstrap.servers": tested.bootstrap, "group.id": f"{tested.name}-{row.name}"}),
                [TopicPartition(tested.settings.topic(row.input), at) for at in range(PARTITIONS)],
            )
            for row in map(topology.stage, STAGES)
            if row.name in STAGES
        ]

    def offsets(self) -> list[list[int]]:
        """Read the committed offsets of each stage."""
        return [[at.offset for at in reader.committed(places, timeout=30)] for reader, places in self._readers]

    def is_over(self, expected: int) -> bool:
        """Return whether the source was read up to these offsets, and no stage has committed for a while."""
        try:
            found = self.offsets()
        except KafkaException:  # a group has no coordinator yet
            return False
        flat = [offset for stage in found for offset in stage]
        if flat != self._last:
            self._last, self._quiet_since = flat, time.monotonic()
        return sum(found[0]) >= expected and time.monotonic() - self._quiet_since > QUIET_S

    def close(self) -> None:
        """Close all readers."""
        for reader, _ in self._readers:
            reader.close()


def measure(bootstrap: str, folder: Path, name: str, count: int, commit_interval_s: float) -> dict[str, Any]:
    """Write the records of a case and run a pipeline over them; returns the memory of its processes."""
    case = CASES[name]
    total = count * case.times
    source = Source(bootstrap, PARTITIONS)
    rows = records(case, total)
    while portion := list(itertools.islice(rows, PORTION)):
        source.send(portion)
    tested = Pipeline(
        bootstrap,
        folder,
        source,
        topics={"aggregator_partitions": PARTITIONS},
        worker_input={"max_workers": PARTITIONS},
        router={"workers": PARTITIONS},
        transport={"commit_interval_s": commit_interval_s, "transaction_timeout_s": 60},
    )
    with tested.running() as supervisor:
        began = time.monotonic()
        with Scale(supervisor) as scale, closing(Reached(tested)) as reached:
            until(lambda: reached.is_over(total), each=lambda: _look(supervisor), limit_s=LIMIT_S)
        wall_s = time.monotonic() - began - QUIET_S
    return {
        "bench": "memory",
        "case": name,
        "records": total,
        "keys": case.keys,
        "hot": case.hot,
        "commit_interval_s": commit_interval_s,
        "windows": -(-total // RECORDS_PER_WINDOW),
        "wall_s": round(wall_s, 1),
        "peak_mb": {at: max(series) // MEGABYTE for at, series in scale.series.items()},
        "after_mb": {at: series[-1] // MEGABYTE for at, series in scale.series.items()},
        "quarters_mb": {at: _quarters(series) for at, series in scale.series.items()},
    }


def _look(supervisor: Supervisor) -> None:
    for event in supervisor.poll(time.monotonic()):
        raise SystemExit(f"{event.name} {event.kind}: {event.detail}")
    time.sleep(EVERY_S)


def _quarters(series: list[int]) -> list[int]:
    """Return the peak in each quarter of the run."""
    return [int(part.max()) // MEGABYTE for part in np.array_split(np.array(series), 4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--commit-interval", type=float, default=0.5)
    args = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        for name in args.cases.split(","):
            found = measure(broker.bootstrap, Path(folder), name, args.records, args.commit_interval)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
