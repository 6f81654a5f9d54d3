"""Runs `skewless produce`: sends batches at a limited rate until they end or the user interrupts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.kafka.producer.bulk import BulkProducer
from skewless.lab.datasets import RecordBatch
from skewless.lab.datasets.produce_classified import InputClassifier
from skewless.lab.datasets.rate_limiter import RateLimiter
from skewless.lab.progress import report_progress

WAIT_S = 0.01
"""Wait while the rate limit allows no record. The records of this period are then sent together."""
MAX_SEND_RECORDS = 10_000
"""Maximum records per call of the producer. Interrupts and progress are handled between two calls."""


@dataclass
class Summary:
    """Records sent by a run. `first_ms` and `last_ms` are the least and the greatest event time."""

    records: int = 0
    size: int = 0
    """Bytes of all values."""
    seconds: float = 0.0
    first_ms: int | None = None
    last_ms: int | None = None
    interrupted: bool = False

    def add(self, values: list[bytes], times: NDArray[np.int64]) -> None:
        """Add the number, the size and the event times (ms) of records that the producer accepted."""
        self.records += len(values)
        self.size += sum(map(len, values))
        first, last = int(times.min()), int(times.max())
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)

    def to_json(self) -> dict[str, int | float | bool | None]:
        """Return the summary, with the rate in records per second, as a JSON object."""
        return {
            "records": self.records,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "rate": round(self.records / max(self.seconds, 1e-3)),
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "interrupted": self.interrupted,
        }

    def __str__(self) -> str:
        prefix = "interrupted: " if self.interrupted else ""
        return f"{prefix}sent {self.records:,} records ({self.size / 1e6:,.1f} MB) in {self.seconds:.1f} s"


def run(  # noqa: PLR0913 - arguments of all runs, and by name an option of some
    batches: Iterator[RecordBatch],
    producer: BulkProducer,
    total: int | None,
    rate: float | None,
    speed: float | None,
    *,
    classifier: InputClassifier | None = None,
    signals: Sequence[int] = (),
) -> Summary:
    """Send all batches, until `signals` is no longer empty, and wait until all sent records are delivered.

    `total` is the number of records for the progress bar, or None if it is unknown. `rate` and `speed` are those of
    `RateLimiter`. `classifier` gets all records that are sent.
    """
    start, summary = time.monotonic(), Summary()

    def delivered() -> int:  # in a resumed run, the producer's counters include earlier records
        return summary.records - (producer.taken - producer.delivered)

    try:
        with report_progress("sending", total, start) as progress:
            for part in _limited(batches, RateLimiter(start, rate=rate, speed=speed), signals):
                if part.values:
                    if classifier:
                        classifier.add(producer.taken, part.values, part.times, part.keys)
                    producer.send(part.values, part.times.tolist(), part.keys)
                    summary.add(part.values, part.times)
                progress(time.monotonic(), delivered())
            producer.flush()
            progress(time.monotonic(), delivered())
    finally:
        producer.close()
    summary.records = delivered()
    summary.seconds = time.monotonic() - start
    summary.interrupted = bool(signals)
    return summary


def _limited(batches: Iterator[RecordBatch], limiter: RateLimiter, signals: Sequence[int]) -> Iterator[RecordBatch]:
    """Yield the records as the limit allows, until there is a signal. While it allows none, yields empty batches."""
    for batch in batches:
        done = 0
        while done < len(batch.values) and not signals:
            count = limiter.acquire(time.monotonic(), batch.times[done : done + MAX_SEND_RECORDS])
            yield batch.part(done, done + count)
            done += count
            if not count:
                time.sleep(WAIT_S)
        if signals:
            return
