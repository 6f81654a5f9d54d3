"""Computes the contents of panels from the results of their queries. Charts are drawn by Plotly."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from bench.drawing.formatting import (
    COLORS,
    GRID_COLOR,
    format_value,
    suffix_and_factor,
    threshold_color,
    to_datetime,
    value_axis,
)
from helpers.prometheus_api import Api, Series, substitute_variables

STEPS = 120
"""Number of points of a series over the time range."""
DARK_LAYOUT = {"paper_bgcolor": "#181b1f", "plot_bgcolor": "#181b1f", "font": {"color": "#ccccdc", "size": 11}}
Content = Mapping[str, Any]
"""Content of a panel: `kind`, and what the template needs to show it."""
NO_DATA: Content = {"kind": "no data"}
SERIES_COLORS = (
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff9830",
    "#f2495c",
    "#b877d9",
    "#37872d",
    "#e0b400",
    "#1f60c4",
    "#fa6400",
)


class Span(NamedTuple):
    """Time range of the dashboard in seconds since the epoch, and the values of its variables."""

    start: float
    end: float
    variables: Mapping[str, str]
    events: Sequence[tuple[float, str]] = ()
    """Times of the dashboard's events, and their colours."""

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, (self.end - self.start) / STEPS)


def legend(template: str, labels: Mapping[str, str]) -> str:
    """Fill in a legend such as `worker {{worker}}`."""
    for name, value in labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template


def _query_panel(panel: Mapping[str, Any], api: Api, span: Span) -> list[tuple[str, Series]]:
    """Run all queries of a panel. Returns (name in the legend, series)."""
    named_series = []
    for target in panel["targets"]:
        expr = substitute_variables(target["expr"], span.variables)
        results = api.query_range(expr, span.start, span.end, span.step)
        named_series += [(legend(target["legendFormat"], series.labels), series) for series in results]
    return sorted(named_series, key=lambda item: (len(item[0]), item[0]))


def _render_lines(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> Content:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    named_series = _query_panel(panel, api, span)
    if not named_series:
        return NO_DATA
    figure = go.Figure()
    for number, (name, series) in enumerate(named_series):
        color = SERIES_COLORS[number % len(SERIES_COLORS)]
        times, values = _times_and_values(series)
        figure.add_scatter(
            x=times,
            y=values,
            name=name,
            mode="lines",
            line={"width": 1.5, "color": color},
            stackgroup="all" if stacked else None,
        )
    for timestamp_s, color in span.events:
        line = {"color": COLORS.get(color, color), "width": 1, "dash": "dash"}
        figure.add_vline(x=to_datetime(timestamp_s), line=line)
    return _figure(figure, size, {"yaxis": value_axis(panel), "showlegend": True})


def _render_heatmap(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> Content:
    named_series = sorted(_query_panel(panel, api, span), key=lambda item: int(item[0]))
    timestamps = sorted({timestamp_s for _, series in named_series for timestamp_s, _ in series.values})
    cells = [[dict(series.values).get(timestamp_s) for timestamp_s in timestamps] for _, series in named_series]
    highest = max((value for row in cells for value in row if value is not None), default=1.0)
    suffix, factor = suffix_and_factor(panel)
    scheme = panel["options"]["color"]
    figure = go.Figure()
    figure.add_heatmap(
        x=[to_datetime(timestamp_s) for timestamp_s in timestamps],
        y=[name for name, _ in named_series],
        z=[[None if value is None else value * factor for value in row] for row in cells],
        colorscale=f"{scheme['scheme']}{'_r' if scheme['reverse'] else ''}",
        zmin=0,
        zmax=scheme.get("max", highest) * factor,
        colorbar={"ticksuffix": suffix, "thickness": 10},
    )
    worker_axis = {"type": "category", "title": "worker", "gridcolor": GRID_COLOR}
    return _figure(figure, size, {"yaxis": worker_axis})


def _render_bars(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> Content:
    last_values = sorted(
        ((name, series.values[-1][1]) for name, series in _query_panel(panel, api, span)), key=lambda item: int(item[0])
    )
    colors = [threshold_color(panel, value) for _, value in last_values]
    figure = go.Figure()
    figure.add_bar(
        y=[f"{name} " for name, _ in last_values],
        x=[value for _, value in last_values],
        orientation="h",
        marker={"color": colors},
        text=[format_value(value, panel) for _, value in last_values],
        textposition="auto",
    )
    name_axis = {"type": "category", "autorange": "reversed"}
    return _figure(figure, size, {"yaxis": name_axis, "xaxis": {"gridcolor": GRID_COLOR}})


def _render_stat(panel: Mapping[str, Any], api: Api, span: Span, _size: tuple[int, int]) -> Content:
    named_series = _query_panel(panel, api, span)
    mode = panel["options"]["textMode"]
    if not named_series:
        return NO_DATA
    if mode == "name":
        current = [name for name, series in named_series if series.values[-1][0] > span.end - 2 * span.step]
        return {"kind": "names", "names": current}
    values = [
        {
            "text": format_value(series.values[-1][1], panel),
            "color": threshold_color(panel, series.values[-1][1]),
            "label": name if mode == "value_and_name" else None,
        }
        for name, series in named_series
    ]
    return {"kind": "values", "values": values}


def _render_table(panel: Mapping[str, Any], api: Api, span: Span, _size: tuple[int, int]) -> Content:
    organize = next(step for step in panel["transformations"] if step["id"] == "organize")
    column_titles = organize["options"]["renameByName"]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    labels: Sequence[str] = ()
    for target in panel["targets"]:
        for series in api.query(substitute_variables(target["expr"], span.variables), span.end):
            labels = sorted(series.labels)
            row = rows.setdefault(tuple(series.labels[label] for label in labels), {})
            row[column_titles[f"Value #{target['refId']}"]] = format_value(series.values[-1][1], panel)
    titles = list(column_titles.values())
    cells = [(*key, *(row.get(title, "") for title in titles)) for key, row in sorted(rows.items())]
    return {"kind": "table", "head": [*labels, *titles], "rows": cells}


def _render_text(panel: Mapping[str, Any], _api: Api, _span: Span, _size: tuple[int, int]) -> Content:
    text = panel["options"]["content"].strip().replace("*", "").replace("`", "")
    return {"kind": "text", "paragraphs": text.split("\n\n")}


RENDERERS = {
    "timeseries": _render_lines,
    "heatmap": _render_heatmap,
    "bargauge": _render_bars,
    "stat": _render_stat,
    "table": _render_table,
    "text": _render_text,
}
"""Type of a panel -> function that renders it."""


def _figure(figure: go.Figure, size: tuple[int, int], layout: Mapping[str, Any]) -> Content:
    base = {
        **DARK_LAYOUT,
        "width": size[0],
        "height": size[1],
        "margin": {"l": 55, "r": 14, "t": 6, "b": 22},
        "legend": {"orientation": "h", "y": -0.16, "font": {"size": 9}, "traceorder": "normal"},
        "xaxis": {"gridcolor": GRID_COLOR, "tickformat": "%H:%M:%S", "nticks": 5 if size[0] < 500 else 9},
    }
    figure.update_layout({**base, **layout})
    html = figure.to_html(full_html=False, include_plotlyjs=False, config={"staticPlot": True})
    return {"kind": "figure", "html": html}


def _times_and_values(series: Series) -> tuple[list[dt.datetime], list[float | None]]:
    times = [to_datetime(timestamp_s) for timestamp_s, _ in series.values]
    return times, [value if math.isfinite(value) else None for _, value in series.values]
