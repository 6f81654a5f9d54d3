"""Report pages: texts of the user are escaped, and charts have their places."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2 import UndefinedError

from skewless.spark.report.evaluation_report import report
from skewless.spark.report.html_page import render

HOSTILE = "</script><img src=x>&{{ 7 * 7 }}"


class Page(HTMLParser):
    """Elements, texts and chart places of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.charts: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if values.get("class") == "chart":
            self.charts.append(values["id"] or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def run_of(pipeline: str, *, latency: bool) -> dict[str, Any]:
    measures = dict.fromkeys(
        (
            "rows",
            "rows_per_tuple",
            "keys",
            "p1",
            "imbalance",
            "max_over_avg",
            "worst_window_max_over_avg",
            "load_stddev_percent",
            "replication_factor",
        ),
        1,
    )
    measures |= dict.fromkeys(
        ("replication_bound", "replication_max", "window_replication", "partials_per_window", "pairs", "state_bytes"), 1
    )
    tick = {
        "tick_start": 0,
        "rows_by_worker": [1, 2],
        "imbalance": 0,
        "running_imbalance": 0,
        "replication_factor": 1,
    }
    return measures | {
        "pipeline": pipeline,
        "grouping": "even",
        "workers": 2,
        "tuples": 3,
        "reference": {"THROUGHPUT_RATIO": 1},
        "latency_ms": {"p50": 1, "p95": 2, "p99": 3} if latency else None,
        "latency_ms_by_window": [{"window_start": 0, "p99": 3}],
        "ticks": [tick],
        "top_keys": [{"key": HOSTILE, "tuples": 3, "workers": 1}],
        "offsets": {"p.tuples": {"0": [1, 4]}},
        "observer_differs": 0,
        "not_measured": [],
    }


def figures_of(page: str) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = json.loads(page.split('id="figures">')[1].split("</script>", maxsplit=1)[0])
    return figures


def test_report_shows_texts_of_the_user_as_texts() -> None:
    page = report({"names": {"tuples": HOSTILE}, "runs": [run_of(HOSTILE, latency=True)]})
    assert "img" not in Page(page).tags
    # The name of the run in the table, the hottest keys and the records read; the key; the description of a measure.
    assert Page(page).text.count(HOSTILE) == 5


@pytest.mark.parametrize(("latency", "charts"), [(True, 7), (False, 5)])
def test_report_has_a_place_for_every_chart_in_order(latency: bool, charts: int) -> None:  # noqa: FBT001 - a case
    page = report({"names": {}, "runs": [run_of("a", latency=latency)]})
    assert Page(page).charts == [f"chart-{index}" for index in range(charts)]
    assert len(figures_of(page)) == charts
    assert ("no records from which latency can be computed" in page) is not latency


def test_best_value_of_a_row_is_emphasized() -> None:
    slow, fast = run_of("a", latency=True), run_of("b", latency=True)
    fast["latency_ms"] |= {"p50": 0}
    page = report({"names": {}, "runs": [slow, fast]})
    assert re.findall(r'latency p50, ms</th>\s*<td>1</td>\s*<td class="best">0</td>', page)
    assert page.count('class="best"') == 1


def test_template_that_lacks_a_value_fails() -> None:
    with pytest.raises(UndefinedError, match="'topic' is undefined"):
        render("plan.html.j2", {})
