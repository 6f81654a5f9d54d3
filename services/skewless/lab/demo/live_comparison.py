"""Sends one live stream to a pipeline per grouping at the same time. Their workers take a fixed time per tuple."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skewless import topology
from skewless.algorithms.load_metrics import max_over_avg
from skewless.config import loader, topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import JobFailedError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.range_reader import read_ranges
from skewless.kafka.producer.bulk import BulkProducer, prepare_topic
from skewless.lab.datasets import DatasetOptions, RecordBatch, find_dataset, take
from skewless.lab.datasets.rate_limiter import RateLimiter
from skewless.lab.demo.demo_pipeline import SCRAPE_INTERVAL_S, OnCrash, OnStart
from skewless.lab.demo.demo_plan import STREAM, STREAM_S
from skewless.lab.demo.prometheus_scraper import Scraper
from skewless.lab.demo.read_results import read_counts
from skewless.lab.local.stage_host import StageHost, modules_of
from skewless.lab.local.supervisor import Supervisor
from skewless.wire.columns import read_table
from skewless.wire.tuples import keys_and_times

POLL_S = 0.02
START_TIMEOUT_S = 90.0
"""Maximum time from the start of the processes to the first result of the last pipeline."""

OnCounts = Callable[[float, Mapping[str, int]], None]
"""(seconds since the first record, tuples in results by grouping) -> None"""


@dataclass(frozen=True)
class LiveResult:
    """Measures of one pipeline. The fields are also the names in the JSON."""

    grouping: str
    tuples: int
    """Tuples in results."""
    tuples_per_s: float
    """From the first record of the stream to the last result."""
    waiting: int
    """Tuples of the stream that are not in results."""
    max_over_avg: float
    """Tuples that the router sent to the most loaded worker / average."""
    replication_factor: float
    """Mean number of workers per key."""


def compare(  # noqa: PLR0913 - three of them are callbacks
    pipelines: Mapping[str, PipelineSettings],
    rate: float,
    folder: Path,
    *,
    on_counts: OnCounts,
    on_crash: OnCrash,
    on_start: OnStart,
) -> list[LiveResult]:
    """Run the pipelines on the same stream of `rate` tuples per second for STREAM_S seconds, and measure each.

    The first tuple is sent ahead and is not measured: the stream begins when each pipeline has counted it. Calls
    `on_start` once, `on_counts` every SCRAPE_INTERVAL_S, and `on_crash` when a process has crashed. Raises
    JobFailedError if a pipeline has no result within START_TIMEOUT_S, and the errors of `Supervisor.poll`. All
    processes have ended when it returns or raises.
    """
    kafka = next(iter(pipelines.values())).kafka
    producer = BulkProducer(kafka, STREAM, prepare_topic(kafka, STREAM, 1))
    total = round(rate * STREAM_S) + 1
    options = DatasetOptions(records=total, event_rate=rate)
    records = _joined(take(find_dataset(STREAM).batches(options), total))
    running = _Running(pipelines, folder, on_crash)
    try:
        producer.send(records.values[:1], records.times[:1].tolist())
        producer.flush()
        on_start(running.ports)
        running.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(running.counts().values()):
            if time.monotonic() > deadline:
                raise JobFailedError(
                    f"no result within {START_TIMEOUT_S:.0f} s; with --keep, the logs stay in {folder}"
                )
            running.wait(SCRAPE_INTERVAL_S)
        first_ms = time.time() * 1000
        _send(records.part(1, total), rate, producer, running, on_counts)
    finally:
        running.stop()
        producer.close()
    return [_measured(settings, first_ms, total) for settings in pipelines.values()]


class _Running:
    """The processes of all pipelines."""

    def __init__(self, pipelines: Mapping[str, PipelineSettings], folder: Path, on_crash: OnCrash) -> None:
        self._on_crash = on_crash
        stages = topology.needed_stages(next(iter(pipelines.values())))  # those of all pipelines
        self._host = StageHost(modules_of(stages), log=folder / "host.log")
        self._supervisors: dict[str, Supervisor] = {}
        for grouping, settings in pipelines.items():
            topic_plan.apply(settings)
            file = folder / f"{settings.name}.yaml"
            file.write_text(loader.dump(settings))
            self._supervisors[grouping] = Supervisor(
                file, settings, drain=False, logs=folder / settings.name, host=self._host
            )
        self._scrapers = {
            grouping: Scraper(one for one in supervisor.processes.values() if one.stage == "aggregator")
            for grouping, supervisor in self._supervisors.items()
        }
        self.ports = {
            f"{pipelines[grouping].name}/{name}": replica.metrics_port
            for grouping, supervisor in self._supervisors.items()
            for name, replica in supervisor.processes.items()
        }
        """Process -> port of its metrics."""

    def start(self) -> None:
        for supervisor in self._supervisors.values():
            supervisor.start()

    def wait(self, seconds: float) -> None:
        """Wait, and restart processes that have ended."""
        time.sleep(seconds)
        for supervisor in self._supervisors.values():
            for event in supervisor.poll(time.monotonic()):
                if event.kind == "ended":
                    self._on_crash(event)

    def counts(self) -> dict[str, int]:
        """Return the number of tuples in results by grouping."""
        return {grouping: scraper.snapshot().tuples for grouping, scraper in self._scrapers.items()}

    def stop(self) -> None:
        for supervisor in self._supervisors.values():
            supervisor.stop()
        self._host.close()


def _send(records: RecordBatch, rate: float, producer: BulkProducer, running: _Running, on_counts: OnCounts) -> None:
    """Send the records at an even rate, and report the counts until STREAM_S are over."""
    start = time.monotonic()
    limiter = RateLimiter(start, rate=rate)
    sent, next_counts = 0, start + SCRAPE_INTERVAL_S
    while (now := time.monotonic()) < start + STREAM_S:
        if count := limiter.acquire(now, records.times[sent:]):
            producer.send(records.values[sent : sent + count], records.times[sent : sent + count].tolist())
            sent += count
        if now >= next_counts:
            on_counts(now - start, {name: tuples - 1 for name, tuples in running.counts().items()})
            next_counts = time.monotonic() + SCRAPE_INTERVAL_S
        running.wait(POLL_S)


def _measured(settings: PipelineSettings, first_ms: float, total: int) -> LiveResult:
    tuples = read_counts(settings).total() - 1
    # The time of the last commit: the timestamps of the results themselves are event times.
    written = OffsetReader(settings.kafka).written(settings.topic("aggregates"))
    seconds = (written[1] - first_ms) / 1000 if written else 0.0
    loads, pairs, keys = _assignments(settings)
    return LiveResult(
        grouping=settings.router.grouping,
        tuples=tuples,
        tuples_per_s=tuples / seconds if seconds > 0 else 0.0,
        waiting=total - 1 - tuples,
        max_over_avg=max_over_avg(loads),
        replication_factor=pairs / keys,
    )


def _assignments(settings: PipelineSettings) -> tuple[NDArray[np.int64], int, int]:
    """Return the tuples that the router sent to each worker, and the numbers of (key, worker) pairs and of keys."""
    offsets, topic = OffsetReader(settings.kafka), settings.topic("worker-input")
    end = offsets.end(topic)
    ranges = {worker: (first, end[worker]) for worker, first in offsets.begin(topic).items()}
    loads = np.zeros(settings.router.workers, dtype=np.int64)
    pairs: set[tuple[int, str]] = set()
    for worker, messages in read_ranges(settings.kafka, topic, ranges):
        for value in filter(None, (message.value() for message in messages)):  # a watermark has no value
            for part in keys_and_times(read_table(value)):
                loads[worker] += part.num_rows
                pairs.update((worker, key) for key in part["key"].dictionary.to_pylist())
    return loads, len(pairs), len({key for _, key in pairs})


def _joined(batches: Iterator[RecordBatch]) -> RecordBatch:
    """Return all records of the batches as one."""
    parts = list(batches)
    return RecordBatch(
        [value for part in parts for value in part.values], np.concatenate([part.times for part in parts])
    )
