"""The card of a pipeline on the page of `skewless top --web`."""

from __future__ import annotations

from decimal import Decimal

from click.testing import CliRunner

from skewless.cli.main import main
from skewless.cli.top_page import card
from unit.cli.test_top_view import NOW, ROWS, load, report


def test_top_page_has_the_views_of_top_and_the_latest_results() -> None:
    results = [
        {"key": "books\x1b", "window_start": NOW - 60_000, "count": 1234, "avg": Decimal("1.50"), "top": None},
        {"key": "apples", "window_start": NOW - 120_000, "count": 1, "top": ["a"]},
    ]
    shown = card(report(load(ROWS), ["a problem"], ["a warning"]), results, ("count", "avg"))
    assert (shown.name, shown.state) == ("clicks", "failing")
    figures = dict(shown.figures)
    assert (figures["tuples/s"], figures["most loaded worker / average"], figures["lag"]) == ("16.7", "1.60", "0.4 s")
    assert [bar.rows for bar in shown.bars] == ROWS
    keys, latest, stages = shown.tables
    assert list(keys.rows) == [["books", "300", "30.0%", "1.20", "2"], ["?[31mapples", "200", "20.0%", "0.80", "1"]]
    assert latest.columns == ("key", "window", "count", "avg")
    assert list(latest.rows) == [
        ["books?", "2026-01-01T00:00:40Z", "1,234", "1.50"],
        ["apples", "2025-12-31T23:59:40Z", "1", "-"],
    ]
    assert [row[0] for row in stages.rows] == ["splitter", "router", "worker", "aggregator", "observer"]
    assert stages.rows[2][1:4] == ["worker-0", "12", "0.4 s"]
    assert shown.notes == [
        ("info", "last 5 min: 3 late tuples, 0 dead letters"),
        ("problem", "a problem"),
        ("warning", "a warning"),
    ]


def test_top_page_values_are_those_of_results_and_no_python() -> None:
    values = {"list": [Decimal("9.99"), 5, None], "null": None, "bool": True, "text": "a\x1b", "count": 1234}
    results = [{"key": "a", "window_start": NOW, **values}]
    latest = card(report(None), results, (*values, "missing")).tables[0]
    assert list(latest.rows[0])[2:] == ["[9.99,5,null]", "-", "true", "a?", "1,234", "-"]


def test_top_page_before_the_first_tick_and_result_has_only_the_stages() -> None:
    shown = card(report(None), [], ("count",))
    assert (list(shown.bars), [table.title for table in shown.tables]) == ([], ["Stages"])
    assert ("info", "no tick was emitted yet") in shown.notes


def test_top_address_of_the_page_without_the_page_is_refused() -> None:
    text = "name: clicks\nsource: {topic: clicks}\n"
    runner = CliRunner()
    with runner.isolated_filesystem():
        with open("pipeline.yaml", "w", encoding="utf-8") as file:  # noqa: PTH123 - in the folder of the runner
            file.write(text)
        done = runner.invoke(main, ["top", "--web-address", "10.0.0.1"])
    assert (done.exit_code, done.output) == (2, "error: --web-address: only with --web, add it\n")
