"""Metrics of a worker. The label `worker` is the number of a worker partition, equal in all metrics."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = (
    Metric("skewless_worker_tuples_total", "Tuples processed by each worker.", labels=("worker",)),
    Metric(
        "skewless_worker_rows_total",
        "Rows processed by each worker, by which its load is measured: tuples, or rows in which the splitter has"
        " aggregated tuples.",
        labels=("worker",),
    ),
    Metric(
        "skewless_worker_keys",
        "Keys that each worker held at its last commit with tuples. A key counts once per pane.",
        labels=("worker",),
    ),
    Metric(
        "skewless_worker_partials_total",
        "Partial results that each worker produced: one per commit, pane and key that changed.",
        labels=("worker",),
        unit="rows",
    ),
    Metric(
        "skewless_worker_busy_seconds_total",
        "Time in which each worker processes batches, including simulated cost. With worker.cost, its rate is the"
        " utilisation of the worker. Without, most of the work is the flush before each commit, which is not included:"
        " see state busy of skewless_time_seconds_total.",
        labels=("worker",),
    ),
)
"""Definitions of the metrics that only this stage has."""
