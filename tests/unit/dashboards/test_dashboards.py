"""The dashboards equal their generator's output, and follow the rules of Grafana's dashboard-linter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dashboards.generate.dashboard import document, panels
from dashboards.generate.files import files
from dashboards.generate.pipeline import pipeline
from helpers.docs_blocks import ROOT
from helpers.prometheus_api import PanelQuery, expressions, substitute_variables
from helpers.source_files import assert_none
from skewless.metric_definition import CONSTANT_LABELS
from skewless.monitoring.metrics import METRICS, Metric
from skewless.topology import STAGES, Stage
from unit.dashboards.test_alerts import promtool

MADE = files()
DASHBOARDS = {name: json.loads(text) for name, text in MADE.items() if name.endswith(".json")}
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


def test_dashboard_files_generated_again_are_unchanged() -> None:
    assert_none(f"{name}: run `make dashboards`" for name in MADE if (ROOT / name).read_text() != MADE[name])


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
        event_time=None,
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
            "of the chosen instance": 'instance=~"$instance"' in matchers,
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
        by_rate = requested.expr[: found.start()].endswith(("rate(", "increase("))
        counted = found["name"].endswith(("_total", "_bucket", "_count"))
        checks = {"a rate of a counter": by_rate == counted}
        if counted:
            checks["over the interval of the panel"] = found["window"] in {"[$__rate_interval]", "[$__range]"}
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
