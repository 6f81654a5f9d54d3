"""The published experiment, live: 80/10/10 over 30 names, 1,000 tuples/s, workers that take 10 ms per tuple.

All groupings read the same topic at the same time, each as a pipeline of its own with one process per stage; their
workers sleep, so two cores are enough. Throughput is tuples by the time from the first tuple to the last result;
latency goes from a tuple's event time to the arrival of the first result that counts it. One JSON line per grouping.

    python tests/bench/bench_live.py [--workers 20] [--seconds 60] [--groupings partial_key,dynamic_key,even]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from skewless.local.broker import Broker
from skewless.local.supervisor import Supervisor
from skewless.records import read_tuples
from skewless.settings import PipelineSettings
from skewless.transport import topics

SOURCE = "countries"
NAMES = 30
COST_MS = 10
TICK_S = 0.02
LIMIT_S = 3_600.0


def pipeline(name: str, bootstrap: str, workers: int) -> PipelineSettings:
    document: dict[str, Any] = {
        "name": name.replace("_", "-"),
        "source": {"topic": SOURCE},
        "kafka": {"bootstrap_servers": bootstrap},
        "transport": {"commit_interval_s": 0.2},
        "splitter": {
            "format": "json",
            "key": {"field": "country"},
            "time": {"field": "timestamp", "unit": "ms"},
        },
        "router": {"grouping": name, "workers": workers},
        "worker_input": {"max_workers": workers},
        "worker": {"cost": {"cycle": 1, "process_duration_ms": COST_MS}},
        "replicas": {"observer": 0},
    }
    return PipelineSettings.model_validate(document)


def published(tuples: int, seed: int) -> list[str]:
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, NAMES, tuples)
    part = chance.random(tuples)
    keys[part < 0.9] = 1
    keys[part < 0.8] = 0
    return [f"country {key}" for key in keys]


class Feed(threading.Thread):
    """Writes one tuple after the other at an even rate; their event time is the time at which they are written."""

    def __init__(self, bootstrap: str, keys: Sequence[str], rate: float) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._keys = keys
        self._rate = rate
        self.times: defaultdict[str, list[int]] = defaultdict(list)
        self.started = time.time()

    def run(self) -> None:
        sent = 0
        while sent < len(self._keys):
            due = min(len(self._keys), int((time.time() - self.started) * self._rate))
            for key in self._keys[sent:due]:
                now = time.time_ns() // 1_000_000
                self.times[key].append(now)
                self._producer.produce(SOURCE, json.dumps({"country": key, "timestamp": now}))
            sent = due
            self._producer.poll(TICK_S)
            time.sleep(TICK_S)
        self._producer.flush()


class Results:
    """What a pipeline's `aggregates` say, and when they said it."""

    def __init__(self, settings: PipelineSettings, bootstrap: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{settings.name}-bench", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([settings.topic("aggregates")])
        self.counts: Counter[tuple[int, str]] = Counter()
        self.told: defaultdict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
        self.last = 0.0

    def read(self) -> int:
        """Take in what has come; returns how many tuples all results count by now."""
        for message in self._consumer.consume(5_000, 0.05):
            if message.error() is None:
                fact = json.loads(message.value() or b"")
                at = (fact["window_start"], fact["key"])
                self.last = time.time()
                self.counts[at] = fact["count"]
                self.told[at].append((fact["count"], self.last))
        return self.counts.total()

    def latencies(self, times: dict[str, list[int]], window_ms: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds from each tuple to the first result of its key and window that counts as many tuples as there were.

        Which of a key's tuples a result counts is not told, so the n-th tuple counts as in once n are counted.
        """
        found = []
        for key, stamps in times.items():
            by_window: defaultdict[int, list[int]] = defaultdict(list)
            for stamp in stamps:
                by_window[stamp - stamp % window_ms].append(stamp)
            for window, events in by_window.items():
                counts, moments = zip(*self.told[window, key], strict=True)
                first = np.searchsorted(np.maximum.accumulate(counts), np.arange(1, len(events) + 1))
                found.append(np.array(moments)[first] - np.array(events) / 1000)
        return np.concatenate(found)

    def close(self) -> None:
        self._consumer.close()


def replication(settings: PipelineSettings, bootstrap: str) -> float:
    """Mean number of worker partitions that hold a key, read from the topic itself."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "pairs", "auto.offset.reset": "earliest"})
    consumer.subscribe([settings.topic("worker-input")])
    pairs: set[tuple[int, str]] = set()
    quiet = 0
    while quiet < 20:
        messages = consumer.consume(5_000, 0.5)
        quiet = 0 if messages else quiet + 1
        for message in messages:
            if message.error() is None and message.value():
                for part in read_tuples(message.value()):
                    pairs.update((message.partition() or 0, key) for key in part["key"].dictionary.to_pylist())
    consumer.close()
    return len(pairs) / len({key for _, key in pairs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--groupings", default="shuffle,partial_key,dynamic_key,even")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        measure(broker.bootstrap, Path(folder), options)


def measure(bootstrap: str, folder: Path, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(SOURCE, 1, 1)])[SOURCE].result(30)
    tuples = round(options.seconds * options.rate)
    runs = {name: pipeline(name, bootstrap, options.workers) for name in options.groupings.split(",")}
    supervisors, results = {}, {}
    for name, settings in runs.items():
        file = folder / f"{name}.json"
        file.write_text(settings.model_dump_json(exclude_unset=True))
        topics.apply(settings)
        supervisors[name] = Supervisor(file, settings, drain=False, logs=folder / name)
        supervisors[name].start()
        results[name] = Results(settings, bootstrap)
    try:
        warm_up(bootstrap, results, supervisors)
        feed = Feed(bootstrap, published(tuples, options.seed), options.rate)
        feed.start()
        open_ = set(runs)
        deadline = time.monotonic() + LIMIT_S
        while open_ and time.monotonic() < deadline:
            for name in sorted(open_):
                supervisors[name].poll(time.monotonic())
                if results[name].read() >= tuples:
                    open_.discard(name)
        if open_:
            raise SystemExit(f"not finished within {LIMIT_S:g} s: {', '.join(sorted(open_))}")
        for name, settings in runs.items():  # only now: it takes seconds, in which nobody would see results arrive
            tell(name, settings, results[name], feed, bootstrap, options)
    finally:
        for supervisor in supervisors.values():
            supervisor.stop()
        for result in results.values():
            result.close()


def warm_up(bootstrap: str, results: dict[str, Results], supervisors: dict[str, Supervisor]) -> None:
    """Wait until each pipeline has counted a first tuple, of a time and key of its own, and forget it."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(SOURCE, json.dumps({"country": "warm-up", "timestamp": time.time_ns() // 1_000_000}))
    producer.flush()
    waiting = set(results)
    while waiting:
        for name in sorted(waiting):
            supervisors[name].poll(time.monotonic())
            if results[name].read():
                waiting.discard(name)
                results[name].counts.clear()


def tell(  # noqa: PLR0913, PLR0917 - the facts of one line
    name: str,
    settings: PipelineSettings,
    result: Results,
    feed: Feed,
    bootstrap: str,
    options: argparse.Namespace,
) -> None:
    tuples = result.counts.total()
    latencies = result.latencies(feed.times, settings.aggregator.window_ms)
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    line = {
        "bench": "live",
        "grouping": name,
        "workers": options.workers,
        "rate": options.rate,
        "tuples": tuples,
        "seconds": round(result.last - feed.started, 2),
        "tuples_per_s": round(tuples / (result.last - feed.started), 1),
        "latency_p50_s": round(float(p50), 3),
        "latency_p99_s": round(float(p99), 3),
        "replication": round(replication(settings, bootstrap), 3),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
