"""The page that compares all groupings equals its generator's output: text, streams, workers and groupings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.bench_groupings import COLLIDING, DRIFTING, DRIFTING_W, STEADY
from bench.comparison_page import (
    DRIFT_W,
    PUBLISHED_W,
    REAL_W,
    UNIFORM_W,
    ZIPF_W,
    ZIPF_Z,
    Facts,
    Results,
    cell,
    rate,
    render,
    short,
)
from bench.real_streams import REAL
from skewless.algorithms.grouping import GROUPINGS
from skewless.lab.datasets.country import HOT, SECOND

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "comparison.md"
NUMBER = re.compile(r"(?<![`\w])[\d.,]*\d(e[-+]\d+)?")


def runs(workers: Sequence[int], routers: int = 1) -> list[Facts]:
    window = {"imbalance": 0.1, "replication_factor": 1.0}
    measures = window | {"rate": 0.5, "replication_bound": 1.0, "p1": 0.1, "tuples": 1000, "keys": 10}
    measures |= {"worst_max_over_avg": 1.0, "replication_by_bound": 1.0}
    windows = dict.fromkeys(("before", "first", "second", "last"), window)
    names = [{"grouping": name, "workers": w, "routers": routers} for w in workers for name in GROUPINGS]
    return [measures | windows | name for name in names]


def made() -> str:
    return render(
        Results(
            published=runs(PUBLISHED_W),
            published_routers=runs(PUBLISHED_W, 10),
            colliding=runs(PUBLISHED_W[:1]),
            names=(HOT, SECOND, *COLLIDING),
            zipf={(z, routers): runs(ZIPF_W, routers) for routers in (1, 5) for z in ZIPF_Z},
            uniform={routers: runs(UNIFORM_W, routers) for routers in (1, 5)},
            drift=runs(DRIFT_W),
            stretches={
                (name, routers): runs([STEADY[name]] if name in STEADY else DRIFTING_W, routers)
                for routers in (1, 5)
                for name in (*STEADY, *(name for name in REAL if name in DRIFTING))
            },
            real={name: runs(REAL_W) for name in REAL},
        )
    )


def test_comparison_page_equals_the_generated_text_except_for_its_figures() -> None:
    there, expected = (NUMBER.sub("#", text).splitlines() for text in (PAGE.read_text(encoding="utf-8"), made()))
    assert there == expected, "run `make compare`"


def test_comparison_rate_is_limited_by_each_worker_and_by_the_source() -> None:
    assert rate({"workers": 5, "rate": 1.0}) == 500
    assert rate({"workers": 5, "rate": 0.25}) == 125
    assert rate({"workers": 100, "rate": 1.0}) == 1000


def test_comparison_cell_is_formatted_briefly() -> None:
    assert cell({"rate": 0.9996, "replication_factor": 1.257}) == "1.000 / 1.26"
    assert [short(number) for number in (0.25, 1.0, 0.0)] == [".250", "1.000", ".000"]
