"""Metrics of a ranker: the size of its state."""

from __future__ import annotations

from skewless.stages.state_metrics import STATE_METRICS

METRICS = STATE_METRICS
"""Definitions of the metrics that not every stage has."""
