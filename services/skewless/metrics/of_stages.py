"""Metrics that one stage alone shows. `worker` is the number of a worker partition, the same wherever it stands."""

from __future__ import annotations

from skewless.metrics.base import Metric

_R, _W, _A, _O = ("router",), ("worker",), ("aggregator",), ("observer",)

ROUTER = (
    Metric("skewless_router_info", "gauge", ("grouping",), "info", "Always 1; the label is the grouping.", _R),
    Metric("skewless_router_workers", "gauge", (), "workers", "W: how many worker partitions get tuples now.", _R),
    Metric(
        "skewless_router_tuples_total", "counter", ("worker",), "tuples", "Tuples sent to each worker partition.", _R
    ),
    Metric(
        "skewless_router_load_ratio",
        "gauge",
        ("worker",),
        "ratio",
        "Share of this router's tuples that each of the W workers got, in the last 10 s that had tuples.",
        _R,
    ),
    Metric(
        "skewless_router_imbalance_ratio",
        "gauge",
        (),
        "ratio",
        "(Fullest worker - average) / tuples, in the same 10 s.",
        _R,
    ),
    Metric(
        "skewless_router_max_over_avg_ratio",
        "gauge",
        (),
        "ratio",
        "Fullest worker / average, in the same 10 s: 1 is even, 2 halves the rate where workers are the limit.",
        _R,
    ),
    Metric(
        "skewless_router_split_keys",
        "gauge",
        (),
        "keys",
        "Keys (with even: buckets of keys) that the grouping lets more workers have than it gives every key; only"
        " groupings that decide so.",
        _R,
    ),
    Metric(
        "skewless_router_widest_key_workers",
        "gauge",
        (),
        "workers",
        "Most workers that one key (with even: one bucket) may have now; only groupings that decide so.",
        _R,
    ),
    Metric(
        "skewless_router_scale_decisions_total",
        "counter",
        ("direction",),
        "workers",
        "Workers given to keys (grow) and taken from them (shrink), net over a second each; only groupings that decide"
        " so.",
        _R,
    ),
    Metric(
        "skewless_router_hottest_ratio",
        "gauge",
        ("rank",),
        "ratio",
        "Share of this router's tuples of the hottest keys that its grouping knows, rank 1 to 10 (with even: buckets).",
        _R,
    ),
)

WORKER = (
    Metric("skewless_worker_tuples_total", "counter", ("worker",), "tuples", "Tuples that each worker took in.", _W),
    Metric(
        "skewless_worker_keys",
        "gauge",
        ("worker",),
        "keys",
        "Keys that each worker held at its last commit that had any; a key counts once for each pane.",
        _W,
    ),
    Metric(
        "skewless_worker_partials_total",
        "counter",
        ("worker",),
        "rows",
        "Partial results that each worker wrote, one per pane and key that changed between two commits.",
        _W,
    ),
    Metric(
        "skewless_worker_processing_seconds_total",
        "counter",
        ("worker",),
        "seconds",
        "Time that each worker was at work, simulated cost included: its rate is the worker's utilisation.",
        _W,
    ),
)

AGGREGATOR = (
    Metric("skewless_aggregator_open_windows", "gauge", (), "windows", "Windows held in memory, over partitions.", _A),
    Metric(
        "skewless_aggregator_keys", "gauge", (), "keys", "Keys held in them; a key counts once for each window.", _A
    ),
    Metric(
        "skewless_aggregator_closed_windows_total",
        "counter",
        (),
        "windows",
        "Windows closed, over partitions; one that was opened again does not count again.",
        _A,
    ),
    Metric(
        "skewless_aggregator_reopened_windows_total",
        "counter",
        (),
        "windows",
        "Closed windows that an idle origin brought tuples for when it woke.",
        _A,
    ),
    Metric(
        "skewless_aggregator_results_total",
        "counter",
        ("kind",),
        "results",
        "Results written: first, the first of a window and key; revision, one that takes the place of an earlier one.",
        _A,
    ),
)

OBSERVER = (
    Metric("skewless_observer_ticks_total", "counter", (), "ticks", "Ticks told, each a record of distribution.", _O),
    Metric(
        "skewless_observer_tick_seconds", "gauge", (), "seconds", "Event time at which the last tick told ends.", _O
    ),
    Metric("skewless_observer_tick_tuples", "gauge", (), "tuples", "Tuples of all workers in that tick.", _O),
    Metric("skewless_observer_tick_keys", "gauge", (), "keys", "Distinct keys in that tick.", _O),
    Metric(
        "skewless_observer_load_ratio",
        "gauge",
        ("worker",),
        "ratio",
        "Share of that tick's tuples that each worker had, whichever routers sent them.",
        _O,
    ),
    Metric(
        "skewless_observer_load_deviation_ratio",
        "gauge",
        (),
        "ratio",
        "Population standard deviation of these shares.",
        _O,
    ),
    Metric(
        "skewless_observer_imbalance_ratio",
        "gauge",
        (),
        "ratio",
        "(Fullest worker - average) / tuples, in that tick.",
        _O,
    ),
    Metric("skewless_observer_max_over_avg_ratio", "gauge", (), "ratio", "Fullest worker / average, in that tick.", _O),
    Metric(
        "skewless_observer_replication_ratio",
        "gauge",
        (),
        "ratio",
        "Replication in that tick: mean number of distinct workers that held a key.",
        _O,
    ),
    Metric(
        "skewless_observer_hottest_ratio",
        "gauge",
        ("rank",),
        "ratio",
        "Share of that tick's tuples of its hottest keys, rank 1 to 10.",
        _O,
    ),
    Metric(
        "skewless_observer_hottest_workers",
        "gauge",
        ("rank",),
        "workers",
        "How many workers held each of these keys.",
        _O,
    ),
)

STATE = (
    Metric(
        "skewless_state_bytes",
        "gauge",
        (),
        "bytes",
        "Memory for keys and numbers in open windows or ticks of this process.",
        ("aggregator", "observer"),
    ),
    Metric(
        "skewless_state_limit_bytes",
        "gauge",
        (),
        "bytes",
        "The most that this may be: max_state_bytes of the stage; with more the process ends.",
        ("aggregator", "observer"),
    ),
)

OF_STAGES = (*ROUTER, *WORKER, *AGGREGATOR, *OBSERVER, *STATE)
