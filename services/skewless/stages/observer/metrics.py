"""Metrics of an observer: the measures of the last tick that it emitted."""

from __future__ import annotations

from collections.abc import Iterator

from skewless.engine.step import TOP_KEYS, Sample
from skewless.metric_definition import Metric
from skewless.stages.state_metrics import STATE_METRICS
from skewless.wire.distribution import TickDistribution

METRICS = (
    Metric("skewless_observer_ticks_total", "Ticks emitted, one record of topic distribution each."),
    Metric(
        "skewless_observer_tick_end_timestamp_seconds",
        "Event time at which the last emitted tick ends, since the epoch.",
    ),
    Metric("skewless_observer_tick_tuples", "Tuples of all workers in the last tick."),
    Metric(
        "skewless_observer_tick_rows",
        "Rows of all workers in the last tick, by which the load is measured: tuples, or rows in which the splitter has"
        " aggregated tuples.",
    ),
    Metric(
        "skewless_observer_hot_keys",
        "Keys with more tuples than an even share of one worker. Topic hot-keys names them.",
    ),
    Metric("skewless_observer_tick_keys", "Distinct keys in the last tick."),
    Metric(
        "skewless_observer_reduced_ticks_total",
        "Ticks that lost the keys with few tuples, because all ticks had more than observer.max_state_bytes. Their "
        "numbers of keys and of workers per key are too small.",
    ),
    Metric(
        "skewless_observer_worker_load_share_ratio",
        "Share of each worker in the rows of the last tick, from all routers.",
        labels=("worker",),
    ),
    Metric(
        "skewless_observer_load_stddev_ratio",
        "Population standard deviation of the shares of the workers in the last tick (STD_DEV of dynamic key"
        " grouping).",
    ),
    Metric("skewless_observer_imbalance_ratio", "(Most loaded worker - average) / rows, in the last tick."),
    Metric("skewless_observer_max_over_avg_ratio", "Most loaded worker / average, in the last tick."),
    Metric(
        "skewless_observer_replication_factor",
        "Replication factor in the last tick: mean number of distinct workers per key (DIST_COST of dynamic key"
        " grouping).",
        unit="workers per key",
    ),
    Metric(
        "skewless_observer_top_key_share_ratio",
        "Share of the hottest keys in the tuples of the last tick, rank 1 to 10.",
        labels=("rank",),
    ),
    Metric(
        "skewless_observer_top_key_workers",
        "Number of workers that held each of the hottest keys in the last tick, rank 1 to 10.",
        labels=("rank",),
    ),
    *STATE_METRICS,
)
"""Definitions of the metrics that only this stage has."""


def samples(tick: TickDistribution) -> Iterator[Sample]:
    """Yield the measures of a tick. Keys are labelled by rank."""
    tuples = max(1, tick.tuples)
    yield Sample("skewless_observer_tick_end_timestamp_seconds", (), tick.tick_end / 1000)
    yield Sample("skewless_observer_tick_tuples", (), tick.tuples)
    yield Sample("skewless_observer_tick_rows", (), tick.rows)
    yield Sample("skewless_observer_tick_keys", (), tick.keys)
    for worker, rows in enumerate(tick.rows_by_worker):
        yield Sample("skewless_observer_worker_load_share_ratio", (str(worker),), rows / max(1, tick.rows))
    yield Sample("skewless_observer_load_stddev_ratio", (), tick.load_stddev_percent / 100)
    yield Sample("skewless_observer_imbalance_ratio", (), tick.imbalance)
    yield Sample("skewless_observer_max_over_avg_ratio", (), tick.max_over_avg)
    yield Sample("skewless_observer_replication_factor", (), tick.replication_factor)
    for rank, key in enumerate(tick.top_keys[:TOP_KEYS], start=1):
        yield Sample("skewless_observer_top_key_share_ratio", (str(rank),), key.tuples / tuples)
        yield Sample("skewless_observer_top_key_workers", (str(rank),), key.workers)
