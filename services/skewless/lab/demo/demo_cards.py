"""The cards of the pipelines of the demo on the page for the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skewless.lab.demo.console import LiveProgress, RunProgress
from skewless.lab.demo.live_comparison import LiveResult
from skewless.lab.demo.prometheus_scraper import Snapshot
from skewless.operations.live_page.cards import Bar, Card, bars

MOST_LOADED = "most loaded worker / average"


def live_cards(live: LiveProgress) -> list[Card]:
    """Return a card per grouping, in the same order, while they read the live stream or their processes start."""
    if not live.elapsed_s:
        return [Card(grouping, "starting") for grouping in live.groupings]
    return [_live_card(live, grouping) for grouping in live.groupings]


def _live_card(live: LiveProgress, grouping: str) -> Card:
    loads = bars(live.snapshots[grouping].load)
    figures = [
        ("tuples/s", f"{live.rate_of(grouping):,.0f}"),
        ("tuples/s that arrive", f"{live.rate:,.0f}"),
        ("tuples that wait", f"{live.waiting_of(grouping):,.0f}"),
        (MOST_LOADED, f"{_largest(loads):.2f}"),
        ("of the stream", f"{live.elapsed_s:.0f} of {live.seconds:.0f} s"),
    ]
    return Card(grouping, "running", figures, loads)


def result_cards(results: Sequence[LiveResult], snapshots: Mapping[str, Snapshot]) -> list[Card]:
    """Return a card per grouping with its measures after the live stream, and its last loads."""
    return [
        Card(
            result.grouping,
            "finished",
            [
                ("tuples/s", f"{result.tuples_per_s:,.0f}"),
                ("tuples that wait", f"{result.waiting:,}"),
                (MOST_LOADED, f"{result.max_over_avg:.2f}"),
                ("workers per key", f"{result.replication_factor:.2f}"),
            ],
            bars(snapshots[result.grouping].load) if result.grouping in snapshots else (),
        )
        for result in results
    ]


def run_card(name: str, run: RunProgress, now: float) -> Card:
    """Return the card of the pipeline that counts the data set."""
    loads = bars(run.snapshot.load)
    figures = [
        ("tuples/s", f"{run.rate:,.0f}"),
        (f"of {run.tuples:,} tuples", f"{run.share:.0%}"),
        ("lag in records", f"{run.snapshot.lag:,}"),
        ("windows closed", f"{run.closed} of {len(run.windows)}"),
        (MOST_LOADED, f"{_largest(loads):.2f}"),
        ("so far", f"{now - run.started:.0f} s"),
    ]
    return Card(f"{name}: {run.title}", "running", figures, loads, notes=[("info", run.state)])


def _largest(loads: Sequence[Bar]) -> float:
    return max((bar.relative for bar in loads), default=0.0)
