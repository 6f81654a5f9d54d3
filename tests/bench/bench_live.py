"""The published experiment, live: 80/10/10 over 30 names, 1,000 tuples/s, workers that take 10 ms per tuple.

There are two parts for each number of workers. In both parts all groupings run at the same time, each as a separate
pipeline with one process per stage. The workers sleep, so two cores are enough.

1. All pipelines read the same topic for five minutes. The rate is the number of tuples in results divided by the time
since the first tuple. Where it is lower than the rate of the source, the other tuples wait in a growing queue. Nothing
is drained.
2. Each pipeline reads its own topic for a minute, at 80 % of the rate that it sustains, to the end. This is the rate at
which the most loaded worker just keeps up, with the loads of part 1. The latency is the time from a tuple's event time
to the arrival of the first result that counts it.

The result of each number of workers is written to a file when it is complete, and is not measured again, so an
interrupted run can be continued. One JSON line per grouping and number of workers. With `--latency-rate` there is only
the second part, at this rate for all groupings, and nothing is kept.

    PYTHONPATH=tests python tests/bench/bench_live.py [--workers 5,10,20,50,100] [--seconds 300] [--keep FOLDER]
    [--page FILE] [--latency-rate 98 --groupings key,partial_key]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench import live_page
from bench.comparison_page import PUBLISHED_W
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Supervisor
from skewless.wire.columns import read_table
from skewless.wire.tuples import keys_and_times

Facts = dict[str, Any]

SOURCE = "countries"
RATE = 1000.0
"""Tuples per second of the source."""
LATENCY_LOAD = 0.8
"""Fraction of a grouping's sustained rate at which its latency is measured."""
QUIET_POLLS = 20
WARM_UP = "warm-up"
"""The key of the first tuple of each source. Measures do not count this tuple."""
NAMES = 30
COST_MS = 10
TICK_S = 0.02
LIMIT_S = 3_600.0


def pipeline(name: str, bootstrap: str, workers: int, grouping: str, source: str) -> PipelineSettings:
    document: dict[str, Any] = {
        "name": name.replace("_", "-"),
        "source": {"topic": source},
        "kafka": {"bootstrap_servers": bootstrap},
        "transport": {"commit_interval_s": 0.2},
        "splitter": {
            "format": "json",
            "key": {"field": "country"},
            "time": {"field": "timestamp", "unit": "ms"},
        },
        "router": {"grouping": grouping, "workers": workers},
        "worker_input": {"max_workers": workers},
        "worker": {"cost": {"cycle": 1, "process_duration_ms": COST_MS}},
        "replicas": {"observer": 0},
    }
    return PipelineSettings.model_validate(document)


def published(tuples: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, NAMES, tuples)
    part = rng.random(tuples)
    keys[part < 0.9] = 1
    keys[part < 0.8] = 0
    return [f"country {key}" for key in keys]


class Feed(threading.Thread):
    """Writes tuples at an even rate. Their event time is the time of writing."""

    def __init__(self, bootstrap: str, topic: str, keys: Sequence[str], rate: float) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self.keys = keys
        self.sent = 0
        self._rate = rate
        self.times: defaultdict[str, list[int]] = defaultdict(list)
        self.started = time.time()

    def run(self) -> None:
        self.started = time.time()
        while self.sent < len(self.keys):
            due = min(len(self.keys), int((time.time() - self.started) * self._rate))
            for key in self.keys[self.sent : due]:
                now = time.time_ns() // 1_000_000
                self.times[key].append(now)
                self._producer.produce(self._topic, json.dumps({"country": key, "timestamp": now}))
            self.sent = due
            self._producer.poll(TICK_S)
            time.sleep(TICK_S)
        self._producer.flush()


class Results:
    """Records of a pipeline's topic `aggregates`, with their arrival times."""

    def __init__(self, settings: PipelineSettings, bootstrap: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{settings.name}-bench", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([settings.topic("aggregates")])
        self.counts: Counter[tuple[int, str]] = Counter()
        self.arrivals_by_result: defaultdict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
        self.last = 0.0

    def read(self) -> int:
        """Read the available results; returns the number of tuples that all results count so far."""
        for message in self._consumer.consume(5_000, 0.05):
            if message.error() is None:
                entry = json.loads(message.value() or b"")
                at = (entry["window_start"], entry["key"])
                self.last = time.time()
                self.counts[at] = entry["count"]
                self.arrivals_by_result[at].append((entry["count"], self.last))
        return self.counts.total()

    def latencies(self, times: dict[str, list[int]], window_ms: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds from each tuple to the first result of its key and window that counts enough tuples.

        A result does not identify its tuples. The n-th tuple is therefore included as soon as the result counts n
        tuples.
        """
        found = []
        for key, stamps in times.items():
            by_window: defaultdict[int, list[int]] = defaultdict(list)
            for stamp in stamps:
                by_window[stamp - stamp % window_ms].append(stamp)
            for window, events in by_window.items():
                counts, moments = zip(*self.arrivals_by_result[window, key], strict=True)
                first = np.searchsorted(np.maximum.accumulate(counts), np.arange(1, len(events) + 1))
                found.append(np.array(moments)[first] - np.array(events) / 1000)
        return np.concatenate(found)

    def close(self) -> None:
        self._consumer.close()


def loads(settings: PipelineSettings, bootstrap: str) -> tuple[float, float]:
    """Read `worker-input`; returns the mean number of workers per key, and the highest load divided by the mean."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "pairs", "auto.offset.reset": "earliest"})
    consumer.subscribe([settings.topic("worker-input")])
    pairs: set[tuple[int, str]] = set()
    tuples = np.zeros(settings.router.workers, dtype=np.int64)
    quiet = 0
    while quiet < QUIET_POLLS:
        messages = consumer.consume(5_000, 0.5)
        quiet = 0 if messages else quiet + 1
        for message in messages:
            if message.error() is None and message.value():
                for part in keys_and_times(read_table(message.value())):
                    keys = set(part["key"].dictionary.to_pylist()) - {WARM_UP}
                    pairs.update((message.partition() or 0, key) for key in keys)
                    tuples[message.partition() or 0] += part.num_rows
    consumer.close()
    return len(pairs) / len({key for _, key in pairs}), float(tuples.max() / tuples.mean())


class Runs:
    """Pipelines that run at the same time, one per grouping, with their results."""

    def __init__(self, bootstrap: str, folder: Path, workers: int, part: str, sources: dict[str, str]) -> None:
        self._bootstrap = bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic(name, 1, 1) for name in set(sources.values())]).values():
            created.result(30)
        self.settings = {
            name: pipeline(f"{name}-{part}-{workers}", bootstrap, workers, name, source)
            for name, source in sources.items()
        }
        self.supervisors: dict[str, Supervisor] = {}
        self.results: dict[str, Results] = {}
        for name, settings in self.settings.items():
            file = folder / f"{settings.name}.json"
            file.write_text(settings.model_dump_json(exclude_unset=True))
            topic_plan.apply(settings)
            self.supervisors[name] = Supervisor(file, settings, drain=False, logs=folder / settings.name)
            self.results[name] = Results(settings, bootstrap)

    def __enter__(self) -> Self:
        for supervisor in self.supervisors.values():
            supervisor.start()
        self._warm_up()
        return self

    def __exit__(self, *_: object) -> None:
        for supervisor in self.supervisors.values():
            supervisor.stop()
        for result in self.results.values():
            result.close()

    def _warm_up(self) -> None:
        """Wait until each pipeline has counted its first tuple, which has a separate time and key, and exclude it."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for source in {settings.topic("source") for settings in self.settings.values()}:
            producer.produce(source, json.dumps({"country": WARM_UP, "timestamp": time.time_ns() // 1_000_000}))
        producer.flush()
        waiting = set(self.results)
        while waiting:
            for name in sorted(waiting):
                self.poll(name)
                if self.results[name].read():
                    waiting.discard(name)
                    self.results[name].counts.clear()

    def poll(self, name: str) -> None:
        """Check the processes of a pipeline. A process that ended makes the measurement invalid."""
        for event in self.supervisors[name].poll(time.monotonic()):
            raise SystemExit(f"{name}: {event.name} {event.kind}: {event.detail}")


def throughput(bootstrap: str, folder: Path, workers: int, options: argparse.Namespace) -> dict[str, Facts]:
    """Run all groupings on the same source for some minutes."""
    names = options.groupings.split(",")
    found: dict[str, Facts] = {}
    with Runs(bootstrap, folder, workers, "rate", dict.fromkeys(names, f"{SOURCE}-{workers}")) as runs:
        feed = Feed(bootstrap, f"{SOURCE}-{workers}", published(round(options.seconds * RATE), options.seed), RATE)
        feed.start()
        while (elapsed := time.time() - feed.started) < options.seconds:
            for name in names:
                runs.poll(name)
                runs.results[name].read()
            shown(f"W = {workers}: rate", elapsed, options.seconds)
        for name, result in runs.results.items():
            counted = result.read()
            seconds = time.time() - feed.started
            found[name] = {"tuples_per_s": counted / seconds, "queue_tuples": feed.sent - counted, "seconds": seconds}
        for name, settings in runs.settings.items():
            replication, peak = loads(settings, bootstrap)
            sustained = min(RATE, workers * 1000 / COST_MS / peak)
            found[name] |= {"replication_factor": replication, "max_over_avg": peak, "sustained_per_s": sustained}
    return found


def latency(
    bootstrap: str, folder: Path, workers: int, rates: dict[str, float], options: argparse.Namespace
) -> dict[str, Facts]:
    """Run each grouping on a source at a rate that it sustains, and measure the latency of every tuple."""
    sources = {name: f"{SOURCE}-{workers}-{name}" for name in rates}
    found: dict[str, Facts] = {}
    with Runs(bootstrap, folder, workers, "latency", sources) as runs:
        feeds = {
            name: Feed(bootstrap, sources[name], published(round(options.latency_seconds * rate), options.seed), rate)
            for name, rate in rates.items()
        }
        for feed in feeds.values():
            feed.start()
        began, waiting = time.monotonic(), set(rates)
        while waiting:
            for name in sorted(waiting):
                runs.poll(name)
                if runs.results[name].read() >= len(feeds[name].keys):
                    waiting.discard(name)
            elapsed = time.monotonic() - began
            shown(f"W = {workers}: latency", elapsed, options.latency_seconds)
            if elapsed > LIMIT_S:
                raise SystemExit(f"not finished within {LIMIT_S:g} s: {', '.join(sorted(waiting))}")
        for name, result in runs.results.items():
            seconds = result.latencies(feeds[name].times, runs.settings[name].aggregator.window_ms)
            quantiles = np.quantile(seconds, [0.5, 0.95, 0.99])
            p50, p95, p99 = (round(float(each), 3) for each in quantiles)
            found[name] = {"latency_rate": rates[name], "p50_s": p50, "p95_s": p95, "p99_s": p99}
    return found


def shown(what: str, elapsed: float, total: float) -> None:
    """Show the progress of a part on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{what}: {min(elapsed, total):.0f} of {total:.0f} s ", end="", file=sys.stderr, flush=True)


def measure(workers: int, options: argparse.Namespace) -> list[Facts]:
    """Run both parts for a number of workers, on a separate broker."""
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        rates = throughput(broker.bootstrap, Path(folder), workers, options)
        own = {name: LATENCY_LOAD * entries["sustained_per_s"] for name, entries in rates.items()}
        latencies = latency(broker.bootstrap, Path(folder), workers, own, options)
    return [{"bench": "live", "grouping": name, "workers": workers} | rates[name] | latencies[name] for name in rates]


def measure_latency(workers: int, options: argparse.Namespace) -> list[Facts]:
    """Run the second part for a number of workers, at the rate of the options for all groupings."""
    rates = dict.fromkeys(options.groupings.split(","), options.latency_rate)
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        found = latency(broker.bootstrap, Path(folder), workers, rates, options)
    return [{"bench": "live latency", "grouping": name, "workers": workers} | found[name] for name in rates]


def kept(workers: int, options: argparse.Namespace) -> list[Facts]:
    """Read the stored runs of a number of workers, or make and store them."""
    file = options.keep / f"workers-{workers}.json"
    expected = {name: getattr(options, name) for name in ("seconds", "latency_seconds", "groupings", "seed")}
    if file.exists() and (found := json.loads(file.read_text()))["options"] == expected:
        return list(found["runs"])
    runs = measure(workers, options)
    options.keep.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"options": expected, "runs": runs}, indent=1))
    part.replace(file)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default=",".join(map(str, PUBLISHED_W)))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--latency-seconds", type=float, default=60.0)
    parser.add_argument("--latency-rate", type=float, help="tuples per second of all groupings")
    parser.add_argument("--groupings", default="shuffle,key,partial_key,dynamic_key,even")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(".bench/live"), help="folder of finished runs")
    parser.add_argument("--page", type=Path, help="write the page of the documentation")
    options = parser.parse_args()
    found = []
    for workers in map(int, options.workers.split(",")):
        for entries in (measure_latency if options.latency_rate else kept)(workers, options):
            print(json.dumps(entries), flush=True)
            found.append(entries)
    if options.page and not options.latency_rate:
        options.page.write_text(live_page.render(found), encoding="utf-8")


if __name__ == "__main__":
    main()
