"""Metrics of the mirror."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS: tuple[Metric, ...] = ()
"""It has the metrics of every stage only."""
