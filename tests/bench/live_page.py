"""Generates the page docs/reference/published-experiment.md from the results of bench_live.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.comparison_page import PUBLISHED_RATES, PUBLISHED_REPLICATION, PUBLISHED_W, Facts, table

INTRO = """\
<!-- Made by `make published` from runs. Change tests/bench, not this page. -->
# The published experiment, live

The experiment of dynamic key grouping on a real broker: one source of 1,000 tuples per second, of which 80 % are one
country, 10 % a second one and 10 % uniform over 30 names; a worker takes 10 ms per tuple, so W workers can do 100 x W;
runs of five minutes. *Published* are the figures of the reference implementation (mean of five runs).

All groupings read the same topic at the same time, each in a pipeline of its own. The workers sleep, so that two cores
suffice. `make published` writes this page. It keeps each finished number of workers in `.bench/live` and continues
there after an interruption.

The reference implementation writes its measures as `STD_DEV`, `DIST_COST`, `THROUGHPUT_RATIO`, `TOTAL_COUNT` and
`DURATION`. The [glossary](glossary.md#measures-of-dynamic-key-grouping) has their names in Skewless: *tuples/s* is
`THROUGHPUT_RATIO`, and *workers per key* is `DIST_COST`."""
RATES = """\
## Rate

Tuples in results per second, over the five minutes. What a pipeline cannot do waits in its topics: *queue* is how many
tuples wait at the end. The queue is not drained. Each worker has a queue of its own, so workers with few tuples
continue while the most loaded one falls behind, and their results count. *Sustained* is the rate of the source at which
the most loaded worker just keeps up, so that no queue grows: the capacity of all workers divided by max/avg, at most
the 1,000 tuples per second of the source. The reference implementation holds its source back, so its figures compare
with the sustained rate."""
SPREAD = """\
## Workers per key, and balance

Mean number of workers that hold a key, and the load of the most loaded worker by the average, of all tuples that the
router sent in the five minutes."""
LATENCY = """\
## Latency

From the event time of a tuple to the arrival of the first result that counts it, in seconds, with a commit every
200 ms. Each grouping has a source of its own with 80 % of its sustained rate, for a minute, and every tuple counts.
With 50 and 100 workers, five pipelines make the two cores of the machine busy, which their latencies show."""

DIFFERENCES = """\
## Where the figures differ

- `shuffle`: from 10 workers on, the workers can do just what the source sends. The commits of a pipeline take some of
  their time, so a short queue remains at 10 workers. The reference implementation loses 2 % at any number of workers.
- `key` and `partial_key` sustain what was published, within 3 %. The exception is `partial_key` with 5 workers, where
  the rate depends on the names of the countries: see [the comparison](comparison.md).
- `dynamic_key` gives a key one more worker per minute at most. The hottest key needs 8 workers of 10 or more, and has
  at most 6 in the fifth minute. So a run of five minutes is mostly warm-up, and the simulation in
  [the comparison](comparison.md), whose streams are longer, reaches all of the 1,000 tuples per second. Some published
  rates are lower than the sustained ones here. Those runs had at least ten routers, each of which decides by the tuples
  that it sends, and a source that is held back while the most loaded worker is busy. In a simulation of five minutes
  with the decisions of this grouping, ten routers have the rate of one within 2 %. Holding the source back matters: a
  new worker of a key gets all tuples of the key until it has caught up with the others, and the source waits for it.
  With 5 workers the rate is then 258 if a worker may have 100 tuples in its queue, 292 with 3,000, 373 with 10,000, and
  412 without a limit; published is 325. With 10 workers the rates are 151, 214, 350 and 570; published is 422.
  The measurement of the latency begins with a new pipeline, so these figures include the warm-up.
- `even` needs no warm-up: it decides by the counts of the keys."""


def render(found: Sequence[Facts]) -> str:
    """Write the whole page."""
    lines = [INTRO, "", RATES, "", *_rates(found), "", SPREAD, "", *_spread(found), "", LATENCY, ""]
    lines += [*_latency(found), "", DIFFERENCES]
    return "\n".join(lines) + "\n"


def _rates(found: Sequence[Facts]) -> Iterator[str]:
    yield from table(
        ["W", "grouping", "published", "sustained", "tuples/s", "queue"],
        (
            [
                *_run(run),
                _published(PUBLISHED_RATES, run),
                f"{run['sustained_per_s']:.0f}",
                f"{run['tuples_per_s']:.0f}",
                f"{run['queue_tuples']:,}",
            ]
            for run in found
        ),
    )


def _spread(found: Sequence[Facts]) -> Iterator[str]:
    yield from table(
        ["W", "grouping", "workers per key, published", "workers per key", "max/avg"],
        (
            [
                *_run(run),
                _published(PUBLISHED_REPLICATION, run),
                f"{run['replication_factor']:.2f}",
                f"{run['max_over_avg']:.2f}",
            ]
            for run in found
        ),
    )


def _latency(found: Sequence[Facts]) -> Iterator[str]:
    yield from table(
        ["W", "grouping", "tuples/s", "p50", "p95", "p99"],
        (
            [*_run(run), f"{run['latency_rate']:.0f}"] + [f"{run[name]:.2f}" for name in ("p50_s", "p95_s", "p99_s")]
            for run in found
        ),
    )


def _run(run: Facts) -> tuple[str, str]:
    return str(run["workers"]), f"`{run['grouping']}`"


def _published(published: Mapping[str, Sequence[float]], run: Facts) -> str:
    """Return the published figure of a run, or a dash where there is none."""
    name, workers = run["grouping"], run["workers"]
    if name not in published or workers not in PUBLISHED_W:
        return "-"
    return str(published[name][PUBLISHED_W.index(workers)])
