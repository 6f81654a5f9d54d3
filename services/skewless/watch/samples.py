"""What a running stage shows: the counts that its parts keep, as samples of the list of metrics."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from skewless import __version__, topology
from skewless.algorithms.watermark import END_OF_TIME
from skewless.step import Sample
from skewless.transport.app import Wiring
from skewless.transport.counts import Counts, Tally
from skewless.transport.outbox import Outbox
from skewless.transport.session import Session
from skewless.watch.collector import Durations
from skewless.watch.health import Health

READ_S = 1.0
"""So long a reader waits for the gap between two batches; after that it gets what was read last."""

NOTHING = Tally()

Values = list[Sample | Durations]


class Reader:
    """Reads a stage's counts between two batches, so that they fit each other."""

    def __init__(self, stage: str, health: Health) -> None:
        self._stage = stage
        self._health = health
        self.wiring: Wiring | None = None
        """What the stage is made of; None until it was built."""
        self._started = time.time()
        self._last: Values = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def on(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Read on the loop on which the stage runs, as long as the block does."""
        self._loop = loop
        try:
            yield
        finally:
            self._loop = None

    def read(self) -> Values:
        """Read everything now; called from any thread but the loop's."""
        if self._loop is None:
            self._last = list(self._all())
            return self._last
        asked: concurrent.futures.Future[Values] = concurrent.futures.Future()
        with suppress(concurrent.futures.TimeoutError, RuntimeError):  # the latter of a loop that has just been closed
            self._loop.call_soon_threadsafe(lambda: asked.set_result(list(self._all())))
            self._last = asked.result(READ_S)
        return self._last

    def _all(self) -> Iterator[Sample | Durations]:
        yield Sample("skewless_build_info", (__version__,), 1)
        yield Sample("skewless_start_time_seconds", (), self._started)
        yield Sample("skewless_allocated_blocks", (), sys.getallocatedblocks())
        yield Sample("skewless_ready", (), int(self._health.ready))
        if self.wiring is None:
            return
        session = self.wiring.session
        yield from _mended(session.counts, self.wiring.outbox)
        yield from self._traffic(session, self.wiring.outbox)
        yield from _partitions(session)
        yield from session.step.samples()
        if self._stage == "worker":
            for worker, seconds in session.counts.busy.items():
                yield Sample("skewless_worker_processing_seconds_total", (str(worker),), seconds)

    def _traffic(self, session: Session, outbox: Outbox) -> Iterator[Sample | Durations]:
        counts = session.counts
        yield Sample("skewless_input_records_total", (), counts.records)
        yield Sample("skewless_input_bytes_total", (), counts.bytes)
        for topic in topology.stage(self._stage).sinks:
            sent = outbox.sent.get(topic, NOTHING)
            yield Sample("skewless_output_records_total", (topic,), sent.records)
            yield Sample("skewless_output_bytes_total", (topic,), sent.bytes)
        yield Sample("skewless_tuples_total", (), session.step.tuples)
        yield Durations("skewless_batch_seconds", (), counts.batches)
        yield Durations("skewless_commit_seconds", (), counts.commits)
        yield Durations("skewless_restore_seconds", (), counts.restores)
        yield Sample("skewless_restored_records_total", (), counts.restored_records)
        for outcome, transactions in outbox.outcomes.copy().items():
            yield Sample("skewless_transactions_total", (outcome,), transactions)
        yield Sample("skewless_waiting_batches", (), session.waiting())


def _mended(counts: Counts, outbox: Outbox) -> Iterator[Sample]:
    yield Sample("skewless_recoveries_total", ("rewind",), counts.rewinds)
    yield Sample("skewless_recoveries_total", ("producer",), outbox.replaced)
    for event, times in counts.rebalances.items():
        yield Sample("skewless_rebalances_total", (event,), times)


def _partitions(session: Session) -> Iterator[Sample]:
    marks = session.watermarks
    states = {partition: _state(mark, idle=partition in session.idle) for partition, mark in marks.items()}
    counts = Counter({"active": 0, "idle": 0, "ended": 0, "unknown": 0})
    counts.update(states.values())
    for state, partitions in counts.items():
        yield Sample("skewless_assigned_partitions", (state,), partitions)
    for partition, records in session.lag.items():
        yield Sample("skewless_lag_records", (str(partition),), records)
    for partition, offset in session.committed_offsets.items():
        yield Sample("skewless_committed_offset", (str(partition),), offset)
    for partition, mark in marks.items():
        # An idle partition holds no window open. Its watermark would look like a delay, and like one that is stuck.
        if mark is not None and states[partition] == "active":
            yield Sample("skewless_watermark_seconds", (str(partition),), mark / 1000)
    for partition, newest in session.event_times.items():
        yield Sample("skewless_event_time_seconds", (str(partition),), newest / 1000)


def _state(mark: int | None, *, idle: bool) -> str:
    if idle:
        return "idle"
    return {None: "unknown", END_OF_TIME: "ended"}.get(mark, "active")
