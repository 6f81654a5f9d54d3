"""Metrics of the stages that hold open windows or ticks in memory."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = STATE_METRICS = (
    Metric("skewless_state_bytes", "Memory of keys and partial results in open windows or ticks of this process."),
    Metric(
        "skewless_state_limit_bytes",
        "Limit of skewless_state_bytes: max_state_bytes of the stage. An aggregator or a ranker exits if its state "
        "exceeds it. An observer drops keys, and exits only if it has too many ticks even so.",
    ),
)
"""Definitions of the metrics of a stage that has no others."""
