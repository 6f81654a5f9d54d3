"""Reads the statistics of a running stage as samples of the metrics."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.engine.executor import StepExecutor
from skewless.engine.output import Output
from skewless.engine.statistics import EngineStatistics
from skewless.engine.step import HistogramSample, Sample
from skewless.kafka.client_statistics import ClientStatistics
from skewless.monitoring.health import Health
from skewless.monitoring.memory_limit import memory_limit
from skewless.monitoring.metrics import METRICS
from skewless.version import VERSION
from skewless.wire.record import OutputStats
from skewless.wire.topic_partition import TopicPartition

READ_TIMEOUT_S = 1.0
"""Maximum wait for the end of the current batch. After it, the last values are returned."""

NO_OUTPUT = OutputStats()

Values = list[Sample | HistogramSample]


(BUSY,) = (metric for metric in METRICS if metric.name == "skewless_worker_busy_seconds_total")
"""Metric of the stages whose partitions are workers."""


class MetricsReader:
    """Reads the statistics of a stage between two batches, so that they are consistent."""

    def __init__(self, stage: str, health: Health) -> None:
        self._stage = stage
        self._health = health
        self._last_values: Values = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def on(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Read on the event loop of the stage until the end of the block."""
        self._loop = loop
        try:
            yield
        finally:
            self._loop = None

    def read(self, timeout_s: float = READ_TIMEOUT_S) -> Values:
        """Return all values. Must not be called from the thread of the event loop."""
        loop = self._loop  # which the end of the block removes at any time
        if loop is None:
            self._last_values = list(self._all())
            return self._last_values
        reading: concurrent.futures.Future[None] = concurrent.futures.Future()

        def read() -> None:  # also for the next scrape, if this one does not wait long enough
            self._last_values = list(self._all())
            reading.set_result(None)

        with suppress(concurrent.futures.TimeoutError, RuntimeError):  # RuntimeError: the loop has just been closed
            loop.call_soon_threadsafe(read)
            reading.result(timeout_s)
        return self._last_values

    def _all(self) -> Iterator[Sample | HistogramSample]:
        yield Sample("skewless_build_info", (VERSION,), 1)
        yield Sample("skewless_allocated_blocks", (), sys.getallocatedblocks())
        yield Sample("skewless_memory_limit_bytes", (), memory_limit())
        yield Sample("skewless_ready", (), int(self._health.ready))
        if (runtime := self._health.runtime) is None:
            return
        executor, output = runtime.executor, runtime.output
        yield from _recoveries(executor.statistics, output)
        yield from self._traffic(executor, output)
        yield Sample("skewless_restore_remaining_records", (), runtime.restore_progress.remaining)
        yield from _client("consumer", executor.statistics.consumer)
        yield from _client("producer", output.client)
        yield from _partitions(executor, executor.step.label_of)
        if not topology.stage(self._stage).reads_results:
            for partition, age_s in executor.lag_s.items():
                yield Sample("skewless_consumer_lag_seconds", (executor.step.label_of(partition),), age_s)
        yield from executor.step.collect_metrics()
        yield from output.collect_metrics()
        if self._stage in BUSY.stages:
            for worker, seconds in executor.statistics.busy.items():
                yield Sample(BUSY.name, (str(worker),), seconds)

    def _traffic(self, executor: StepExecutor, output: Output) -> Iterator[Sample | HistogramSample]:
        statistics = executor.statistics
        yield Sample("skewless_consumed_records_total", (), statistics.records)
        yield Sample("skewless_consumed_bytes_total", (), statistics.bytes)
        for topic in topology.stage(self._stage).outputs:
            sent = output.sent.get(topic, NO_OUTPUT)
            yield Sample("skewless_produced_records_total", (topic,), sent.records)
            yield Sample("skewless_produced_bytes_total", (topic,), sent.bytes)
        yield Sample("skewless_tuples_total", (), executor.step.tuples)
        yield HistogramSample("skewless_batch_duration_seconds", (), statistics.batches)
        yield HistogramSample("skewless_commit_duration_seconds", (), statistics.commits)
        yield HistogramSample("skewless_restore_duration_seconds", (), statistics.restores)
        yield Sample("skewless_restored_records_total", (), statistics.restored_records)
        for outcome, transactions in dict(output.outcomes).items():
            yield Sample("skewless_transactions_total", (outcome,), transactions)
        yield Sample("skewless_in_flight_batches", (), executor.assignment.in_flight_batches())
        for state, seconds in statistics.times(output.waited_s).items():
            yield Sample("skewless_time_seconds_total", (state,), seconds)


def _recoveries(statistics: EngineStatistics, output: Output) -> Iterator[Sample]:
    yield Sample("skewless_recoveries_total", ("transaction_abort",), statistics.resets)
    yield Sample("skewless_recoveries_total", ("producer_replacement",), output.replaced)
    for event, count in statistics.rebalances.items():
        yield Sample("skewless_rebalances_total", (event,), count)


def _client(name: str, client: ClientStatistics | None) -> Iterator[Sample]:
    if client is not None and client.reported:
        yield Sample("skewless_client_queue_records", (name,), client.queue_records)
        yield Sample("skewless_client_queue_bytes", (name,), client.queue_bytes)
        yield Sample("skewless_client_throttle_seconds_total", (name,), client.throttled_s)


def _partitions(executor: StepExecutor, label: Callable[[TopicPartition], str]) -> Iterator[Sample]:
    watermarks = executor.watermarks
    states = {
        partition: _state(watermark, idle=partition in executor.idle) for partition, watermark in watermarks.items()
    }
    count_by_state = Counter({"active": 0, "idle": 0, "ended": 0, "unknown": 0})
    count_by_state.update(states.values())
    for state, count in count_by_state.items():
        yield Sample("skewless_assigned_partitions", (state,), count)
    for partition, records in executor.lag.items():
        yield Sample("skewless_consumer_lag_records", (label(partition),), records)
    for partition, (start, end) in executor.log_ranges.items():
        if start >= 0:  # librdkafka has it from its first report on
            yield Sample("skewless_log_start_offset", (label(partition),), start)
        yield Sample("skewless_log_end_offset", (label(partition),), end)
    for partition, offset in executor.committed_offsets.items():
        yield Sample("skewless_committed_offset", (label(partition),), offset)
    for partition, watermark in watermarks.items():
        # An idle partition does not hold back windows. Its watermark would look like a delay or a stuck partition.
        if watermark is not None and states[partition] == "active":
            yield Sample("skewless_watermark_timestamp_seconds", (label(partition),), watermark / 1000)
    for partition, event_time in executor.event_times.items():
        yield Sample("skewless_max_event_timestamp_seconds", (label(partition),), event_time / 1000)


def _state(watermark: int | None, *, idle: bool) -> str:
    """Return how event time advances in a partition: the label `state` of a metric."""
    if watermark == MAX_WATERMARK:
        return "ended"
    return "idle" if idle else "unknown" if watermark is None else "active"
