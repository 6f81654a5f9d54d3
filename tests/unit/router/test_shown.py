"""What a router shows of its load: that of the last 10 s, as they were."""

from __future__ import annotations

from skewless.algorithms import grouping
from skewless.router.shown import LOAD_MS, Shown

TICK_MS = 500


def shown(workers: int = 4) -> Shown:
    return Shown(grouping.create("shuffle", workers), workers)


def max_over_avg(view: Shown) -> float | None:
    values = [sample.value for sample in view.samples() if sample.name == "skewless_router_max_over_avg_ratio"]
    return values[0] if values else None


def even(view: Shown, now: int, until: int) -> int:
    """Send to all workers alike for a while, commit by commit."""
    while now < until:
        view.sent = [sent + 10 for sent in view.sent]
        view.look(now)
        now += TICK_MS
    return now


def test_the_first_load_is_shown_at_once_and_becomes_that_of_the_first_span() -> None:
    view = shown()
    assert max_over_avg(view) is None
    view.sent[0] += 1
    view.look(1_000)
    assert max_over_avg(view) == 4.0
    even(view, 1_500, 1_000 + LOAD_MS)
    assert 1.0 < (max_over_avg(view) or 0) < 1.1


def test_after_a_pause_the_load_is_not_that_of_its_first_commit() -> None:
    view = shown()
    now = even(view, 1_000, 30_000)
    for silent in range(now, now + 60_000, TICK_MS):
        view.look(silent)
    now += 60_000
    view.sent[0] += 1
    for _ in range(5):
        view.look(now)
        assert max_over_avg(view) == 1.0
        now += TICK_MS
    even(view, now, now + 2 * LOAD_MS)
    assert 1.0 <= (max_over_avg(view) or 0) < 1.1


def test_a_clock_that_is_set_back_does_not_stop_the_load() -> None:
    view = shown()
    even(view, 1_000_000, 1_030_000)
    view.sent[1] += 100_000
    even(view, 0, 2 * LOAD_MS)
    even(view, 2 * LOAD_MS, 4 * LOAD_MS)
    assert max_over_avg(view) == 1.0
