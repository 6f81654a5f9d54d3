"""Metrics of an aggregator: its windows and results."""

from __future__ import annotations

from skewless.metric_definition import Metric
from skewless.stages.state_metrics import STATE_METRICS

METRICS = (
    Metric("skewless_aggregator_open_windows", "gauge", (), "windows", "Windows in memory, of all partitions."),
    Metric(
        "skewless_aggregator_keys",
        "gauge",
        (),
        "keys",
        "Keys of the windows in memory. A key counts once per window.",
    ),
    Metric(
        "skewless_aggregator_closed_windows_total",
        "counter",
        (),
        "windows",
        "Windows closed, of all partitions. A reopened window does not count again.",
    ),
    Metric(
        "skewless_aggregator_reopened_windows_total",
        "counter",
        (),
        "windows",
        "Closed windows that were reopened, because an idle source partition became active and had tuples for them.",
    ),
    Metric(
        "skewless_aggregator_results_total",
        "counter",
        ("kind",),
        "results",
        "Results produced. first: the first result of a window and key; revision: a result that replaces an earlier"
        " one.",
    ),
    *STATE_METRICS,
)
"""Definitions of the metrics that only this stage has."""
