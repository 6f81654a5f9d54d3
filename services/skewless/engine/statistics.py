"""Statistics of the engine, for the metrics. They cost some additions per batch and per commit, none per record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from skewless.algorithms.duration_histogram import Histogram
from skewless.kafka.client_statistics import ClientStatistics
from skewless.metric_definition import RESTORE_SECONDS


class Stopwatch:
    """Total duration of a block that runs repeatedly, including its present run. Other threads may read it."""

    def __init__(self) -> None:
        # One attribute, because another thread must see both values of the same time.
        self._total_and_start: tuple[float, float | None] = (0.0, None)

    @property
    def total_s(self) -> float:
        """Total duration in s."""
        total, start = self._total_and_start
        return total if start is None else total + perf_counter() - start

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the block."""
        self._total_and_start = (self.total_s, perf_counter())
        try:
            yield
        finally:
            self._total_and_start = (self.total_s, None)


class EngineStatistics:
    """Statistics of one process. Other threads read them without a lock, so values may be slightly out of date."""

    def __init__(self) -> None:
        self.records = 0
        """Records processed."""
        self.bytes = 0
        """Bytes of the values of processed records."""
        self.batches = Histogram()
        self.commits = Histogram()
        self.restores = Histogram(RESTORE_SECONDS)
        self.restored_records = 0
        """Changelog records from which state was restored."""
        self.rebalances = Counter({"assigned": 0, "revoked": 0, "lost": 0})
        self.resets = 0
        """Aborts with a reset to the committed offsets."""
        self.last_poll_at: float | None = None
        """Start of the consumer thread's last cycle, by the monotonic clock; None before the first."""
        self.restoring = False
        """Whether assigned partitions are being restored."""
        self.busy: defaultdict[int, float] = defaultdict(float)
        """Processing time in s by partition, including simulated cost."""
        self.consumer = ClientStatistics()
        """Statistics of librdkafka's consumers."""
        self.working = Stopwatch()
        """Processing, flushing and sending."""
        self.committing = Stopwatch()
        self.restoring_time = Stopwatch()
        self._started = perf_counter()
        self._busy_s = self._idle_s = 0.0

    @contextmanager
    def restoring_partitions(self) -> Iterator[None]:
        """Set `restoring` during the block, and observe its duration."""
        self.restoring = True
        try:
            with observe_duration(self.restores), self.restoring_time.running():
                yield
        finally:
            self.restoring = False

    def times(self, output_waited_s: float) -> dict[str, float]:
        """Return the time in s since the start by state of the process.

        `output_waited_s` is the time in `working` in which the output accepted no records.
        """
        # Never less than before, because they are counters: the durations are read one after another.
        self._busy_s = max(self._busy_s, self.working.total_s - output_waited_s)
        times = {
            "busy": self._busy_s,
            "back_pressured": self.committing.total_s + output_waited_s,
            "restoring": self.restoring_time.total_s,
        }
        self._idle_s = max(self._idle_s, perf_counter() - self._started - sum(times.values()))
        return {**times, "idle": self._idle_s}

    def batch(self, partition: int, records: int, size: int, seconds: float, trace_id: str | None = None) -> None:
        """Count a batch that was processed, in a trace or not."""
        self.records += records
        self.bytes += size
        self.batches.observe(seconds, trace_id)
        self.add_busy_time(partition, seconds)

    def add_busy_time(self, partition: int, seconds: float) -> None:
        """Add processing time of a partition."""
        self.busy[partition] += seconds


@contextmanager
def observe_duration(histogram: Histogram) -> Iterator[None]:
    """Observe the duration of the block, also if it fails."""
    started = perf_counter()
    try:
        yield
    finally:
        histogram.observe(perf_counter() - started)
