"""Metrics of a splitter: records that the conditions of the pipeline filter out."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = (
    Metric(
        "skewless_splitter_filtered_records_total",
        "counter",
        (),
        "records",
        "Records that do not meet the conditions of splitter.where. They have no tuples.",
    ),
)
"""Definitions of the metrics that only this stage has."""
