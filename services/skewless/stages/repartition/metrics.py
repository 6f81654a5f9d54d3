"""Metrics of the stages left and right."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = (
    Metric(
        "skewless_repartition_late_total",
        "Records that were older than the disorder of their topic allows. They take no part in the join.",
        unit="records",
    ),
    Metric(
        "skewless_repartition_paused_partitions",
        "Partitions that wait, because they are ahead of slower ones (join.max_watermark_drift_s).",
    ),
)
"""Definitions of the metrics that not every stage has."""
