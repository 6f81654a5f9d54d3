"""Builders of the panels that all dashboards use, in one style."""

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
_QueryPanel = TypeVar("_QueryPanel", timeseries.Panel, stat.Panel, heatmap.Panel, bargauge.Panel, table.Panel)


class Query(NamedTuple):
    """An expression, and a template such as `{{worker}}` for the names of its series."""

    expr: str
    legend: str


class PanelDescription(NamedTuple):
    """Title, description and unit of a panel, and its size in grid cells."""

    title: str
    description: str
    unit: str
    width: int = 6
    height: int = 7


def line_panel(
    spec: PanelDescription, *queries: Query, stacked: bool = False, lowest: float | None = 0
) -> timeseries.Panel:
    """Build a chart of values over time. `stacked` shows the series as parts of their sum."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.LIST)
    panel = _with_defaults(timeseries.Panel(), spec, queries)
    panel.legend(legend.placement(common_models.LegendPlacement.BOTTOM).show_legend(show_legend=True))
    tooltip = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(common_models.SortOrder.DESCENDING))
    panel.line_width(1).fill_opacity(60 if stacked else 10).show_points(common_models.VisibilityMode.NEVER)
    if lowest is not None:
        panel.min(lowest)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    return panel


def stat_panel(spec: PanelDescription, *queries: Query, limits: Sequence[float] = (), name: bool = False) -> stat.Panel:
    """Build a panel of present values: yellow from the first limit, red from the second. `name` shows their name."""
    panel = _with_defaults(stat.Panel(), spec, queries, instant=True)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.graph_mode(common_models.BigValueGraphMode.NONE)
    panel.thresholds(thresholds(limits))
    value_mode = (
        common_models.BigValueTextMode.VALUE_AND_NAME if len(queries) > 1 else common_models.BigValueTextMode.VALUE
    )
    return panel.text_mode(common_models.BigValueTextMode.NAME if name else value_mode)


def heatmap_panel(
    spec: PanelDescription, query: Query, *, highest: float | None = None, diverging: bool = False
) -> heatmap.Panel:
    """Build a heatmap with a row of colours per worker, in which a hot worker is a bright line.

    With `diverging` colours, half of `highest` is neutral, less is blue, and more is red.
    """
    panel = _with_defaults(heatmap.Panel(), spec, [query])
    panel.calculate(calculate=False).show_legend().show_value(common_models.VisibilityMode.NEVER).cell_gap(0)
    panel.rows_frame(heatmap.RowsHeatmapOptions().layout(common_models.HeatmapCellLayout.AUTO))
    panel.y_axis(heatmap.YAxisConfig().unit("none").decimals(0).axis_label("worker"))
    panel.cell_values(heatmap.CellValues().unit(spec.unit))
    colors = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).steps(64)
    colors.scheme("RdBu" if diverging else "Turbo").reverse(reverse=diverging)
    colors.fill("dark-orange").min(0)
    if highest is not None:
        colors.max(highest)
    return panel.color(colors).mode(common_models.TooltipDisplayMode.SINGLE)


def bar_panel(spec: PanelDescription, query: Query, limits: Sequence[float] = ()) -> bargauge.Panel:
    """Build a bar chart of present values."""
    panel = _with_defaults(bargauge.Panel(), spec, [query], instant=True).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.display_mode(common_models.BarGaugeDisplayMode.BASIC).orientation(common_models.VizOrientation.HORIZONTAL)
    return panel.thresholds(thresholds(limits))


def table_panel(spec: PanelDescription, columns: dict[str, str]) -> table.Panel:
    """Build a table of present values with a row per label set. `columns` maps a column's title to its expression."""
    panel = _with_defaults(table.Panel(), spec, [])
    names = {"Time": ""}
    for position, (title, expr) in enumerate(columns.items()):
        query = _query(Query(expr, ""), position, instant=True).format(prometheus_models.PromQueryFormat.TABLE)
        panel.with_target(query)
        names[f"Value #{_query_letter(position)}"] = title
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    organized = {"excludeByName": {"Time": True}, "renameByName": {old: new for old, new in names.items() if new}}
    return panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))


def text_panel(spec: PanelDescription, markdown: str) -> text.Panel:
    """Build a panel of Markdown text."""
    panel = text.Panel().title(spec.title).description(spec.description).transparent(transparent=True)
    panel.mode(text_models.TextMode.MARKDOWN).content(markdown)
    return panel.span(spec.width).height(spec.height)


def thresholds(limits: Sequence[float]) -> dashboard.ThresholdsConfig:
    """Return thresholds: green below the first limit, then yellow, then red."""
    steps = [models.Threshold(value=None, color="green")]
    steps += [
        models.Threshold(value=limit, color=color) for limit, color in zip(limits, ("yellow", "red"), strict=False)
    ]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _with_defaults(
    panel: _QueryPanel, spec: PanelDescription, queries: Sequence[Query], *, instant: bool = False
) -> _QueryPanel:
    panel.title(spec.title).description(spec.description).unit(spec.unit).datasource(SOURCE)
    panel.span(spec.width).height(spec.height)
    for position, query in enumerate(queries):
        panel.with_target(_query(query, position, instant=instant))
    return panel


def _query(query: Query, position: int, *, instant: bool) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto")
    built.ref_id(_query_letter(position)).datasource(SOURCE)
    # The last value of a range may be old: it is still there when all processes have been down for hours.
    return built.instant() if instant else built.range()


def _query_letter(position: int) -> str:
    return chr(ord("A") + position)
