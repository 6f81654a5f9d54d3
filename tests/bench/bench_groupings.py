"""All groupings on the published stream, on Zipf streams, on a drift and on real data, without Kafka.

    PYTHONPATH=tests python tests/bench/bench_groupings.py [--page FILE] [--tuples 1000000]

Prints one JSON line per run. With --page it also writes the page of the documentation (`make compare`), which needs the
folder of real data in $SKEWLESS_DATA. Without this folder the real streams are skipped, and no page can be written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench import comparison_page, real_streams
from bench.comparison_page import DRIFT_W, PUBLISHED_W, REAL_W, STRETCH, UNIFORM_W, ZIPF_W, ZIPF_Z, Facts, Results
from skewless.algorithms.grouping import GROUPINGS, GroupingOptions
from skewless.algorithms.grouping_metrics import KeyCounts, Spread
from skewless.algorithms.open_windows import OpenWindows
from skewless.lab.datasets.base import START_MS
from skewless.lab.datasets.country import HOT, PUBLISHED_NAMES, SECOND, countries
from skewless.lab.datasets.zipf import cumulative, key_names
from skewless.lab.simulation.simulation import Simulation, SimulationConfig

OPTIONS = GroupingOptions.model_validate({"clock": "event"})
RATE = 1000
"""Tuples per second of event time, for streams whose tuples have no time."""
WINDOW_MS = 60_000
COLLIDING = ("Afghanistan", "Algeria")
"""A hot country, and a second one whose candidates with partial_key and W = 5 include candidates of the hot country."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Keys (an Arrow array of the distinct keys, and an index per tuple) and times in ms."""

    names: pa.StringArray
    codes: NDArray[np.int64]
    times: NDArray[np.int64]

    def parts(self, rows: int) -> Iterator[tuple[pa.StringArray, NDArray[np.int64]]]:
        for first in range(0, len(self.codes), rows):
            part = slice(first, first + rows)
            yield self.names.take(pa.array(self.codes[part])), self.times[part]


def stream(names: Sequence[str], codes: NDArray[np.int64]) -> Stream:
    return Stream(pa.array(names, pa.string()), codes, START_MS + np.arange(len(codes)) * 1000 // RATE)


def published(tuples: int, hot: str = HOT, second: str = SECOND) -> Stream:
    random, names = np.random.default_rng(1), countries()
    drawn, others = random.random(tuples), random.integers(0, PUBLISHED_NAMES, tuples)
    return stream(names, np.where(drawn < 0.8, names.index(hot), np.where(drawn < 0.9, names.index(second), others)))


def zipf(tuples: int, z: float, keys: int = 10_000) -> Stream:
    random = np.random.default_rng(1)
    names = [name.decode() for name in key_names(random.permutation(keys))]
    return stream(names, np.searchsorted(cumulative(keys, z), random.random(tuples), side="right"))


def uniform(tuples: int) -> Stream:
    return stream(countries(), np.random.default_rng(1).integers(0, len(countries()), tuples))


def drift(tuples: int) -> Stream:
    """COUNTRY_HALF_SKEW_R80: in the first half 80 % of the tuples are of one country, in the second all are even."""
    random, names = np.random.default_rng(1), countries()
    codes = random.integers(0, len(names), tuples)
    hot = (np.arange(tuples) < tuples // 2) & (random.random(tuples) < 0.8)
    return stream(names, np.where(hot, names.index(HOT), codes))


def measured(section: str, name: str, given: Stream, workers: Sequence[int], routers: int = 1) -> list[Facts]:
    """Measure every grouping on the stream."""
    setup = SimulationConfig(OPTIONS, routers, WINDOW_MS)
    simulation = Simulation([(grouping, w) for w in workers for grouping in GROUPINGS], setup)
    for keys, times in given.parts(simulation.rows):
        simulation.add(keys, times)
    found = [{"bench": "groupings", "section": section, "stream": name} | entries for entries in simulation.facts()]
    for entries in found:
        del entries["tuples_by_worker"]
        print(json.dumps(entries), flush=True)
    return found


def spread_of(simulation: Simulation, part: Stream) -> list[Spread]:
    """Continue each grouping with a part of the stream, and count its tuples per worker."""
    windows = OpenWindows(WINDOW_MS)
    spreads = [Spread(run.workers, windows) for run in simulation.runs]
    first = 0
    for keys, times in part.parts(simulation.rows):
        chosen = simulation.add(keys, times)
        codes = part.codes[first : first + len(times)]
        first += len(codes)
        in_windows = windows.rows_of(codes, times)
        for spread, to in zip(spreads, chosen, strict=True):
            spread.add(in_windows, to)
    return spreads


def drifted(given: Stream, workers: Sequence[int]) -> list[Facts]:
    """Measure every grouping in four windows: the last before the change, the two after it, and the last of all."""
    per_window = WINDOW_MS * RATE // 1000
    change = len(given.codes) // 2 // per_window
    expected = {change - 1: "before", change: "first", change + 1: "second", len(given.codes) // per_window - 1: "last"}
    simulation = Simulation([(grouping, w) for w in workers for grouping in GROUPINGS], SimulationConfig(OPTIONS))
    found: list[Facts] = [
        {"bench": "groupings", "section": "drift", "tuples": len(given.codes)}
        | {"grouping": run.grouping, "workers": run.workers}
        for run in simulation.runs
    ]
    for window in range(len(given.codes) // per_window):
        rows = slice(window * per_window, (window + 1) * per_window)
        part = Stream(given.names, given.codes[rows], given.times[rows])
        spreads = spread_of(simulation, part)
        if window in expected:
            for entries, spread in zip(found, spreads, strict=True):
                measures = spread.measures()
                entries[expected[window]] = {
                    "imbalance": measures["imbalance"],
                    "replication_factor": measures["replication_factor"],
                }
    for entries in found:
        print(json.dumps(entries), flush=True)
    return found


STEADY = {"Zipf 0.9": 100, "Zipf 1.1": 100, "204 equal keys": 90}
"""Number of workers by stream."""
STEADY_TUPLES = 4_000_000
SETTLED = 5
"""Segments of a steady stream after which groupings know its keys."""
DRIFTING = (
    *("retail, country", "retail, category", "tickers", "election hashtags"),
    *("page views, language, by view", "page views, page, by view"),
)
DRIFTING_W = (10, 90)


def by_stretch(name: str, given: Stream, workers: Sequence[int], routers: int, skip: int = 0) -> list[Facts]:
    """Measure every grouping in each segment of consecutive tuples: the worst load, and mean replication by bound."""
    simulation = Simulation(
        [(grouping, w) for w in workers for grouping in GROUPINGS], SimulationConfig(OPTIONS, routers)
    )
    runs = simulation.runs
    worst, excess = [1.0] * len(runs), [0.0] * len(runs)
    stretches = max(1, len(given.codes) // STRETCH)
    for stretch in range(stretches):
        rows = slice(stretch * STRETCH, min(len(given.codes), (stretch + 1) * STRETCH))
        part = Stream(given.names, given.codes[rows], given.times[rows])
        counts, spreads = KeyCounts(), spread_of(simulation, part)
        counts.add(*np.unique(part.codes, return_counts=True))
        keys = len(np.unique(part.codes))
        for at, (run, spread) in enumerate(zip(runs, spreads, strict=True)):
            measures = spread.measures()
            excess[at] += measures["replication_factor"] / (counts.replication_bound(run.workers) * counts.keys / keys)
            if stretch >= skip:
                worst[at] = max(worst[at], measures["max_over_avg"])
    found: list[Facts] = [
        {"bench": "groupings", "section": "stretches", "stream": name, "grouping": run.grouping}
        | {"workers": run.workers, "routers": routers, "tuples": len(given.codes), "stretches": stretches}
        | {"worst_max_over_avg": most, "replication_by_bound": total / stretches}
        for run, most, total in zip(runs, worst, excess, strict=True)
    ]
    for entries in found:
        print(json.dumps(entries), flush=True)
    return found


def all_stretches(real: Iterable[tuple[str, Stream]]) -> dict[tuple[str, int], list[Facts]]:
    """Run the steady streams and the changing ones; returns the results by name and number of routers."""
    found: dict[tuple[str, int], list[Facts]] = {}
    for routers in (1, 5):
        for name, workers in STEADY.items():
            steady = uniform(STEADY_TUPLES) if "equal" in name else zipf(STEADY_TUPLES, float(name.split()[-1]))
            found[name, routers] = by_stretch(name, steady, [workers], routers, SETTLED)
        for name, given in real:
            if name in DRIFTING:
                found[name, routers] = by_stretch(name, given, DRIFTING_W, routers)
    return found


def everything(tuples: int, folder: Path | None) -> Results:
    """Make all runs. `tuples` is the length of each generated stream; a drift needs at least four windows."""
    zipfs = {(z, s): measured("zipf", f"z={z}", zipf(tuples, z), ZIPF_W, s) for s in (1, 5) for z in ZIPF_Z}
    uniforms = {s: measured("uniform", "204 keys", uniform(tuples), UNIFORM_W, s) for s in (1, 5)}
    recorded = [
        (name, Stream(keys.dictionary, keys.indices.to_numpy(), times))
        for name, keys, times in (real_streams.streams(folder) if folder else ())
    ]
    real = {name: measured("real", name, given, REAL_W) for name, given in recorded}
    return Results(
        published=measured("published", "80/10/10", published(tuples), PUBLISHED_W),
        published_routers=measured("published", "80/10/10", published(tuples), PUBLISHED_W, 10),
        colliding=measured("published", "/".join(COLLIDING), published(tuples, *COLLIDING), PUBLISHED_W[:1]),
        names=(HOT, SECOND, *COLLIDING),
        zipf=zipfs,
        uniform=uniforms,
        drift=drifted(drift(max(tuples, 8 * WINDOW_MS * RATE // 1000)), DRIFT_W),
        stretches=all_stretches(recorded),
        real=real,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    folder = os.environ.get("SKEWLESS_DATA")
    if args.page and not folder:
        sys.exit("error: SKEWLESS_DATA is not set: name the folder of real data, or leave --page away")
    results = everything(args.tuples, Path(folder) if folder else None)
    if args.page:
        args.page.write_text(comparison_page.render(results), encoding="utf-8")


if __name__ == "__main__":
    main()
