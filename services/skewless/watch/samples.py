"""What a running stage shows: the counts that its parts keep, as samples of the list of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from skewless.step import Sample
from skewless.transport.app import Wiring
from skewless.watch.collector import Durations


def samples(wiring: Wiring) -> Iterator[Sample | Durations]:
    """Read all counts of a stage; may be called from any thread, a value is at most one commit old."""
    session, outbox = wiring.session, wiring.outbox
    yield Sample("skewless_input_records_total", (), session.records)
    yield Sample("skewless_tuples_total", (), session.step.tuples)
    if session.step.workers:
        yield Sample("skewless_router_workers", (), session.step.workers)
    for worker, tuples in enumerate(session.step.tuples_by_worker):
        yield Sample("skewless_router_tuples_total", (str(worker),), int(tuples))
    for topic, records in outbox.sent.copy().items():
        yield Sample("skewless_output_records_total", (topic,), records)
    for outcome, transactions in outbox.outcomes.copy().items():
        yield Sample("skewless_transactions_total", (outcome,), transactions)
    for partition, records in session.lag.items():
        yield Sample("skewless_lag_records", (str(partition),), records)
    for partition, mark in session.watermarks.items():
        yield Sample("skewless_watermark_seconds", (str(partition),), mark / 1000)
