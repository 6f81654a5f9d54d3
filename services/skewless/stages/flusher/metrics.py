"""Metrics of a flusher."""

from __future__ import annotations

from skewless.stages.table_metrics import TABLE_METRICS

METRICS = TABLE_METRICS
"""Definitions of the metrics that not every stage has."""
