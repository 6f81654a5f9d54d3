"""Dashboard, its rows and events, and their conversion to Grafana's JSON with common variables and links."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from dashboards.generate.panels import SOURCE, Panel
from dashboards.generate.promql import WHERE

TAG = "skewless"


class Row(NamedTuple):
    """A row of panels. A folded row shows only its title until the user opens it."""

    title: str
    panels: Sequence[Panel]
    folded: bool = False


class Event(NamedTuple):
    """An annotation on the time axis at each point where the expression returns a value."""

    name: str
    expr: str
    title: str
    color: str


class Dashboard(NamedTuple):
    """A dashboard. `uid` is also the name of its file and must never change, because links contain it."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    events: Sequence[Event] = ()
    compares: bool = False
    """True adds a second pipeline variable, which selects the pipelines to compare."""
    of_stage: bool = False
    """True adds a variable that selects a stage."""
    stages: Sequence[str] = ()
    """Stages of which a pipeline must have one, or the dashboard shows nothing. Empty: it is for every pipeline."""


def document(content: Dashboard) -> dict[str, Any]:
    """Return the JSON of a dashboard in Grafana's classic schema."""
    builder = (
        dashboard.Dashboard(content.title).uid(content.uid).description(content.description).tags([TAG]).readonly()
    )
    builder.time("now-30m", "now").refresh("10s").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    builder.link(
        dashboard.DashboardLink("Skewless").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]).keep_time(True)
    )
    for variable in _variables(content):
        builder.with_variable(variable)
    for event in content.events:
        builder.annotation(_annotation(event))
    for row in content.rows:
        _add_row(builder, row)
    result: dict[str, Any] = json.loads(json.dumps(builder.build(), cls=JSONEncoder))
    for number, panel in enumerate(panels(result), start=1):
        panel["id"] = number
    _close_gaps(result["panels"])
    for annotation, event in zip(result["annotations"].get("list", []), content.events, strict=True):
        annotation |= {"titleFormat": event.title, "step": "10s"}  # the SDK does not support these fields
    return result


def panels(dashboard_json: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels and rows of a dashboard's JSON, including the panels in folded rows."""
    return [item for panel in dashboard_json["panels"] for item in (panel, *panel.get("panels", ()))]


def _close_gaps(top_level: list[dict[str, Any]]) -> None:
    """Move up the panels below folded rows, because the SDK reserves space for the hidden panels."""
    hidden_height = 0
    for panel in top_level:
        hidden = panel.get("panels") or []
        for item in (panel, *hidden):
            item["gridPos"]["y"] -= hidden_height
        bottom = panel["gridPos"]["y"] + panel["gridPos"]["h"]
        hidden_height += max((item["gridPos"]["y"] + item["gridPos"]["h"] - bottom for item in hidden), default=0)


def _add_row(builder: dashboard.Dashboard, row: Row) -> None:
    row_builder = dashboard.Row(row.title)
    if row.folded:
        for panel in row.panels:
            row_builder.with_panel(panel)
    builder.with_row(row_builder)
    if not row.folded:
        for panel in row.panels:
            builder.with_panel(panel)


def _annotation(event: Event) -> dashboard.AnnotationQuery:
    return dashboard.AnnotationQuery().name(event.name).datasource(SOURCE).expr(event.expr).icon_color(event.color)


def _variables(content: Dashboard) -> list[dashboard.QueryVariable | dashboard.DatasourceVariable]:
    """Return the variables, each of which filters the options of the next."""
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    info = "label_values(skewless_build_info"
    return [
        source,
        _query_variable("cluster", "Cluster", f"{info}, cluster)", optional=True),
        _query_variable("namespace", "Namespace", f'{info}{{cluster=~"$cluster"}}, namespace)', optional=True),
        _query_variable("job", "Job", f'{info}{{cluster=~"$cluster", namespace=~"$namespace"}}, job)'),
        _query_variable("pipeline", "Pipeline", f"{info}{{{WHERE}}}, pipeline)", single=True),
        _query_variable("instance", "Process", f'{info}{{{WHERE}, pipeline=~"$pipeline"}}, instance)'),
        *(
            [_query_variable("compared", "Compare with", f"label_values(skewless_router_info{{{WHERE}}}, pipeline)")]
            if content.compares
            else []
        ),
        *(
            [_query_variable("stage", "Stage", f'{info}{{{WHERE}, pipeline=~"$pipeline"}}, stage)', single=True)]
            if content.of_stage
            else []
        ),
    ]


def _query_variable(
    name: str, label: str, query: str, *, single: bool = False, optional: bool = False
) -> dashboard.QueryVariable:
    """Return a variable with the values of a label. All values of an `optional` one include a missing label."""
    builder = dashboard.QueryVariable(name).label(label).datasource(SOURCE)
    builder.query({"query": query, "refId": name, "qryType": 1})
    builder.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)
    if single:
        return builder
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    all_values = ".*" if optional else ".+"
    return builder.multi(multi=True).include_all(include_all=True).all_value(all_values).current(everything)
