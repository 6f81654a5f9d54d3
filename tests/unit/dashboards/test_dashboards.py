"""The dashboards equal their generator's output, and follow the rules of Grafana's dashboard-linter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate.dashboard import document, panels
from dashboards.generate.files import dashboards, files
from dashboards.generate.own_metrics import own_metrics
from dashboards.generate.pipeline import pipeline
from helpers.docs_blocks import ROOT
from helpers.prometheus_api import PanelQuery, expressions, substitute_variables
from helpers.source_files import assert_none
from skewless.metric_definition import CONSTANT_LABELS
from skewless.monitoring.metrics import METRICS, Metric
from skewless.topology import STAGES, Condition, Stage
from unit.dashboards.test_alerts import promtool

MADE = files()
DASHBOARDS = {name: json.loads(text) for name, text in MADE.items() if name.endswith(".json")}
UIDS = {found["uid"]: found for found in DASHBOARDS.values()}
PANELS = {
    f"{found['uid']}-{panel['id']}": panel
    for found in DASHBOARDS.values()
    for panel in panels(found)
    if panel["type"] != "row"
}
TARGETS = [requested for found in DASHBOARDS.values() for requested in expressions(found)]
SELECTOR = re.compile(r"\b(?P<name>(?:skewless|process)_\w+)(?P<matchers>\{[^}]*\})?(?P<window>\[[^\]]*\])?")
SUFFIXES = re.compile(r"_(bucket|count|sum)$")
BY_NAME = {metric.name: metric for metric in METRICS}
CHOSEN = dict.fromkeys(("job", "pipeline", "instance", "compared", "stage"), ".+") | {
    "__rate_interval": "1m",
    "__range": "1h",
}
CHOSEN |= dict.fromkeys(("cluster", "namespace"), ".*")
HERE = 'job="j", instance="i", pipeline="p", stage="splitter"'
TARGET = {"cluster", "namespace", "job", "instance"}
"""Labels of a process that Prometheus adds."""
READ_BY_ALERTS = {
    "skewless_committed_offset",
    "skewless_log_start_offset",
    "skewless_log_end_offset",
    "skewless_memory_limit_bytes",
}


def metric(name: str) -> Metric | None:
    return BY_NAME.get(name) or BY_NAME.get(SUFFIXES.sub("", name))


def test_dashboard_files_generated_again_are_unchanged() -> None:
    assert_none(f"{name}: run `make dashboards`" for name in MADE if (ROOT / name).read_text() != MADE[name])


EVERYWHERE = [stage for stage in STAGES if stage.option is None]
"""Stages that every pipeline has."""


def rows_of(found: dict[str, Any]) -> dict[str, list[str]]:
    """Titles of the panels of each row."""
    rows: dict[str, list[str]] = {}
    shown: list[str] = []
    for panel in found["panels"]:
        if panel["type"] == "row":
            rows[panel["title"]] = shown = []
        else:
            shown.append(panel["title"])
    return rows


def test_dashboards_are_small_and_those_of_every_pipeline_need_no_stage() -> None:
    assert {each.uid for each in dashboards() if not each.stages} == {"skewless-pipeline", "skewless-stage"}
    sizes = {uid: len(panels(found)) for uid, found in UIDS.items()}
    assert {uid: size for uid, size in sizes.items() if size > 60} == {}


def test_dashboards_of_own_metrics_have_a_row_per_stage_with_its_metrics_alone() -> None:
    made = {each.uid: each for each in own_metrics()}
    assert {uid: list(each.stages) for uid, each in made.items()} == {
        "skewless-aggregation": [stage.name for stage in EVERYWHERE],
        "skewless-enrich": ["enricher"],
        "skewless-join": ["left", "right", "join"],
        "skewless-ranks": ["ranker"],
        "skewless-sink": ["sink", "ranksink", "flusher"],
    }
    for each in made.values():
        rows = rows_of(document(each))
        assert [title.partition(":")[0] for title in rows] == each.stages
        assert [len(titles) for titles in rows.values()] == [
            sum(name in metric.stages for metric in METRICS) for name in each.stages
        ]


def test_stage_dashboard_selects_one_stage_of_the_chosen_pipeline() -> None:
    found = UIDS["skewless-stage"]
    assert {panel for titles in rows_of(found).values() for panel in titles} >= {"In and out", "CPU by process"}
    assert all('stage=~"$stage"' in requested.expr for requested in expressions(found))
    (chosen,) = [each for each in found["templating"]["list"] if each["name"] == "stage"]
    assert not chosen.get("multi")
    assert chosen["query"]["query"].endswith('pipeline=~"$pipeline"}, stage)')


def test_pipeline_dashboard_is_an_overview_that_begins_with_the_age_of_the_results() -> None:
    found = document(pipeline())
    open_rows = [panel["title"] for panel in found["panels"] if panel["type"] == "row" and not panel["collapsed"]]
    assert open_rows == list(rows_of(found)) == ["Pipeline"]
    shown = [panel["title"] for panel in found["panels"] if panel["type"] == "stat"][:5]
    assert shown == [
        "Age of the results",
        "End-to-end latency",
        "Late share",
        "Most loaded worker / average",
        "Lag in time",
    ]


def test_load_heatmaps_are_relative_to_the_average_with_a_neutral_middle() -> None:
    heatmaps = [panel for found in DASHBOARDS.values() for panel in panels(found) if panel["type"] == "heatmap"]
    loads = [panel["options"]["color"] for panel in heatmaps if panel["title"] == "Load of each worker / average"]
    assert len(loads) == 2
    for color in loads:
        assert (color["scheme"], color["reverse"], color["min"], color["max"]) == ("RdBu", True, 0, 2)


def test_pipeline_dashboard_results_of_days_ago_are_not_green() -> None:
    (age,) = [panel for panel in panels(UIDS["skewless-pipeline"]) if panel["title"] == "Age of the results"]
    steps = age["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps] == [(None, "green"), (600, "yellow"), (3600, "red")]


def test_dashboard_of_a_stage_added_to_the_topology_has_its_metrics_and_the_name_of_its_condition() -> None:
    exporter = Stage(
        name="exporter",
        description="writes results into tables",
        inputs=("aggregates",),
        outputs=(),
        builder="exporter:build",
        metrics="exporter",
        event_time=None,
        section="exporter",
        needs=Condition("export.mode", ("all",)),
    )
    partials = BY_NAME["skewless_worker_partials_total"]
    rows_written = replace(partials, name="skewless_exporter_rows_total", stages=("exporter",))
    made = {each.uid: each for each in own_metrics((*STAGES, exporter), (*METRICS, rows_written))}
    found = document(made["skewless-export"])
    assert rows_of(found) == {"exporter: writes results into tables (where `export.mode` is `all`)": ["Rows"]}
    (requested,) = expressions(found)
    assert "skewless_exporter_rows_total{" in requested.expr
    assert 'stage="exporter"' in requested.expr


def test_dashboards_and_alerts_use_every_metric() -> None:
    text = "".join(MADE[name] for name in MADE if name.startswith("dashboards/"))
    unseen = {metric.name for metric in METRICS if metric.name not in text}
    assert unseen == set()
    assert {name for name in READ_BY_ALERTS if name in "".join(map(json.dumps, DASHBOARDS.values()))} == set()


def failures(name: str, checks: dict[str, bool]) -> Iterator[str]:
    """Yield what does not hold."""
    return (f"{name}: not {check}" for check, holds in checks.items() if not holds)


def test_dashboard_variables_are_chained() -> None:
    assert_none(problem for found in DASHBOARDS.values() for problem in problems_of_variables(found))


def problems_of_variables(found: dict[str, Any]) -> Iterator[str]:
    variables = {each["name"]: each for each in found["templating"]["list"]}
    first = ["datasource", "cluster", "namespace", "job", "pipeline", "instance"]
    yield from failures(found["uid"], {f"beginning with {first}": list(variables)[:6] == first})
    for name, variable in variables.items():
        kind, query = variable["type"], variable["query"]
        checks = {"a data source of Prometheus": (kind, query) == ("datasource", "prometheus")}
        if name != "datasource":
            checks = {
                "of the chosen data source": variable["datasource"]["uid"] == "${datasource}",
                "refreshed on every change of the time": variable["refresh"] == 2,
                "of a metric of Skewless": query["query"].startswith("label_values(skewless_"),
                f"with the condition {CHAIN.get(name, '')}": CHAIN.get(name, "") in query["query"],
            }
        if name in {"cluster", "namespace"}:
            checks["including series without the label"] = variable["allValue"] == ".*"
        yield from failures(f"{found['uid']} ${name}", checks)


CHAIN = {
    "namespace": 'cluster=~"$cluster"',
    "job": 'cluster=~"$cluster", namespace=~"$namespace"',
    "pipeline": 'job=~"$job"',
    "instance": 'pipeline=~"$pipeline"',
    "stage": 'pipeline=~"$pipeline"',
}
"""What a variable depends on."""


def test_dashboard_document_can_be_imported_anywhere() -> None:
    assert_none(
        problem
        for found in DASHBOARDS.values()
        for problem in failures(
            found["uid"] or found["title"],
            {
                "with a uid": bool(found["uid"]),
                "read-only": found["editable"] is False,
                "of a present schema": found["schemaVersion"] >= 39,
                "tagged skewless": "skewless" in found["tags"],
                "with unique ids of panels": len({panel["id"] for panel in panels(found)}) == len(panels(found)),
                "with annotations of the chosen data source": {
                    event["datasource"]["uid"] for event in found["annotations"].get("list", [])
                }
                <= {"${datasource}"},
            },
        )
    )


def test_dashboard_panels_have_title_description_and_source() -> None:
    assert_none(problem for name, panel in PANELS.items() for problem in problems_of_panel(name, panel))


def problems_of_panel(name: str, panel: dict[str, Any]) -> Iterator[str]:
    targets = panel.get("targets", [])
    checks = {"titled": bool(panel["title"]), "described by a sentence": panel.get("description", "").endswith(".")}
    if panel["type"] == "text":
        checks["without targets"] = "targets" not in panel
    else:
        checks |= {
            "of the chosen data source": panel.get("datasource") == {"type": "prometheus", "uid": "${datasource}"},
            "with a unit": bool(panel["fieldConfig"]["defaults"].get("unit")),
            "with targets": bool(targets),
            "with targets of its data source": all(each["datasource"]["uid"] == "${datasource}" for each in targets),
            "with a legend for each target": all(each.get("legendFormat") for each in targets),
        }
    return failures(f"{name} {panel['title']}", checks)


def test_dashboard_panels_fill_the_grid_without_overlap() -> None:
    assert_none(problem for found in DASHBOARDS.values() for problem in problems_of_grid(found))


def problems_of_grid(found: dict[str, Any]) -> Iterator[str]:
    used: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        checks = {"inside the grid": at["x"] + at["w"] <= 24, "in a place of its own": not cells & used}
        yield from failures(f"{found['uid']}-{panel['id']} {panel['title']}", checks)
        used |= cells


def test_dashboard_selectors_use_existing_metrics_labels_and_variables() -> None:
    assert_none(problem for requested in TARGETS for problem in problems_of_selectors(requested))


def problems_of_selectors(requested: PanelQuery) -> Iterator[str]:
    for found in SELECTOR.finditer(requested.expr):
        matchers = found["matchers"] or ""
        labels = set(re.findall(r"(\w+)(?:=~|=)", matchers))
        checks = {
            "of the chosen job": 'cluster=~"$cluster", namespace=~"$namespace", job=~"$job"' in matchers,
            "of the chosen instance, or of pipelines that are compared": (
                ('instance=~"$instance"' in matchers) != ('pipeline=~"$compared"' in matchers)
            ),
        }
        if not found["name"].startswith("process_"):
            known = metric(found["name"])
            checks["an existing metric"] = known is not None
            checks["of the chosen pipeline"] = "pipeline=~" in matchers
            existing = {*CONSTANT_LABELS, *(known.labels if known else ()), *TARGET, "le"}
            checks[f"with existing labels: {labels - existing}"] = labels <= existing
        yield from failures(f"{requested.where}: {found[0]}", checks)


def test_dashboard_counters_are_queried_by_rate() -> None:
    assert_none(problem for requested in TARGETS for problem in problems_of_rates(requested))


def problems_of_rates(requested: PanelQuery) -> Iterator[str]:
    for found in SELECTOR.finditer(requested.expr):
        of_growth = "min_over_time(", "present_over_time("
        by_rate = requested.expr[: found.start()].endswith(("rate(", "increase(", *of_growth))
        counted = found["name"].endswith(("_total", "_bucket", "_count"))
        checks = {"a rate of a counter": by_rate == counted}
        if counted:
            checks["over the interval of the panel"] = found["window"] in {"[$__rate_interval]", "[$__range]", "[10m]"}
        yield from failures(f"{requested.where}: {found[0]}", checks)


def test_watermark_delay_panel_of_a_delayed_partition_shows_its_delay(tmp_path: Path) -> None:
    """Splitter and router report event times per partition. Both are 20 s ahead of the partition's watermark."""
    newest = {"0": 20_000, "1": 20_000 - 3 * 3600}
    series = [
        {"series": f'skewless_{name}{{{HERE}, partition="{partition}"}}', "values": str(time - behind)}
        for partition, time in newest.items()
        for name, behind in (("max_event_timestamp_seconds", 0), ("watermark_timestamp_seconds", 20))
    ]
    by_partition = [
        {"labels": '{partition="1"}', "value": 3 * 3600 + 20},
        {"labels": '{partition="0"}', "value": 20},
    ]
    expected = {
        "Watermark delay": by_partition,
        "Watermark delay by stage": [{"labels": '{stage="splitter"}', "value": 3 * 3600 + 20}],
    }
    requested = (*panels(document(pipeline(EVERYWHERE))), *panels(UIDS["skewless-stage"]))
    assert problems_of_values(requested, series, expected, "0m", tmp_path) == ""


def problems_of_values(
    requested: Sequence[dict[str, Any]],
    series: Sequence[dict[str, str]],
    expected: Mapping[str, Sequence[dict[str, Any]]],
    at: str,
    folder: Path,
) -> str:
    """Compare what the first query of panels shows with what is expected, by title; returns promtool's errors."""
    queries = {
        panel["title"]: substitute_variables(panel["targets"][0]["expr"], CHOSEN)
        for panel in requested
        if panel["title"] in expected
    }
    cases = [{"expr": queries[title], "eval_time": at, "exp_samples": found} for title, found in expected.items()]
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "15s", "input_series": series, "promql_expr_test": cases}]}))
    return promtool("test", "rules", file)


def test_dashboard_panels_of_present_values_query_this_moment_alone() -> None:
    """A range still has values when the processes have been down for a part of it."""
    now = [target for panel in PANELS.values() if panel["type"] in {"stat", "bargauge"} for target in panel["targets"]]
    assert {(target.get("instant"), target.get("range")) for target in now} == {(True, False)}


def test_pipeline_panels_after_all_processes_ended_show_a_growing_age_and_no_process(tmp_path: Path) -> None:
    """The processes end after 10 minutes. Until then, results are complete up to 10 s ago."""
    moved, running = (f'job="j", instance="{name}", pipeline="p", stage="aggregator"' for name in ("moved", "running"))
    series = [
        {"series": f'skewless_watermark_timestamp_seconds{{{moved}, partition="0"}}', "values": "0"},
        {"series": f'skewless_watermark_timestamp_seconds{{{running}, partition="0"}}', "values": "-10+15x39"},
        {"series": f"skewless_build_info{{{running}}}", "values": "1x39"},
    ]
    requested = panels(UIDS["skewless-pipeline"])
    for eval_time, age in (("9m", 10), ("20m", 1200 - 575)):
        expected = {"Age of the results": [{"labels": "{}", "value": age}]}
        assert problems_of_values(requested, series, expected, eval_time, tmp_path) == ""
    expected = {"Processes": [{"labels": "{}", "value": 0}]}
    assert problems_of_values(requested, series, expected, "20m", tmp_path) == ""


@pytest.mark.parametrize(
    ("at", "values", "shown"),
    [
        ("5m", "500x40", 500),
        ("10m", "_x20 500x40", 500),
        ("10m", "0x10 7x40", 7),
        ("2h", "500x480", 0),
        ("15m", "_x20 500x20 _x40", 500),
    ],
    ids=["of the first start", "of a new process", "between two scrapes", "before the time range", "of an ended one"],
)
def test_dead_letters_panel_shows_those_before_the_first_scrape_of_a_process(
    at: str, values: str, shown: int, tmp_path: Path
) -> None:
    produced = f'skewless_produced_records_total{{{HERE}, topic="dead-letters"}}'
    series = [
        {"series": produced, "values": values},
        {"series": produced.replace('"i"', '"older"'), "values": "0x480"},
    ]
    expected = {"Dead letters": [{"labels": "{}", "value": shown}]}
    assert problems_of_values(panels(UIDS["skewless-pipeline"]), series, expected, at, tmp_path) == ""


@pytest.mark.parametrize(
    ("running", "records_in"),
    [
        ({"splitter": 15}, 1),
        ({"enricher": 150, "splitter": 15}, 10),
        ({"join": 30, "splitter": 15}, 2),
        ({"left": 150, "right": 300, "join": 450, "splitter": 15}, 30),
    ],
)
def test_input_panels_of_the_pipeline_show_the_stages_that_read_the_topics_of_the_user(
    running: dict[str, int], records_in: int, tmp_path: Path
) -> None:
    series = []
    for name, growth in running.items():
        of_stage = f'job="j", instance="i", pipeline="p", stage="{name}"'
        series += [
            {"series": f"skewless_consumed_records_total{{{of_stage}}}", "values": f"0+{growth}x20"},
            {"series": f'skewless_consumer_lag_records{{{of_stage}, partition="0"}}', "values": "5x20"},
        ]
    expected = {
        "Records in": [{"labels": "{}", "value": records_in}],
        "Lag at the source": [{"labels": "{}", "value": 5 * len(running)}],
    }
    assert problems_of_values(panels(UIDS["skewless-pipeline"]), series, expected, "5m", tmp_path) == ""


def test_tuples_panel_of_the_pipeline_shows_stages_that_count_its_tuples_alone(tmp_path: Path) -> None:
    series = [
        {
            "series": f'skewless_tuples_total{{job="j", instance="i", pipeline="p", stage="{each.name}"}}',
            "values": "0+15x20",
        }
        for each in STAGES
    ]
    counting = ["splitter", "router", "worker", "aggregator", "observer", "flusher"]
    expected = [{"labels": f'{{stage="{name}"}}', "value": 1} for name in counting]
    requested = panels(UIDS["skewless-pipeline"])
    assert problems_of_values(requested, series, {"Tuples by stage": expected}, "5m", tmp_path) == ""


def test_throttling_panel_of_two_processes_shows_the_share_of_the_most_throttled_one(tmp_path: Path) -> None:
    labels = 'job="j", pipeline="p", stage="splitter", client="producer"'
    series = [
        {
            "series": f'skewless_client_throttle_seconds_total{{{labels}, instance="{growth}"}}',
            "values": f"0+{growth}x20",
        }
        for growth in (3, 12)
    ]
    expected = {"Throttling": [{"labels": '{client="producer"}', "value": 12 / 15}]}
    assert problems_of_values(panels(UIDS["skewless-stage"]), series, expected, "5m", tmp_path) == ""


@pytest.mark.parametrize(
    ("rows", "peak_to_mean", "imbalance"),
    [((0, 0), [], []), ((45, 15), [{"labels": "{}", "value": 1.5}], [{"labels": "{}", "value": 0.25}])],
)
def test_balance_panels_without_load_show_nothing(
    rows: tuple[int, int], peak_to_mean: list[dict[str, Any]], imbalance: list[dict[str, Any]], tmp_path: Path
) -> None:
    router = 'job="j", instance="i", pipeline="p", stage="router"'
    series = [
        {"series": f'skewless_router_rows_total{{{router}, worker="{worker}"}}', "values": f"0+{growth}x20"}
        for worker, growth in enumerate(rows)
    ]
    series.append({"series": f"skewless_router_workers{{{router}}}", "values": "2x20"})
    expected = {"Most loaded worker / average": peak_to_mean, "Imbalance": imbalance}
    requested = [panel for panel in panels(UIDS["skewless-balance"]) if panel["type"] == "stat"]
    assert problems_of_values(requested, series, expected, "5m", tmp_path) == ""


def test_dashboard_expressions_are_valid_promql(tmp_path: Path) -> None:
    requested = [
        requested for found in DASHBOARDS.values() for requested in (*expressions(found), *of_variables(found))
    ]
    records = [
        {"record": f"expr:{number}", "expr": substitute_variables(one.expr, CHOSEN)}
        for number, one in enumerate(requested)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": records}]}))
    assert promtool("check", "rules", file) == ""


def of_variables(found: dict[str, Any]) -> list[PanelQuery]:
    queries = [each["query"]["query"] for each in found["templating"]["list"] if each["type"] == "query"]
    return [PanelQuery(query, query.removeprefix("label_values(").rpartition(",")[0]) for query in queries]
