"""Cost of metrics: tuples per CPU-second of a router's executor, with and without metrics in turn.

Batches take the same path as in a process: deliver, process, send, and a flush for each commit after 20 batches. Only
Kafka is left out, because its cost would hide the cost of metrics. `watched` serves /metrics and is scraped once per
second of CPU time, `unwatched` is not scraped, and `uncounted` also has no statistics in the executor and the step. The
variants take turns in each round. A figure is the median over the rounds of the ratio to `unwatched` in the same round.
The ratio of a second `unwatched` is the noise floor.

    PYTHONPATH=tests python tests/bench/bench_metrics.py [--rounds 9] [--batches 300] [--workers 100]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa

from helpers.batches import encode_tuples
from helpers.engine import assign, batch_of
from helpers.headers import internal_headers
from helpers.messages import message
from helpers.stage_start import in_memory
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.executor import RestoredPartition
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.statistics import EngineStatistics
from skewless.lab.datasets.base import START_MS
from skewless.monitoring.stage_monitor import StageMonitor, served
from skewless.service import build_runtime
from skewless.stages.built_stage import BuiltStage, build
from skewless.stages.router.metrics import RouterMetrics
from skewless.wire.record import OutputRecord, OwnHeaders
from skewless.wire.tuples import TUPLES

BATCH = 16_000
COMMIT_EVERY = 20
ARMS = ("unwatched", "watched", "uncounted", "unwatched again")


class Uncounted(EngineStatistics):
    """Statistics that count nothing."""

    def batch(self, partition: int, records: int, size: int, seconds: float, trace_id: str | None = None) -> None:
        pass


class Unshown(RouterMetrics):
    """Step metrics without samples."""

    def update(self, now: int) -> None:
        pass


def values(count: int) -> list[tuple[bytes, OwnHeaders]]:
    rng = np.random.default_rng(1)
    made = []
    for number in range(count):
        keys = pa.array([f"key-{key}" for key in np.minimum(rng.zipf(1.3, BATCH), 50_000)])
        times = START_MS + np.arange(BATCH) + number * BATCH
        record = encode_tuples(keys.dictionary_encode(), np.ones(BATCH, dtype=np.int64), times)
        made.append((record, internal_headers(TUPLES, {0: int(times[-1])})))
    return made


def settings(workers: int) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": "bench",
            "source": {"topic": "s"},
            "router": {"grouping": "even", "workers": workers},
            "worker_input": {"max_workers": workers},
            "metrics": {"port": 0, "address": "127.0.0.1"},
        }
    )


class Arm:
    """An executor that keeps its state over the rounds."""

    def __init__(self, name: str, workers: int) -> None:
        self.name = name
        self._settings = settings(workers)
        start = in_memory("router", self._settings, 1)
        self._step: Any = build(start).step
        self._wiring: StageRuntime = build_runtime(start, BuiltStage(self._step), 0)
        executor = self._wiring.executor
        if name == "uncounted":
            executor.statistics = Uncounted()
            cast("Any", self._step)._metrics.__class__ = Unshown
        executor.send = self._send
        assign(executor, {0: RestoredPartition(0, None)})
        self._offset = 0

    def _send(self, outputs: Iterable[OutputRecord]) -> None:
        for output in outputs:
            tally = self._wiring.output.sent[output.topic]
            tally.records += 1
            tally.bytes += len(output.value or b"")

    def run(self, given: list[tuple[bytes, OwnHeaders]], batches: int) -> float:
        """Process batches; returns the CPU seconds of the whole process, including the metrics server."""
        with self._watched() as loop:
            started = time.process_time()
            loop.run_until_complete(self._work(given, batches))
            return time.process_time() - started

    async def _work(self, given: list[tuple[bytes, OwnHeaders]], batches: int) -> None:
        executor = self._wiring.executor
        for number in range(batches):
            value, headers = given[number % len(given)]
            batch = batch_of(executor, [message(self._offset, value, headers=headers)])
            self._offset += 1
            executor.deliver(batch)
            await executor.process(batch)
            if executor.failure is not None:
                raise executor.failure
            if number % COMMIT_EVERY == 0:
                executor.end_commit(executor.begin_commit({}))
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[asyncio.AbstractEventLoop]:
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            if self.name != "watched":
                yield loop
                return
            shown = self._settings.metrics.model_copy(update={"port": free_port()})
            watched = StageMonitor(shown, pipeline=self._settings.name, stage="router", instance=0)
            watched.health.runtime = self._wiring
            with served(shown, [watched]) as listening, watched.reader.on(loop), scraping(listening):
                yield loop


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def scraping(port: int) -> Iterator[None]:
    """Scrape once per second of CPU time, as often as on an idle core. This process also pays for the requests."""
    over = threading.Event()

    def scrape() -> None:
        due = time.process_time() + 0.5
        while not over.wait(0.02):
            if time.process_time() >= due:
                due += 1.0
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                    answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--workers", type=int, default=100)
    args = parser.parse_args()
    given = values(20)
    arms = [Arm(name, args.workers) for name in ARMS]
    for arm in arms:
        arm.run(given, 20)
    seconds: dict[str, list[float]] = {name: [] for name in ARMS}
    for number in range(args.rounds):
        for place in range(len(arms)):
            arm = arms[(number + place) % len(arms)]
            seconds[arm.name].append(arm.run(given, args.batches))
    base = seconds["unwatched"]
    for name in ARMS:
        ratios = [used / before for used, before in zip(seconds[name], base, strict=True)]
        line = {
            "bench": "metrics",
            "arm": name,
            "workers": args.workers,
            "tuples_per_cpu_s": round(BATCH * args.batches / min(seconds[name])),
            "cost_percent": round(100 * (statistics.median(ratios) - 1), 2),
            "best_cost_percent": round(100 * (min(seconds[name]) / min(base) - 1), 2),
            "rounds": args.rounds,
            "cpu_s_per_run": round(min(seconds[name]), 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
