"""The dashboards equal their generator's output, and follow the rules of Grafana's dashboard-linter."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate.dashboard import document, panels
from dashboards.generate.files import files
from dashboards.generate.pipeline import pipeline
from dashboards.prometheus_api import PanelQuery, expressions, substitute_variables
from helpers.docs_blocks import ROOT
from skewless.metric_definition import CONSTANT_LABELS
from skewless.monitoring.metrics import METRICS, Metric
from skewless.topology import STAGES, Stage
from unit.dashboards.test_alerts import promtool

MADE = files()
DASHBOARDS = {name: json.loads(text) for name, text in MADE.items() if name.endswith(".json")}
PANELS = [
    pytest.param(panel, id=f"{found['uid']}-{panel['id']}")
    for found in DASHBOARDS.values()
    for panel in panels(found)
    if panel["type"] != "row"
]
TARGETS = [
    pytest.param(requested.expr, id=requested.where)
    for found in DASHBOARDS.values()
    for requested in expressions(found)
]
SELECTOR = re.compile(r"\b(?P<name>(?:skewless|process)_\w+)(?P<matchers>\{[^}]*\})?(?P<window>\[[^\]]*\])?")
SUFFIXES = re.compile(r"_(bucket|count|sum)$")
BY_NAME = {metric.name: metric for metric in METRICS}
CHOSEN = dict.fromkeys(("job", "pipeline", "instance", "compared"), ".+") | {"__rate_interval": "1m", "__range": "1h"}
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


@pytest.mark.parametrize("name", MADE)
def test_dashboard_files_generated_again_are_unchanged(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == MADE[name], "run `make dashboards`"


EVERYWHERE = [stage for stage in STAGES if stage.option is None]
"""Stages that every pipeline has."""


def rows_of(found: dict[str, Any]) -> dict[str, list[str]]:
    """Titles of the panels of every stage's row, all of which are folded."""
    folded = {panel["title"]: panel["panels"] for panel in found["panels"] if panel.get("collapsed")}
    return {
        title.partition(":")[0]: [panel["title"] for panel in shown]
        for title, shown in folded.items()
        if "own metrics" not in title
    }


def test_pipeline_dashboard_has_a_folded_row_per_stage_in_data_order_with_the_same_panels() -> None:
    stages = rows_of(document(pipeline()))
    assert list(stages) == [stage.name for stage in STAGES]
    same = {tuple(stages[stage.name]) for stage in EVERYWHERE}
    assert len(same) == 1


def test_pipeline_dashboard_overview_is_the_only_open_row() -> None:
    found = document(pipeline())
    open_rows = [panel["title"] for panel in found["panels"] if panel["type"] == "row" and not panel["collapsed"]]
    assert open_rows == ["Pipeline"]
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


def test_pipeline_dashboard_stage_added_to_the_topology_gets_its_row() -> None:
    exporter = Stage(
        name="exporter",
        description="writes results into tables",
        inputs=("aggregates",),
        outputs=(),
        builder="exporter:build",
        metrics="exporter",
        section="exporter",
    )
    partials = BY_NAME["skewless_worker_partials_total"]
    rows_written = replace(partials, name="skewless_exporter_rows_total", stages=("exporter",))
    found = document(pipeline((*STAGES, exporter), (*METRICS, rows_written)))
    titles = [panel["title"] for panel in found["panels"] if panel["type"] == "row"]
    assert titles[-2:] == ["exporter: writes results into tables", "exporter: its own metrics"]
    stages = rows_of(found)
    assert list(stages)[-1] == "exporter"
    # It reads a public topic, which has no watermarks, and writes to none.
    assert stages["exporter"] == [title for title in stages["splitter"] if title != "Watermark delay"]
    requested = [requested.expr for requested in expressions(found)]
    assert not any("skewless_produced_" in expr for expr in requested if 'stage="exporter"' in expr)
    assert sum('stage="exporter"' in expr for expr in requested) > 10
    assert any("skewless_exporter_rows_total" in expr for expr in requested)


def test_dashboards_and_alerts_use_every_metric() -> None:
    text = "".join(MADE[name] for name in MADE if name.startswith("dashboards/"))
    unseen = {metric.name for metric in METRICS if metric.name not in text}
    assert unseen == set()
    assert {name for name in READ_BY_ALERTS if name in "".join(map(json.dumps, DASHBOARDS.values()))} == set()


@pytest.mark.parametrize("found", DASHBOARDS.values(), ids=lambda found: found["uid"])
def test_dashboard_variables_are_chained(found: dict[str, Any]) -> None:
    variables = {each["name"]: each for each in found["templating"]["list"]}
    assert list(variables)[:6] == ["datasource", "cluster", "namespace", "job", "pipeline", "instance"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for name, variable in variables.items():
        if name != "datasource":
            assert variable["datasource"]["uid"] == "${datasource}"
            assert variable["refresh"] == 2, "on every change of the time"
            assert variable["query"]["query"].startswith("label_values(skewless_")
    for name in ("cluster", "namespace"):
        assert variables[name]["allValue"] == ".*", "a series without the label is among all"
    assert 'cluster=~"$cluster"' in variables["namespace"]["query"]["query"]
    assert 'cluster=~"$cluster", namespace=~"$namespace"' in variables["job"]["query"]["query"]
    assert 'job=~"$job"' in variables["pipeline"]["query"]["query"]
    assert 'pipeline=~"$pipeline"' in variables["instance"]["query"]["query"]


@pytest.mark.parametrize("found", DASHBOARDS.values(), ids=lambda found: found["uid"])
def test_dashboard_document_can_be_imported_anywhere(found: dict[str, Any]) -> None:
    assert found["uid"]
    assert found["editable"] is False
    assert found["schemaVersion"] >= 39
    assert "skewless" in found["tags"]
    assert len({panel["id"] for panel in panels(found)}) == len(panels(found))
    for event in found["annotations"].get("list", []):
        assert event["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("panel", PANELS)
def test_dashboard_panels_have_title_description_and_source(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    if panel["type"] == "text":
        assert "targets" not in panel
        return
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("found", DASHBOARDS.values(), ids=lambda found: found["uid"])
def test_dashboard_panels_fill_the_grid_without_overlap(found: dict[str, Any]) -> None:
    used: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & used
        used |= cells


@pytest.mark.parametrize("expr", TARGETS)
def test_dashboard_selectors_use_existing_metrics_labels_and_variables(expr: str) -> None:
    for found in SELECTOR.finditer(expr):
        matchers = found["matchers"] or ""
        assert 'cluster=~"$cluster", namespace=~"$namespace", job=~"$job"' in matchers
        assert 'instance=~"$instance"' in matchers
        if found["name"].startswith("process_"):
            continue
        known = metric(found["name"])
        assert known is not None, found["name"]
        assert "pipeline=~" in matchers
        assert set(re.findall(r"(\w+)(?:=~|=)", matchers)) <= {*CONSTANT_LABELS, *known.labels, *TARGET, "le"}


@pytest.mark.parametrize("expr", TARGETS)
def test_dashboard_counters_are_queried_by_rate(expr: str) -> None:
    for found in SELECTOR.finditer(expr):
        before = expr[: found.start()]
        if found["name"].endswith(("_total", "_bucket", "_count")):
            assert before.endswith(("rate(", "increase("))
            assert found["window"] in {"[$__rate_interval]", "[$__range]"}
        else:
            assert not before.endswith(("rate(", "increase("))


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
    requested = {
        panel["title"]: substitute_variables(panel["targets"][0]["expr"], CHOSEN)
        for panel in reversed(panels(document(pipeline(EVERYWHERE))))  # the last one is the splitter
        if panel["title"] in expected
    }
    cases = [{"expr": requested[title], "eval_time": "0m", "exp_samples": found} for title, found in expected.items()]
    file = tmp_path / "delay.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"input_series": series, "promql_expr_test": cases}]}))
    assert promtool("test", "rules", file) == ""


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
