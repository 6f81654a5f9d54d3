"""The run of `skewless produce`: chunks into a sender, at a pace, until they end or the user interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from skewless.commands.produce_judged import Judging
from skewless.commands.progress import Shown, shown
from skewless.datasets import Chunk
from skewless.datasets.pacing import Pacer
from skewless.transport.sender import Sender

STEP_S = 0.01
"""How long to wait when nothing may go: records then go in groups of this time."""
PORTION = 10_000
"""Records handed over at once: interrupts and progress are looked at in between."""


@dataclass
class Summary:
    """What was sent; `first_ms` and `last_ms` are the least and the greatest event time."""

    records: int = 0
    size: int = 0
    """Bytes of all values."""
    seconds: float = 0.0
    first_ms: int | None = None
    last_ms: int | None = None
    interrupted: bool = False

    def add(self, values: list[bytes], times: NDArray[np.int64]) -> None:
        """Count records that were taken."""
        self.size += sum(map(len, values))
        first, last = int(times.min()), int(times.max())
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)

    def facts(self) -> dict[str, int | float | bool | None]:
        """Give everything for a JSON object, and the rate."""
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
        how = "interrupted: " if self.interrupted else ""
        return f"{how}sent {self.records:,} records ({self.size / 1e6:,.1f} MB) in {self.seconds:.1f} s"


def run(  # noqa: PLR0913 - what all runs have, and by name what only some have
    chunks: Iterator[Chunk],
    sender: Sender,
    total: int | None,
    rate: float | None,
    speed: float | None,
    *,
    judging: Judging | None = None,
) -> Summary:
    """Send everything and wait until it has arrived. SIGINT and SIGTERM end the run early, but in good order.

    `total` is for the progress bar: how many records the chunks have, None if that is not known. `judging` judges what
    is sent.
    """
    start = time.monotonic()
    try:
        with _interrupts() as interrupted, shown("sending", total, start) as progress:
            sending = _Sending(sender, Pacer(start, rate=rate, speed=speed), interrupted, progress, judging)
            for chunk in chunks:
                sending.send(chunk)
                if interrupted.is_set():
                    break
            sender.flush()
            progress.update(time.monotonic(), sending.delivered)
    finally:
        sender.close()
    summary = sending.summary
    summary.records = sending.delivered
    summary.seconds = time.monotonic() - start
    summary.interrupted = interrupted.is_set()
    return summary


class _Sending:
    """What one run holds while it sends."""

    def __init__(
        self, sender: Sender, pacer: Pacer, interrupted: threading.Event, progress: Shown, judging: Judging | None
    ) -> None:
        self._sender = sender
        self._judging = judging
        self._pacer = pacer
        self._interrupted = interrupted
        self._progress = progress
        self._handed = 0
        self.summary = Summary()

    @property
    def delivered(self) -> int:
        """Records of this run that have arrived. The sender's own count has those before it too when it is resumed."""
        return self._handed - (self._sender.taken - self._sender.delivered)

    def send(self, chunk: Chunk) -> None:
        """Send a chunk at the pacer's pace; returns early when interrupted."""
        done = 0
        while done < len(chunk.values) and not self._interrupted.is_set():
            times = chunk.times[done : done + PORTION]
            count = self._pacer.take(time.monotonic(), times)
            if count:
                values = chunk.values[done : done + count]
                if self._judging:
                    self._judging.add(self._sender.taken, values, times[:count])
                self._sender.send(values, times[:count].tolist())
                self.summary.add(values, times[:count])
                self._handed += count
                done += count
            else:
                self._interrupted.wait(STEP_S)
            self._progress.update(time.monotonic(), self.delivered)


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into an event; the second one acts as if we were not here."""
    event = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(_number: int, _frame: FrameType | None) -> None:
        event.set()
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield event
    finally:
        restore()
