"""The kinds of panels that all dashboards use, in one style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models import text as text_models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = timeseries.Panel | stat.Panel | heatmap.Panel | bargauge.Panel | table.Panel | text.Panel
_Shown = TypeVar("_Shown", timeseries.Panel, stat.Panel, heatmap.Panel, bargauge.Panel, table.Panel)


class Query(NamedTuple):
    """An expression, and how its series are named: a template such as `{{worker}}`."""

    expr: str
    legend: str


class About(NamedTuple):
    """What every panel has: what it is called, what it tells, the unit of its values, and its size on the grid."""

    title: str
    tells: str
    unit: str
    width: int = 6
    height: int = 7


def lines(about: About, *queries: Query, stacked: bool = False, lowest: float | None = 0) -> timeseries.Panel:
    """Values over time; stacked when only their sum and its parts matter."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.LIST)
    panel = _dressed(timeseries.Panel(), about, queries)
    panel.legend(legend.placement(common_models.LegendPlacement.BOTTOM).show_legend(show_legend=True))
    tooltip = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(common_models.SortOrder.DESCENDING))
    panel.line_width(1).fill_opacity(60 if stacked else 10).show_points(common_models.VisibilityMode.NEVER)
    if lowest is not None:
        panel.min(lowest)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    return panel


def number(about: About, *queries: Query, limits: Sequence[float] = (), name: bool = False) -> stat.Panel:
    """Last values, large; yellow from the first limit on, red from the second. `name` shows the name of a series."""
    panel = _dressed(stat.Panel(), about, queries)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.graph_mode(common_models.BigValueGraphMode.NONE if name else common_models.BigValueGraphMode.AREA)
    panel.thresholds(thresholds(limits))
    several = (
        common_models.BigValueTextMode.VALUE_AND_NAME if len(queries) > 1 else common_models.BigValueTextMode.VALUE
    )
    return panel.text_mode(common_models.BigValueTextMode.NAME if name else several)


def by_worker(about: About, query: Query, *, highest: float | None = None) -> heatmap.Panel:
    """One row of colours per series over time: a hot worker is a bright line."""
    panel = _dressed(heatmap.Panel(), about, [query])
    panel.calculate(calculate=False).show_legend().show_value(common_models.VisibilityMode.NEVER).cell_gap(0)
    panel.rows_frame(heatmap.RowsHeatmapOptions().layout(common_models.HeatmapCellLayout.AUTO))
    panel.y_axis(heatmap.YAxisConfig().unit("none").decimals(0).axis_label("worker"))
    panel.cell_values(heatmap.CellValues().unit(about.unit))
    colors = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Turbo").steps(64)
    colors.fill("dark-orange").reverse(reverse=False).min(0)
    if highest is not None:
        colors.max(highest)
    return panel.color(colors).mode(common_models.TooltipDisplayMode.SINGLE)


def bars(about: About, query: Query, limits: Sequence[float] = ()) -> bargauge.Panel:
    """Last values side by side."""
    panel = _dressed(bargauge.Panel(), about, [query]).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.display_mode(common_models.BarGaugeDisplayMode.BASIC).orientation(common_models.VizOrientation.HORIZONTAL)
    return panel.thresholds(thresholds(limits))


def rows(about: About, columns: dict[str, str]) -> table.Panel:
    """One row per series as of now; title of a column -> expression. They are joined by their labels."""
    panel = _dressed(table.Panel(), about, [])
    names = {"Time": ""}
    for position, (title, expr) in enumerate(columns.items()):
        query = _query(Query(expr, ""), position).instant().format(prometheus_models.PromQueryFormat.TABLE)
        panel.with_target(query)
        names[f"Value #{_letter(position)}"] = title
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    organized = {"excludeByName": {"Time": True}, "renameByName": {old: new for old, new in names.items() if new}}
    return panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))


def words(about: About, markdown: str) -> text.Panel:
    """Text, for what no metric tells."""
    panel = text.Panel().title(about.title).description(about.tells).transparent(transparent=True)
    panel.mode(text_models.TextMode.MARKDOWN).content(markdown)
    return panel.span(about.width).height(about.height)


def thresholds(limits: Sequence[float]) -> dashboard.ThresholdsConfig:
    """Green, then yellow, then red."""
    steps = [models.Threshold(value=None, color="green")]
    steps += [
        models.Threshold(value=limit, color=color) for limit, color in zip(limits, ("yellow", "red"), strict=False)
    ]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _dressed(panel: _Shown, about: About, queries: Sequence[Query]) -> _Shown:
    panel.title(about.title).description(about.tells).unit(about.unit).datasource(SOURCE)
    panel.span(about.width).height(about.height)
    for position, query in enumerate(queries):
        panel.with_target(_query(query, position).range())
    return panel


def _query(query: Query, position: int) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto")
    return built.ref_id(_letter(position)).datasource(SOURCE)


def _letter(position: int) -> str:
    return chr(ord("A") + position)
