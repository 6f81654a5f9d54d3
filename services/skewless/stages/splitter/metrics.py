"""Metrics of a splitter: only those that every stage has."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS: tuple[Metric, ...] = ()
"""Definitions of the metrics that only this stage has."""
