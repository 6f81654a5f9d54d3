"""Sends one live stream to a pipeline per grouping at the same time. Their workers take a fixed time per tuple."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from skewless import topology
from skewless.algorithms.load_metrics import max_over_avg, sums_by_worker
from skewless.config import loader, topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import JobFailedError
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.producer.bulk import BulkProducer, prepare_topic
from skewless.lab.datasets import DatasetOptions, RecordBatch, find_dataset, take
from skewless.lab.datasets.rate_limiter import RateLimiter
from skewless.lab.demo.demo_pipeline import SCRAPE_INTERVAL_S, OnCrash, OnStart
from skewless.lab.demo.demo_plan import STREAM, STREAM_S
from skewless.lab.demo.prometheus_scraper import Scraper, Snapshot
from skewless.lab.local.stage_host import StageHost
from skewless.lab.local.supervisor import Supervisor
from skewless.spark import topic_rows
from skewless.spark.comparison import Compared
from skewless.spark.completion import completion_of
from skewless.spark.pipeline_run import PipelineRun, end_offsets, run_of

POLL_S = 0.02
START_TIMEOUT_S = 90.0
"""Maximum time until all pipelines have a result: from the start of the processes, and from the end of the stream."""

OnSnapshots = Callable[[float, Mapping[str, Snapshot]], None]
"""(seconds since the first record, tuples in results and rows sent to each worker, by grouping) -> None"""
MEASURED_STAGES = {topology.ROUTING_STAGE, topology.RESULTS_STAGE}
"""Stages with the loads of the workers and with the tuples in results."""


@dataclass(frozen=True)
class LiveResult:
    """Measures of one pipeline. The fields are also the names in the JSON."""

    grouping: str
    tuples: int
    """Tuples of the stream that the workers completed."""
    tuples_per_s: float
    """From the first tuple that reached a worker to the last one that was completed."""
    waiting: int
    """Tuples in the queues of the workers at the end."""
    max_over_avg: float
    """Tuples that the router sent to the most loaded worker / average."""
    replication_factor: float
    """Mean number of workers per key."""

    @property
    def compared(self) -> Compared:
        """What a comparison states of the run."""
        return Compared(self.grouping, self.tuples_per_s, self.waiting, self.max_over_avg)


def compare(  # noqa: PLR0913 - three of them are callbacks
    pipelines: Mapping[str, PipelineSettings],
    rate: float,
    folder: Path,
    host: StageHost,
    *,
    on_snapshots: OnSnapshots,
    on_crash: OnCrash,
    on_start: OnStart,
) -> list[PipelineRun]:
    """Run the pipelines on the same stream of `rate` tuples per second for STREAM_S seconds.

    The host starts the processes. Returns where the stream is in the topics of each pipeline.

    The first tuple is sent ahead and is not measured: the stream begins when each pipeline has counted it. Calls
    `on_start` once, `on_snapshots` every SCRAPE_INTERVAL_S, and `on_crash` when a process has crashed. Raises
    JobFailedError if a pipeline has no result within START_TIMEOUT_S, and the errors of `Supervisor.poll`. All
    processes have ended when it returns or raises.
    """
    kafka = next(iter(pipelines.values())).kafka
    producer = BulkProducer(kafka, STREAM, prepare_topic(kafka, STREAM, 1))
    total = round(rate * STREAM_S) + 1
    options = DatasetOptions(records=total, event_rate=rate)
    records = _joined(take(find_dataset(STREAM).batches(options), total))
    running = _Running(pipelines, folder, host, on_crash)
    try:
        producer.send(records.values[:1], records.times[:1].tolist())
        producer.flush()
        on_start(running.ports)
        running.start()
        running.wait_for_tuples(1)
        starts = {grouping: end_offsets(settings) for grouping, settings in pipelines.items()}
        _send(records.part(1, total), rate, producer, running, on_snapshots)
        running.wait_for_tuples(2)  # on a very busy machine, 15 s may be over before the first tuples are counted
    finally:
        running.stop()
        producer.close()
    return [run_of(settings, starts[grouping]) for grouping, settings in pipelines.items()]


class _Running:
    """The processes of all pipelines."""

    def __init__(
        self, pipelines: Mapping[str, PipelineSettings], folder: Path, host: StageHost, on_crash: OnCrash
    ) -> None:
        self._folder = folder
        self._on_crash = on_crash
        self._supervisors: dict[str, Supervisor] = {}
        for grouping, settings in pipelines.items():
            topic_plan.apply(settings)
            file = folder / f"{settings.name}.yaml"
            file.write_text(loader.dump(settings))
            self._supervisors[grouping] = Supervisor(
                file, settings, drain=False, logs=folder / settings.name, host=host
            )
        self._scrapers = {
            grouping: Scraper(one for one in supervisor.processes.values() if one.stage in MEASURED_STAGES)
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

    def wait_for_tuples(self, count: int) -> None:
        """Wait until each pipeline has this number of tuples in results. Raises JobFailedError after a time limit."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(snapshot.tuples < count for snapshot in self.snapshots().values()):
            if time.monotonic() > deadline:
                raise JobFailedError(
                    f"no result within {START_TIMEOUT_S:.0f} s; with --keep, the logs stay in {self._folder}"
                )
            self.wait(SCRAPE_INTERVAL_S)

    def snapshots(self) -> dict[str, Snapshot]:
        """Return the tuples in results and the loads of the workers by grouping."""
        return {grouping: scraper.snapshot() for grouping, scraper in self._scrapers.items()}

    def stop(self) -> None:
        for supervisor in self._supervisors.values():
            supervisor.stop()


def _send(
    records: RecordBatch, rate: float, producer: BulkProducer, running: _Running, on_snapshots: OnSnapshots
) -> None:
    """Send the records at an even rate, and report the snapshots until STREAM_S are over."""
    start = time.monotonic()
    limiter = RateLimiter(start, rate=rate)
    sent, next_snapshots = 0, start + SCRAPE_INTERVAL_S
    while (now := time.monotonic()) < start + STREAM_S:
        if count := limiter.acquire(now, records.times[sent:]):
            producer.send(records.values[sent : sent + count], records.times[sent : sent + count].tolist())
            sent += count
        if now >= next_snapshots:
            snapshots = running.snapshots().items()  # without the tuple that was sent ahead
            on_snapshots(now - start, {name: replace(found, tuples=found.tuples - 1) for name, found in snapshots})
            next_snapshots = time.monotonic() + SCRAPE_INTERVAL_S
        running.wait(POLL_S)


def measured(run: PipelineRun, grouping: str) -> LiveResult:
    """Measure a run, as `skewless evaluate` does."""
    settings = run.settings
    sent = list(topic_rows.cells(_records(run, "worker-input"), settings.aggregator.window_ms))
    partials = list(topic_rows.partial_rows(_records(run, "partials"), run.windows))
    progress = [rows for cells in sent for rows in topic_rows.arrivals(cells)]
    progress += [rows for counted in partials for rows in topic_rows.completions(counted)]
    completion, cells = completion_of(pa.Table.from_batches(progress)), pa.Table.from_batches(sent)
    loads = sums_by_worker(cells["worker"].to_numpy(), cells["rows"].to_numpy(), settings.router.workers)
    return LiveResult(
        grouping=grouping,
        tuples=completion.tuples,
        tuples_per_s=completion.tuples_per_s,
        waiting=completion.waiting,
        max_over_avg=max_over_avg(loads),
        replication_factor=cells.group_by(["key", "worker"]).aggregate([]).num_rows / len(cells["key"].unique()),
    )


def _records(run: PipelineRun, topic: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of a topic with the columns that `topic_rows` reads, without tombstones."""
    for partition, messages in read_ranges(run.settings.kafka, run.settings.topic(topic), run.offsets[topic]):
        records = [message for message in messages if message.value() is not None]  # a watermark has no value
        yield pa.record_batch(
            {
                "key": pa.array([record.key() for record in records], pa.binary()),
                "value": pa.array([record.value() for record in records], pa.binary()),
                "worker": pa.array([partition] * len(records), pa.int32()),
                "timestamp_ms": pa.array([record.timestamp()[1] for record in records], pa.int64()),
            }
        )


def _joined(batches: Iterator[RecordBatch]) -> RecordBatch:
    """Return all records of the batches as one."""
    parts = list(batches)
    return RecordBatch(
        [value for part in parts for value in part.values], np.concatenate([part.times for part in parts])
    )
