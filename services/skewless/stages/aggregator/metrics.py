"""Metrics of an aggregator: its windows and results."""

from __future__ import annotations

from skewless.metric_definition import Metric
from skewless.stages.state_metrics import STATE_METRICS

LATENCY_S = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the buckets of the end-to-end latency. With the default interval, commits take up to 1.5 s of it."""

METRICS = (
    Metric(
        "skewless_end_to_end_latency_seconds",
        "Time from the splitter, when it reads a record, to the commit in which the aggregator merges its tuples into"
        " windows. One observation per commit and partition, of the newest tuple. Waiting in the source topic and in"
        " local windows (splitter.local.mode: windows) is not included. With worker_input.encoding: record there"
        " are no observations.",
        buckets=LATENCY_S,
    ),
    Metric("skewless_aggregator_open_windows", "Windows in memory, of all partitions."),
    Metric("skewless_aggregator_keys", "Keys of the windows in memory. A key counts once per window."),
    Metric(
        "skewless_aggregator_closed_windows_total",
        "Windows closed, of all partitions. A reopened window does not count again.",
    ),
    Metric(
        "skewless_aggregator_reopened_windows_total",
        "Closed windows that were reopened, because an idle source partition became active and had tuples for them.",
    ),
    Metric(
        "skewless_aggregator_results_total",
        "Results produced, without those that do not match aggregator.having. first: the first result of a window and"
        " key; revision: a result that replaces or deletes an earlier one.",
        labels=("kind",),
    ),
    *STATE_METRICS,
)
"""Definitions of the metrics that only this stage has."""
