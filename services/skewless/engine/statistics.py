"""Statistics of the engine, for the metrics. They cost some additions per batch and per commit, none per record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from skewless.algorithms.duration_histogram import Histogram


class EngineStatistics:
    """Statistics of one process. Other threads read them without a lock, so values may be slightly out of date."""

    def __init__(self) -> None:
        self.records = 0
        """Records processed."""
        self.bytes = 0
        """Bytes of the values of processed records."""
        self.batches = Histogram()
        self.commits = Histogram()
        self.restores = Histogram()
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

    @contextmanager
    def restoring_partitions(self) -> Iterator[None]:
        """Set `restoring` during the block, and observe its duration."""
        self.restoring = True
        try:
            with observe_duration(self.restores):
                yield
        finally:
            self.restoring = False

    def batch(self, partition: int, records: int, size: int, seconds: float) -> None:
        """Count a batch that was processed."""
        self.records += records
        self.bytes += size
        self.batches.observe(seconds)
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
