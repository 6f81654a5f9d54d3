"""What an observer shows of the last tick that it told."""

from __future__ import annotations

from collections.abc import Iterator

from skewless.public_records import TickDistribution
from skewless.step import RANKS, Sample


def samples(tick: TickDistribution) -> Iterator[Sample]:
    """Tell the measures of a tick; keys by their rank alone."""
    tuples = max(1, tick.tuples)
    yield Sample("skewless_observer_tick_seconds", (), tick.tick_end / 1000)
    yield Sample("skewless_observer_tick_tuples", (), tick.tuples)
    yield Sample("skewless_observer_tick_keys", (), tick.keys)
    for worker, count in enumerate(tick.tuples_by_worker):
        yield Sample("skewless_observer_load_ratio", (str(worker),), count / tuples)
    yield Sample("skewless_observer_load_deviation_ratio", (), tick.std_dev / 100)
    yield Sample("skewless_observer_imbalance_ratio", (), tick.imbalance)
    yield Sample("skewless_observer_max_over_avg_ratio", (), tick.max_over_avg)
    yield Sample("skewless_observer_replication_ratio", (), tick.dist_cost)
    for rank, key in enumerate(tick.hottest_keys[:RANKS], start=1):
        yield Sample("skewless_observer_hottest_ratio", (str(rank),), key.tuples / tuples)
        yield Sample("skewless_observer_hottest_workers", (str(rank),), key.workers)
