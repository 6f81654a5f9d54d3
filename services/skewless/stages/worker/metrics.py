"""Metrics of a worker. The label `worker` is the number of a worker partition, equal in all metrics."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = (
    Metric("skewless_worker_tuples_total", "counter", ("worker",), "tuples", "Tuples processed by each worker."),
    Metric(
        "skewless_worker_rows_total",
        "counter",
        ("worker",),
        "rows",
        "Rows processed by each worker, by which its load is measured: tuples, or rows in which the splitter has"
        " aggregated tuples.",
    ),
    Metric(
        "skewless_worker_keys",
        "gauge",
        ("worker",),
        "keys",
        "Keys that each worker held at its last commit with tuples. A key counts once per pane.",
    ),
    Metric(
        "skewless_worker_partials_total",
        "counter",
        ("worker",),
        "rows",
        "Partial results that each worker produced: one per commit, pane and key that changed.",
    ),
    Metric(
        "skewless_worker_busy_seconds_total",
        "counter",
        ("worker",),
        "seconds",
        "Busy time of each worker, including simulated cost. Its rate is the utilisation of the worker.",
    ),
)
"""Definitions of the metrics that only this stage has."""
