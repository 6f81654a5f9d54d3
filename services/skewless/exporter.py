"""What a running stage shows: the counts that its parts keep, as samples of the metrics table."""

from __future__ import annotations

from collections.abc import Iterator

from skewless.metrics import Sample
from skewless.transport.app import Wiring


def samples(stage: str, wiring: Wiring) -> Iterator[Sample]:
    """Read all counts of a stage; may be called from any thread, a value is at most one commit old."""
    session, outbox = wiring.session, wiring.outbox
    yield Sample("skewless_records_total", (stage,), session.records)
    yield Sample("skewless_tuples_total", (stage,), session.step.tuples)
    if session.step.workers:
        yield Sample("skewless_router_workers", (), session.step.workers)
    for worker, tuples in enumerate(session.step.tuples_by_worker):
        yield Sample("skewless_router_tuples_total", (str(worker),), int(tuples))
    for topic, records in outbox.sent.copy().items():
        yield Sample("skewless_outputs_total", (stage, topic), records)
    for outcome, transactions in outbox.outcomes.copy().items():
        yield Sample("skewless_transactions_total", (stage, outcome), transactions)
    for partition, records in session.lag.items():
        yield Sample("skewless_lag_records", (stage, str(partition)), records)
    for partition, mark in session.watermarks.items():
        yield Sample("skewless_watermark_seconds", (stage, str(partition)), mark / 1000)
