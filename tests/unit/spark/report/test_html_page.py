"""Report pages: texts of the user are escaped, and charts have their places."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import pytest
from click.testing import CliRunner
from jinja2 import UndefinedError

from skewless.cli import main
from skewless.spark.report.evaluation_report import report as rendered
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
        "tick_end": 1000,
        "rows_by_worker": [1, 2],
        "imbalance": 0,
        "running_imbalance": 0,
        "replication_factor": 1,
    }
    return measures | {
        "pipeline": pipeline,
        "source": pipeline,
        "completed": {
            "tuples_per_s": 3,
            "waiting": 0,
            "first_at": 0,
            "last_at": 1000,
            "latency_ms": {"p50": 1, "p99": 2},
            "waiting_ms": None,
        },
        "grouping": "even",
        "workers": 2,
        "tuples": 3,
        "reference": dict.fromkeys(("STD_DEV", "DIST_COST", "THROUGHPUT_RATIO", "TOTAL_COUNT", "DURATION"), 1),
        "latency_ms": {"p50": 1, "p95": 2, "p99": 3} if latency else None,
        "latency_ms_by_window": [{"window_start": 0, "p99": 3}],
        "ticks": [tick],
        "top_keys": [{"key": HOSTILE, "tuples": 3, "workers": 1}],
        "offsets": {"p.tuples": {"0": [1, 4]}},
        "observer_differs": 0,
    }


def report(*runs: dict[str, Any], names: dict[str, str] | None = None, inputs: Sequence[Sequence[int]] = ()) -> str:
    """Return the report of runs. `inputs` are the indices of the runs of each input; by default all have the same."""
    comparisons = [
        {"runs": indices, "names": [runs[index]["pipeline"] for index in indices], "summary": f"Input {number}."}
        for number, indices in enumerate(inputs or [range(len(runs))])
    ]
    head = {"names": names or {}, "evaluated_at": "2026-11-24T14:15:02+00:00"}
    return rendered({**head, "runs": runs, "comparisons": comparisons})


def figures_of(page: str) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = json.loads(page.split('id="figures">')[1].split("</script>", maxsplit=1)[0])
    return figures


def test_report_shows_texts_of_the_user_as_texts() -> None:
    page = report(run_of(HOSTILE, latency=True), names={"tuples": HOSTILE})
    assert "img" not in Page(page).tags
    # The title of the window and of the page: run and topic each; the source; the run in three tables, the hottest keys
    # and the records read; the key; the description of a measure.
    assert Page(page).text.count(HOSTILE) == 12


@pytest.mark.parametrize(("latency", "charts"), [(True, 7), (False, 5)])
def test_report_has_a_place_for_every_chart_in_order(latency: bool, charts: int) -> None:  # noqa: FBT001 - a case
    page = report(run_of("a", latency=latency))
    assert Page(page).charts == [f"chart-{index}" for index in range(charts)]
    assert len(figures_of(page)) == charts
    assert ("no records from which latency can be computed" in page) is not latency


def test_report_begins_with_the_result_the_input_and_what_the_workers_completed() -> None:
    text = Page(report(run_of("a", latency=True))).text
    parts = [
        "a on topic a",
        "Evaluated 2026-11-24 14:15:02 UTC",
        "Input 0.",
        "Source topic a",
        "1970-01-01 00:00:00",
        "tuples completed per second",
        "that were read: 3 offsets",
        "Load per worker over time",
        "Rows of a worker in a tick",
        "All measures",
        "THROUGHPUT_RATIO",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_report_emphasizes_the_best_run_of_each_input() -> None:
    key, even, other = (run_of(name, latency=True) for name in ("key", "even", "other"))
    even["completed"] = even["completed"] | {"tuples_per_s": 7, "latency_ms": {"p50": 9, "p99": 9}}
    other["completed"] = other["completed"] | {"tuples_per_s": 1000}
    page = report(key, even, other, inputs=[(0, 1), (2,)])
    assert re.findall(r'tuples completed per second</th>\s*<td>3</td>\s*<td class="best">7</td>\s*</tr>', page)
    assert page.count('class="best"') == 1
    assert Page(page).charts == [f"chart-{index}" for index in range(15)]


def test_template_that_lacks_a_value_fails() -> None:
    with pytest.raises(UndefinedError, match="'topic' is undefined"):
        render("plan.html.j2", {})


@pytest.mark.parametrize(
    "command",
    [["evaluate", "-f", "p.yaml"], ["plan", "--out", "plan"], ["inspect", "clicks", "-b", "x:1", "--html", "p.html"]],
    ids=["evaluate", "plan", "inspect"],
)
def test_command_with_a_report_without_its_packages_names_the_extra_before_it_reads(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = CliRunner().invoke(main.main, command)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: the report needs plotly: install Skewless with its extra `report`")


def test_plan_without_a_report_needs_none_of_its_packages() -> None:
    code = "import sys; sys.modules.update(plotly=None, jinja2=None); import skewless.spark.report.planning_report"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
