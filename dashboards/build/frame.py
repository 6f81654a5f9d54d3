"""What all dashboards share: their variables, their links to each other, and how they become JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from dashboards.build.panels import SOURCE, Panel

TAG = "skewless"


class Row(NamedTuple):
    """A row of panels; a folded one shows its title alone until it is opened."""

    title: str
    panels: Sequence[Panel]
    folded: bool = False


class Event(NamedTuple):
    """A mark on the time axis wherever the expression gives something."""

    name: str
    expr: str
    title: str
    color: str


class Dashboard(NamedTuple):
    """A dashboard; `uid` is also the name of its file, and stays the same for ever."""

    uid: str
    title: str
    tells: str
    rows: Sequence[Row]
    events: Sequence[Event] = ()
    compares: bool = False
    """Whether it has a second choice of pipelines, those that it compares."""


def document(wanted: Dashboard) -> dict[str, Any]:
    """Build the JSON of a dashboard in Grafana's classic form."""
    built = dashboard.Dashboard(wanted.title).uid(wanted.uid).description(wanted.tells).tags([TAG]).readonly()
    built.time("now-30m", "now").refresh("10s").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    built.link(
        dashboard.DashboardLink("Skewless").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]).keep_time(True)
    )
    for variable in _variables(compares=wanted.compares):
        built.with_variable(variable)
    for event in wanted.events:
        built.annotation(_annotation(event))
    for row in wanted.rows:
        _add(built, row)
    found: dict[str, Any] = json.loads(json.dumps(built.build(), cls=JSONEncoder))
    for number, panel in enumerate(panels(found), start=1):
        panel["id"] = number
    _close_gaps(found["panels"])
    for made, event in zip(found["annotations"].get("list", []), wanted.events, strict=True):
        made |= {"titleFormat": event.title, "step": "10s"}  # the SDK has no words for these
    return found


def panels(found: dict[str, Any]) -> list[dict[str, Any]]:
    """List the panels and rows of a dashboard's JSON, those in folded rows too."""
    return [each for panel in found["panels"] for each in (panel, *panel.get("panels", ()))]


def _close_gaps(shown: list[dict[str, Any]]) -> None:
    """Move up what stands below folded rows: the SDK leaves room for the panels in them."""
    hidden = 0
    for panel in shown:
        inside = panel.get("panels") or []
        for each in (panel, *inside):
            each["gridPos"]["y"] -= hidden
        below = panel["gridPos"]["y"] + panel["gridPos"]["h"]
        hidden += max((each["gridPos"]["y"] + each["gridPos"]["h"] - below for each in inside), default=0)


def _add(built: dashboard.Dashboard, row: Row) -> None:
    head = dashboard.Row(row.title)
    if row.folded:
        for panel in row.panels:
            head.with_panel(panel)
    built.with_row(head)
    if not row.folded:
        for panel in row.panels:
            built.with_panel(panel)


def _annotation(event: Event) -> dashboard.AnnotationQuery:
    return dashboard.AnnotationQuery().name(event.name).datasource(SOURCE).expr(event.expr).icon_color(event.color)


def _variables(*, compares: bool) -> list[dashboard.QueryVariable | dashboard.DatasourceVariable]:
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    job = _choice("job", "Job", "label_values(skewless_build_info, job)")
    pipeline = _choice("pipeline", "Pipeline", 'label_values(skewless_build_info{job=~"$job"}, pipeline)', one=True)
    instance = _choice(
        "instance", "Process", 'label_values(skewless_build_info{job=~"$job", pipeline=~"$pipeline"}, instance)'
    )
    compared = _choice("compared", "Compare with", 'label_values(skewless_router_info{job=~"$job"}, pipeline)')
    return [source, job, pipeline, instance, *([compared] if compares else [])]


def _choice(name: str, label: str, query: str, *, one: bool = False) -> dashboard.QueryVariable:
    built = dashboard.QueryVariable(name).label(label).datasource(SOURCE)
    built.query({"query": query, "refId": name, "qryType": 1})
    built.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)
    if one:
        return built
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return built.multi(multi=True).include_all(include_all=True).all_value(".+").current(everything)
