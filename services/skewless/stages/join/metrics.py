"""Metrics of a join: pairs, unmatched and late records, and the records that it holds."""

from __future__ import annotations

from skewless.metric_definition import SECONDS, Metric

WAITS = (*SECONDS, 60.0, 600.0, 3_600.0, 86_400.0)
"""Upper bounds of the buckets of waits, in seconds."""

METRICS = (
    Metric("skewless_join_pairs_total", "Pairs emitted."),
    Metric(
        "skewless_join_unmatched_total",
        "Records without a partner that can have none any more. They are counted for every kind of join.",
        labels=("side",),
        unit="records",
    ),
    Metric(
        "skewless_join_late_total",
        "Records that were older than the disorder of their topic allows. They took no part in the join.",
        labels=("side",),
        unit="records",
    ),
    Metric(
        "skewless_join_wait_seconds",
        "Time by which the right record of a pair is after the left one, by their event times. The count is the number"
        " of pairs.",
        buckets=WAITS,
    ),
    Metric("skewless_join_held_records", "Records that wait for a partner.", labels=("side",)),
    Metric("skewless_join_held_bytes", "Bytes of the values of these records.", labels=("side",)),
    Metric(
        "skewless_join_buffer_limit_records",
        "Number of held records of both sides at which only the slowest partition is read: join.buffer_records, or as"
        " many of the present size as fit into join.buffer_bytes, if they are fewer.",
    ),
    Metric(
        "skewless_join_paused_partitions",
        "Partitions that wait, because they are ahead of slower ones.",
        labels=("side",),
    ),
    Metric(
        "skewless_join_silent_partitions",
        "Partitions that hold records of the other side back: everything in them is read, and their watermark has not"
        " advanced for a minute.",
        labels=("side",),
    ),
)
"""Definitions of the metrics that only this stage has."""
