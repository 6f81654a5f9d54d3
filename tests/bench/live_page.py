"""Generates the page docs/reference/published-experiment.md from the results of bench_live.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.comparison_page import PUBLISHED_RATES, PUBLISHED_REPLICATION, PUBLISHED_W, Facts, by_workers, table

INTRO = """\
<!-- Made by `make published` from runs. Change tests/bench, not this page. -->
# The published experiment, live

The experiment of dynamic key grouping on a real broker: one source of 1,000 tuples per second, of which 80 % are one
country, 10 % a second one and 10 % uniform over 30 names; a worker takes 10 ms per tuple, so W workers can do 100 x W;
runs of five minutes. *Published* are the figures of the reference implementation (mean of five runs).

All groupings read the same topic at the same time, each in a pipeline of its own. The workers sleep, so that two cores
suffice. `make published` writes this page. It keeps each finished number of workers in `.bench/live` and continues
there after an interruption."""
RATES = """\
## Rate

Tuples in results per second, over the five minutes. What a pipeline cannot do waits in its topics: *queue* is how many
tuples wait at the end. The queue is not drained."""
SPREAD = """\
## Workers per key, and balance

Mean number of workers that hold a key, and the load of the most loaded worker by the average, of all tuples that the
router sent in the five minutes."""
LATENCY = """\
## Latency

From the event time of a tuple to the arrival of the first result that counts it, in seconds, with a commit every
200 ms. Each grouping has a source of its own with 80 % of its rate above, for a minute, and every tuple counts."""


def render(found: Sequence[Facts]) -> str:
    """Write the whole page."""
    lines = [INTRO, "", RATES, "", *_rates(found), "", SPREAD, "", *_spread(found), "", LATENCY, ""]
    lines += _latency(found)
    return "\n".join(lines) + "\n"


def _rates(found: Sequence[Facts]) -> Iterator[str]:
    return _beside(
        found, PUBLISHED_RATES, "queue", lambda run: (f"{run['tuples_per_s']:.0f}", f"{run['queue_tuples']:,}")
    )


def _spread(found: Sequence[Facts]) -> Iterator[str]:
    return _beside(
        found,
        PUBLISHED_REPLICATION,
        "max/avg",
        lambda run: (f"{run['replication_factor']:.2f}", f"{run['max_over_avg']:.2f}"),
    )


def _beside(
    found: Sequence[Facts],
    published: Mapping[str, Sequence[float]],
    second: str,
    cells: Callable[[Facts], tuple[str, str]],
) -> Iterator[str]:
    """Format two measures of each grouping, and the published figure of the first measure if there is one."""
    names = list(dict.fromkeys(run["grouping"] for run in found))
    heads = [head for name in names for head in [f"`{name}`, published"] * (name in published) + [f"`{name}`", second]]
    yield from table(
        ["W", *heads],
        (
            [str(w), *(cell for name in names for cell in (*_published(published, name, w), *cells(runs[name])))]
            for w, runs in by_workers(found)
        ),
    )


def _published(published: Mapping[str, Sequence[float]], name: str, workers: int) -> Iterator[str]:
    if name in published:
        yield str(published[name][PUBLISHED_W.index(workers)]) if workers in PUBLISHED_W else "-"


def _latency(found: Sequence[Facts]) -> Iterator[str]:
    yield from table(
        ["W", "grouping", "tuples/s", "p50", "p95", "p99"],
        (
            [str(run["workers"]), f"`{run['grouping']}`", f"{run['latency_rate']:.0f}"]
            + [f"{run[name]:.2f}" for name in ("p50_s", "p95_s", "p99_s")]
            for run in found
        ),
    )
