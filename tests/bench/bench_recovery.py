"""Time without progress in rebalances, restarts, kills and broker failures. One line of JSON per measure.

A paced stream runs through all stages with the default settings. Each stage has one process; the measured stage has
more. A partition makes no progress while none of its offsets is committed, so each figure includes the commit interval
(0.5 s).

    PYTHONPATH=tests python tests/bench/bench_recovery.py [--measures rebalance,broker] [--stages router]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import TopicPartition

from chaos.progress import Progress
from helpers.kafka import STAGES, WRITES, Feed, Pipeline, Source, zipf_records
from helpers.waiting import until
from skewless import topology
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker

PARTITIONS = 8
RATE = 1500
RECORDS = 3_000_000
SETTLE_S = 2.0
"""Time in s for which a measured stage must make progress before the next disturbance."""
MEASURED = ("splitter", "router", "worker", "aggregator")
MOST = 3
"""Number of processes of a stage while it is scaled up and down."""


@dataclass
class Harness:
    """A running pipeline, and the observer of its progress."""

    broker: Broker
    pipeline: Pipeline
    progress: Progress
    stages: Sequence[str] = MEASURED
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    revived: int = 0

    def start(self, stage: str, instance: int = 0) -> None:
        run = [sys.executable, "-m", "skewless", "run", stage, "--instance", str(instance)]
        name = f"{stage}-{instance}"
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        log = self.pipeline.folder / f"{name}.log"
        self.running[name] = child_process.start([*run, "--file", str(self.pipeline.file)], env, log=log)

    def end(self, stage: str, number: signal.Signals, instance: int = 0) -> float:
        """Send a signal; returns the seconds until the process has ended."""
        child = self.running.pop(f"{stage}-{instance}")
        began = time.monotonic()
        child.send_signal(number)
        code = child.wait(60)
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"{stage}-{instance} ended with {code}: {self.pipeline.folder}")
        return time.monotonic() - began

    def resumed_after(self, stage: str, since: float) -> tuple[float, float]:
        """Return seconds until the first partition, and all partitions, of a stage are committed after this time."""
        until(lambda: all(times[-1:] > [since] for times in self.progress.moves(stage)), each=self.restart_ended)
        firsts = [next(at for at in times if at > since) - since for times in self.progress.moves(stage)]
        return min(firsts), max(firsts)

    def restart_ended(self) -> None:
        """Restart processes that ended, as a supervisor does: without its broker a process loses its session."""
        for name, child in list(self.running.items()):
            if child.poll() is not None:
                if child.returncode != 1:
                    raise SystemExit(f"{name} ended with {child.returncode}: {self.pipeline.folder}")
                stage, _, instance = name.partition("-")
                self.start(stage, int(instance))
                self.revived += 1

    def settle(self, stage: str) -> None:
        self.resumed_after(stage, time.monotonic() + SETTLE_S)

    def standstills(self, stage: str, begin: float, end: float) -> list[float]:
        """Longest time between two commits that overlaps the span, for each partition of a stage."""
        return [
            max(after - before for before, after in itertools.pairwise(times) if after > begin and before < end)
            for times in self.progress.moves(stage)
        ]


def rebalances(harness: Harness, times: int) -> Iterator[dict[str, Any]]:
    """Let processes of each stage join and leave. The original processes remain."""
    for stage in harness.stages:
        found: dict[str, list[float]] = {"join": [], "leave": []}
        once = (*range(2, MOST + 1), *range(MOST - 1, 0, -1))
        for size in once * -(-times // len(once) // len(harness.stages)):
            what = "join" if f"{stage}-{size - 1}" not in harness.running else "leave"
            since = time.monotonic()
            if what == "join":
                harness.start(stage, size - 1)
            else:
                harness.end(stage, signal.SIGTERM, size)
            until(lambda stage=stage, size=size: harness.pipeline.shares(stage) == size)  # type: ignore[misc]
            harness.settle(stage)
            found[what] += harness.standstills(stage, since, time.monotonic())
        for what, seconds in found.items():
            yield {"measure": f"standstill of a partition after a {what}", "stage": stage} | spread(seconds)


def restarts(harness: Harness, stage: str, times: int, number: signal.Signals) -> Iterator[dict[str, Any]]:
    """Kill or stop the only process of a stage and start another at once."""
    ends, firsts, alls, stills = [], [], [], []
    for _ in range(times):
        harness.settle(stage)
        since = time.monotonic()
        ends.append(harness.end(stage, number))
        started = time.monotonic()
        harness.start(stage)
        first, last = harness.resumed_after(stage, started)
        firsts.append(first)
        alls.append(last)
        stills += harness.standstills(stage, since, time.monotonic())
    what = number.name
    if number is signal.SIGTERM:
        yield {"measure": f"{what} to exit", "stage": stage} | spread(ends)
    yield {"measure": f"start after {what} to first commit", "stage": stage} | spread(firsts)
    yield {"measure": f"start after {what} to a commit of all partitions", "stage": stage} | spread(alls)
    yield {"measure": f"standstill of a partition around {what} and start", "stage": stage} | spread(stills)


def clean(harness: Harness, times: int) -> Iterator[dict[str, Any]]:
    """Restart cleanly. Only aborted output is processed twice."""
    for stage in harness.stages:
        yield from restarts(harness, stage, times, signal.SIGTERM)
    for stage in STAGES:
        harness.end(stage, signal.SIGTERM)
    wasted = {topic: harness.pipeline.aborted(topic) for topic in WRITES.values()}
    yield {"measure": "aborted records of processes that ended with SIGTERM", "topics": wasted}
    for stage in STAGES:
        harness.start(stage)


def kills(harness: Harness, times: int) -> Iterator[dict[str, Any]]:
    """Kill the only process of a stage and start another at once."""
    for stage in harness.stages:
        yield from restarts(harness, stage, times, signal.SIGKILL)


def broker_kills(harness: Harness, times: int) -> Iterator[dict[str, Any]]:
    """Kill the broker under load and start it at once."""
    starts, recoveries = [], []
    for _ in range(max(3, times // 4)):
        for stage in STAGES:
            harness.settle(stage)
        since = time.monotonic()
        harness.broker.kill()
        harness.broker.start()
        starts.append(time.monotonic() - since)
        recoveries.append(max(harness.resumed_after(stage, since + starts[-1])[1] for stage in STAGES) + starts[-1])
    yield {"measure": "SIGKILL of the broker until it answers again"} | spread(starts)
    what = "SIGKILL of the broker until all partitions of all stages are committed again"
    yield {"measure": what, "processes started again": harness.revived} | spread(recoveries)


MEASURES: dict[str, Callable[[Harness, int], Iterator[dict[str, Any]]]] = {
    "rebalance": rebalances,
    "clean": clean,
    "kill": kills,
    "broker": broker_kills,
}


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    p50, p95, p99 = np.percentile(seconds, (50, 95, 99)).round(2).tolist()
    return {"times": len(seconds), "p50_s": p50, "p95_s": p95, "p99_s": p99, "max_s": round(max(seconds), 2)}


def groups(pipeline: Pipeline) -> dict[str, tuple[str, list[TopicPartition]]]:
    reads = {row.name: pipeline.settings.topic(row.input) for row in map(topology.stage, STAGES)}
    sizes = dict.fromkeys(STAGES, PARTITIONS) | {"observer": 1}
    return {
        stage: (f"{pipeline.name}-{stage}", [TopicPartition(reads[stage], at) for at in range(sizes[stage])])
        for stage in STAGES
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--measures", default=",".join(MEASURES))
    options.add_argument("--stages", default=",".join(MEASURED))
    options.add_argument("--times", type=int, default=20)
    options.add_argument("--transport", type=json.loads, default={}, help="settings of the transport, as JSON")
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="skewless-recovery-"))
    with Broker(folder / "broker") as broker:
        source = Source(broker.bootstrap, PARTITIONS)
        pipeline = Pipeline(
            broker.bootstrap,
            folder,
            source,
            topics={"aggregator_partitions": PARTITIONS},
            transport={"commit_interval_s": 0.5, **chosen.transport},
        )
        feed = Feed(source, zipf_records(RECORDS, PARTITIONS, seed=1, keys=5_000), RATE)
        feed.daemon = True
        feed.start()
        with Progress(broker.bootstrap, groups(pipeline)) as progress:
            harness = Harness(broker, pipeline, progress, chosen.stages.split(","))
            try:
                for stage in STAGES:
                    harness.start(stage)
                for stage in STAGES:
                    harness.settle(stage)
                for name in chosen.measures.split(","):
                    for line in MEASURES[name](harness, chosen.times):
                        load = round(os.getloadavg()[0], 1)
                        print(json.dumps({"bench": "recovery"} | line | {"load": load}), flush=True)
            finally:
                for child in harness.running.values():
                    child_process.kill(child)


if __name__ == "__main__":
    main()
