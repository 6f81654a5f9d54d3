"""Load metrics of a router: the loads of the last 10 s."""

from __future__ import annotations

from skewless.algorithms import grouping
from skewless.stages.router.metrics import LOAD_MS, RouterMetrics

TICK_MS = 500
WORKERS = 4


def shown(workers: int = WORKERS) -> RouterMetrics:
    return RouterMetrics(grouping.create("shuffle", workers), workers)


def max_over_avg(view: RouterMetrics) -> float | None:
    values = [sample.value for sample in view.collect_metrics() if sample.name == "skewless_router_max_over_avg_ratio"]
    return values[0] if values else None


def even(view: RouterMetrics, now: int, until: int) -> int:
    """Route tuples to all workers evenly for a while, with a commit per portion."""
    while now < until:
        for worker in range(WORKERS):
            view.count(worker, 10, 10)
        view.update(now)
        now += TICK_MS
    return now


def test_router_load_metrics_first_load_is_reported_at_once_and_replaced_by_the_first_interval() -> None:
    view = shown()
    assert max_over_avg(view) is None
    view.count(0, 1, 1)
    view.update(1_000)
    assert max_over_avg(view) == 4.0
    even(view, 1_500, 1_000 + LOAD_MS)
    assert 1.0 < (max_over_avg(view) or 0) < 1.1


def test_router_load_metrics_after_a_pause_cover_more_than_the_first_commit() -> None:
    view = shown()
    now = even(view, 1_000, 30_000)
    for silent in range(now, now + 60_000, TICK_MS):
        view.update(silent)
    now += 60_000
    view.count(0, 1, 1)
    for _ in range(5):
        view.update(now)
        assert max_over_avg(view) == 1.0
        now += TICK_MS
    even(view, now, now + 2 * LOAD_MS)
    assert 1.0 <= (max_over_avg(view) or 0) < 1.1


def test_router_load_metrics_clock_set_back_continue_to_be_reported() -> None:
    view = shown()
    even(view, 1_000_000, 1_030_000)
    view.count(1, 100_000, 100_000)
    even(view, 0, 2 * LOAD_MS)
    even(view, 2 * LOAD_MS, 4 * LOAD_MS)
    assert max_over_avg(view) == 1.0
