"""Generates the page docs/reference/comparison.md from the results of bench_groupings.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skewless.algorithms.grouping import GROUPINGS

Facts = dict[str, Any]

PUBLISHED_W = (5, 10, 20, 50, 100)
ZIPF_W = (5, 10, 20, 50, 100)
ZIPF_Z = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
UNIFORM_W = (90,)
DRIFT_W = (10, 50, 100)
REAL_W = (10, 50, 100)

STRETCH = 100_000
"""Tuples."""
SOURCE_RATE = 1000
WORKER_RATE = 100
"""Tuples per second of the source, and of a worker with 10 ms per tuple."""

PUBLISHED_RATES = {
    "shuffle": (492, 978, 978, 978, 979),
    "key": (119, 121, 122, 124, 124),
    "partial_key": (216, 247, 246, 247, 246),
    "dynamic_key": (325, 422, 653, 547, 644),
}
PUBLISHED_REPLICATION = {
    "partial_key": (1.27, 1.42, 1.63, 1.97, 1.97),
    "dynamic_key": (2.32, 2.43, 4.47, 3.12, 4.44),
}


@dataclass(frozen=True, slots=True)
class Results:
    """Measures of all runs. A list has one entry for each W and grouping, in that order."""

    published: Sequence[Facts]
    published_routers: Sequence[Facts]
    """Like `published`, with 10 routers."""
    colliding: Sequence[Facts]
    names: tuple[str, str, str, str]
    """The hot and the second country, of `published` and of `colliding`."""
    zipf: Mapping[tuple[float, int], Sequence[Facts]]
    """By exponent and routers."""
    uniform: Mapping[int, Sequence[Facts]]
    """By routers."""
    drift: Sequence[Facts]
    stretches: Mapping[tuple[str, int], Sequence[Facts]]
    """By the stream's name and the number of routers."""
    real: Mapping[str, Sequence[Facts]]
    """By the stream's name."""


INTRO = """\
<!-- Made by `make compare` from runs. Change tests/bench, not this page. -->
# All groupings compared

Every grouping alone, on the same streams, simulated: `make compare`, with the folder of real data in
`SKEWLESS_DATA`, makes this page again. Your own stream: [Compare groupings](../how-to/compare-groupings.md).

A cell is **rate / replication**. The rate is the average load divided by the highest load, so 1 is an even load, and
where workers are the limit the throughput is this share of the best. Replication is the mean number of workers that
held a key. *Bound* is the least replication that an even load needs: the sum over keys of ceil(share x W), by the
number of keys. p1 is the share of the hottest key. One router unless it says otherwise; event time; decisions are
made from the first tuple on, so warm-up counts."""
PUBLISHED = """\
## The stream of the published figures

80 % of the tuples are one country, 10 % a second one, 10 % uniform over 30. The source gives at most 1,000 tuples per
second, a worker takes 10 ms for each, so it does 100 per second. A router that waits for one worker waits for all, so
the most loaded one sets the pace: the rate is min(1000, 100 x W x average / highest). *Published* are the measured
figures of the reference implementation of dynamic key grouping (5-minute runs, mean of 5)."""
REPLICATION = """\
Workers per key, with one router and with 10, since the published runs had at least 10 (each with loads of its own,
so that the two candidates of a key that is rare are more often both used)."""
ZIPF = """\
## Zipf

10,000 keys; {tuples} tuples. A cell is rate / replication."""
UNIFORM = """\
## Uniform

204 keys, each with the same share; {tuples} tuples. A cell is rate / replication."""
DRIFT = """\
## A hot key that vanishes

204 countries, {tuples} tuples at 1,000 per second: in the first half 80 % are one country, in the second none is
hotter than the others (COUNTRY_HALF_SKEW_R80). A cell is I/m / replication within one window of a minute, I/m being
(highest - average) / tuples: of the last window before the change, of the first two after it, and of the last."""
STRETCHES = """\
## Every 100,000 tuples

Balance over a whole run says little of a minute in it. A cell is **worst max/avg / replication by bound**: of all
stretches of 100,000 consecutive tuples, the worst load of the most loaded worker by the average; and the mean over the
stretches of replication within the stretch by the bound from the stretch's own counts. The first five stretches of
the three generated streams, of {tuples} tuples, do not count for the load. A stream that is shorter than a stretch is
one."""
REAL = """\
## Real data

A cell is rate / replication / I/m. *By line*: each line of the file is a tuple. *By view*: each line of two
hours as often as its count says, in random order within the hour, since the files do not have the order. Hourly page
counts are sorted by language, so that by line one language follows another. *Merged*: hashtags about the election are
one key."""


def render(results: Results) -> str:
    """Write the whole page."""
    lines = [INTRO, "", *_published(results), "", *_zipf(results), "", *_uniform(results)]
    lines += ["", *_drift(results), "", *_stretches(results), "", REAL, "", *_real(results)]
    return "\n".join(lines) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows)]


def groupings() -> list[str]:
    return [f"`{name}`" for name in GROUPINGS]


def by_workers(runs: Sequence[Facts]) -> Iterator[tuple[int, dict[str, Facts]]]:
    """Return the runs of each W by grouping."""
    for workers in dict.fromkeys(run["workers"] for run in runs):
        yield workers, {run["grouping"]: run for run in runs if run["workers"] == workers}


def rate(run: Facts) -> float:
    """Return the throughput on the published set-up in tuples per second."""
    return float(min(SOURCE_RATE, WORKER_RATE * run["workers"] * run["rate"]))


def short(number: float) -> str:
    """Format a fraction with three decimals, without the leading zero."""
    text = f"{number:.3f}"
    return text[1:] if text.startswith("0.") else text


def cell(run: Facts) -> str:
    return f"{short(run['rate'])} / {run['replication_factor']:.2f}"


def _published(results: Results) -> Iterator[str]:
    hot, second, other_hot, other_second = results.names
    yield from [PUBLISHED, ""]
    head = ["W", *(f"{name}, published" for name in map("`{}`".format, PUBLISHED_RATES)), *groupings()]
    runs = list(by_workers(results.published))
    yield from table(
        head,
        (
            [str(w), *(str(PUBLISHED_RATES[name][row]) for name in PUBLISHED_RATES)]
            + [f"{rate(run[name]):.0f}" for name in GROUPINGS]
            for row, (w, run) in enumerate(runs)
        ),
    )
    ((_, collided),) = by_workers(results.colliding)
    yield from ["", _names(hot, second), _collision(other_hot, other_second, rate(collided["partial_key"]))]
    yield from ["", REPLICATION, ""]
    head = ["W", "bound", *(f"`{name}`, published" for name in PUBLISHED_REPLICATION), "routers", *groupings()]
    yield from table(
        head,
        (
            [str(w), f"{next(iter(run.values()))['replication_bound']:.2f}"]
            + [f"{PUBLISHED_REPLICATION[name][PUBLISHED_W.index(w)]:.2f}" for name in PUBLISHED_REPLICATION]
            + [
                str(next(iter(run.values()))["routers"]),
                *(f"{run[name]['replication_factor']:.2f}" for name in GROUPINGS),
            ]
            for pair in zip(by_workers(results.published), by_workers(results.published_routers), strict=True)
            for w, run in pair
        ),
    )


def _names(hot: str, second: str) -> str:
    return f"The names decide a little, since they are hashed; here the hot one is {hot}, the second {second}."


def _collision(hot: str, second: str, found: float) -> str:
    return (
        f"`partial_key` at W = 5 depends on them most: with {hot} and {second} instead, where all candidates of the\n"
        f"second are among those of the hot one, it is {found:.0f}. Published were 216."
    )


def _zipf(results: Results) -> Iterator[str]:
    (first, *_) = results.zipf.values()
    yield ZIPF.format(tuples=f"{first[0]['tuples']:,}")
    for routers in dict.fromkeys(routers for _, routers in results.zipf):
        yield from ["", "One router:" if routers == 1 else f"{routers} routers:", "", *_summary(results, routers), ""]
        yield from table(
            ["z", "p1", "W", "bound", *groupings()],
            (
                [f"{z:g}", short(run["key"]["p1"]), *_row(w, run)]
                for (z, s), runs in results.zipf.items()
                if s == routers
                for w, run in by_workers(runs)
            ),
        )


TARGETS = {1: (0.99, 1.25), 5: (0.98, 1.6)}
"""Lowest rate and highest replication (as a multiple of the bound), by routers."""


def _summary(results: Results, routers: int) -> Iterator[str]:
    """Describe the worst point of every grouping, and the number of points in which both targets are met."""
    least, most = TARGETS[routers]
    runs = [run for (_, s), runs in results.zipf.items() if s == routers for run in runs]
    points = len(runs) // len(GROUPINGS)
    head = f"rate at least {short(least)} and replication at most {most:g} x bound"
    yield from table(
        ["grouping", "least rate", "most replication / bound", f"{head}, of {points} points"],
        (
            [
                f"`{name}`",
                short(min(run["rate"] for run in own)),
                f"{max(run['replication_factor'] / run['replication_bound'] for run in own):.2f}",
                str(
                    sum(
                        run["rate"] >= least and run["replication_factor"] <= most * run["replication_bound"]
                        for run in own
                    )
                ),
            ]
            for name in GROUPINGS
            if (own := [run for run in runs if run["grouping"] == name])
        ),
    )


def _row(workers: int, run: Mapping[str, Facts]) -> list[str]:
    return [str(workers), f"{run['key']['replication_bound']:.2f}", *(cell(run[name]) for name in GROUPINGS)]


def _uniform(results: Results) -> Iterator[str]:
    (first, *_) = results.uniform.values()
    yield from [UNIFORM.format(tuples=f"{first[0]['tuples']:,}"), ""]
    yield from table(
        ["routers", "W", "bound", *groupings()],
        ([str(s), *_row(w, run)] for s, runs in results.uniform.items() for w, run in by_workers(runs)),
    )


def _drift(results: Results) -> Iterator[str]:
    yield from [DRIFT.format(tuples=f"{results.drift[0]['tuples']:,}"), ""]
    windows = {"before": "last before", "first": "1st behind", "second": "2nd behind", "last": "last"}
    yield from table(
        ["W", "window", *groupings()],
        (
            [str(w), text]
            + [
                f"{run[name][window]['imbalance']:.0e} / {run[name][window]['replication_factor']:.2f}"
                for name in GROUPINGS
            ]
            for w, run in by_workers(results.drift)
            for window, text in windows.items()
        ),
    )


def _stretches(results: Results) -> Iterator[str]:
    (first, *_) = results.stretches.values()
    yield from [STRETCHES.format(tuples=f"{first[0]['tuples']:,}"), ""]
    yield from table(
        ["stream", "routers", "W", *groupings()],
        (
            [name, str(routers), str(w)]
            + [f"{run[grouping]['worst_max_over_avg']:.2f} / {_by_bound(run[grouping])}" for grouping in GROUPINGS]
            for (name, routers), runs in results.stretches.items()
            for w, run in by_workers(runs)
        ),
    )


def _by_bound(run: Facts) -> str:
    return f"{run['replication_by_bound']:.2f}"


def _real(results: Results) -> Iterator[str]:
    yield from table(
        ["stream", "tuples", "keys", "p1", "W", "bound", *groupings()],
        (
            [name, f"{run['key']['tuples']:,}", f"{run['key']['keys']:,}", short(run["key"]["p1"]), str(w)]
            + [f"{run['key']['replication_bound']:.2f}"]
            + [f"{cell(run[grouping])} / {run[grouping]['imbalance']:.0e}" for grouping in GROUPINGS]
            for name, runs in results.real.items()
            for w, run in by_workers(runs)
        ),
    )
