"""What the transport counts of itself, for the metrics: a few additions per batch and per commit, none per record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from skewless.metrics.histogram import Histogram


@dataclass(slots=True)
class Tally:
    """Records and the bytes of their values."""

    records: int = 0
    bytes: int = 0


class Counts:
    """Plain numbers of one process; they are read from other threads and may be a moment old there."""

    def __init__(self) -> None:
        self.records = 0
        """Records processed."""
        self.bytes = 0
        """Bytes of their values."""
        self.batches = Histogram()
        self.commits = Histogram()
        self.restores = Histogram()
        self.restored_records = 0
        """Records of changelogs from which state was taken."""
        self.rebalances = Counter({"assigned": 0, "revoked": 0, "lost": 0})
        self.rewinds = 0
        self.beat: float | None = None
        """When the consumer's thread last began to look for work, by the steady clock; None before that."""
        self.restoring = False
        """Whether partitions are being taken over."""
        self.busy: defaultdict[int, float] = defaultdict(float)
        """Seconds of work by partition, simulated cost included."""

    @contextmanager
    def taking_over(self) -> Iterator[None]:
        """Tell that partitions are being taken over, and how long it took."""
        self.restoring = True
        try:
            with timed(self.restores):
                yield
        finally:
            self.restoring = False

    def batch(self, partition: int, records: int, size: int, seconds: float) -> None:
        """Count a batch that was processed."""
        self.records += records
        self.bytes += size
        self.batches.observe(seconds)
        self.spend(partition, seconds)

    def spend(self, partition: int, seconds: float) -> None:
        """Count work on a partition."""
        self.busy[partition] += seconds


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe how long the block takes, also when it fails."""
    started = perf_counter()
    try:
        yield
    finally:
        histogram.observe(perf_counter() - started)
