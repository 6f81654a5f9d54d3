"""Metrics of the stages that write to a table: rows, and the state of the database."""

from __future__ import annotations

from skewless.metric_definition import Metric
from skewless.sql.errors import CAUSES

METRICS = (
    Metric(
        "skewless_sink_store_up",
        "1 while this process is connected to the database, else 0: then it waits and connects again.",
        unit="0 or 1",
    ),
    Metric(
        "skewless_sink_rows_total",
        "Rows in committed transactions. stored: inserted, or replaced unless the table has a higher revision; deleted:"
        " by a tombstone; refused: written to the table of refused rows.",
        labels=("outcome",),
    ),
    Metric("skewless_sink_pending_rows", "Rows that are read and not yet sent to the database."),
    Metric(
        "skewless_sink_conflicts_total",
        "Transactions that stored nothing, because another process had stored the offsets of the partition.",
        unit="transactions",
    ),
    Metric(
        "skewless_sink_retries_total",
        f"Attempts that failed and are repeated, by cause: {', '.join(CAUSES[:-1])} or {CAUSES[-1]}.",
        labels=("cause",),
        unit="attempts",
    ),
)
"""Definitions of the metrics that sink and flusher have."""
