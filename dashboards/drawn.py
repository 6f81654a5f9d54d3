"""The kinds of panels, drawn by Plotly or written as HTML from what their queries give."""

from __future__ import annotations

import datetime as dt
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from dashboards.live import Api, Series, filled
from dashboards.said import GRID, LIGHTS, axis, clock, light, said, suffix

STEPS = 120
DARK = {"paper_bgcolor": "#181b1f", "plot_bgcolor": "#181b1f", "font": {"color": "#ccccdc", "size": 11}}
NOTHING = "<div class='n s'>No data</div>"
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#e0b400", "#1f60c4", "#fa6400")


class Span(NamedTuple):
    """The time that is shown, in seconds, and what is chosen."""

    start: float
    end: float
    chosen: Mapping[str, str]
    events: Sequence[tuple[float, str]] = ()
    """Times of the dashboard's events, and their colours."""

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, (self.end - self.start) / STEPS)


def _asked(panel: Mapping[str, Any], api: Api, span: Span) -> list[tuple[str, Series]]:
    """Ask all queries of a panel: (name in the legend, series)."""
    found = []
    for target in panel["targets"]:
        expr = filled(target["expr"], span.chosen)
        answer = api.query_range(expr, span.start, span.end, span.step)
        found += [(legend(target["legendFormat"], series.labels), series) for series in answer]
    return sorted(found, key=lambda one: (len(one[0]), one[0]))


def legend(template: str, labels: Mapping[str, str]) -> str:
    """Fill a legend such as `worker {{worker}}`."""
    for name, value in labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template


def _lines(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> str:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    found = _asked(panel, api, span)
    if not found:
        return NOTHING
    figure = go.Figure()
    for number, (name, series) in enumerate(found):
        color = COLORS[number % len(COLORS)]
        times, values = _columns(series)
        figure.add_scatter(
            x=times,
            y=values,
            name=name,
            mode="lines",
            line={"width": 1.5, "color": color},
            stackgroup="all" if stacked else None,
        )
    for at, color in span.events:
        figure.add_vline(x=clock(at), line={"color": LIGHTS.get(color, color), "width": 1, "dash": "dash"})
    return _figure(figure, size, {"yaxis": axis(panel), "showlegend": True})


def _heat(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> str:
    found = sorted(_asked(panel, api, span), key=lambda one: int(one[0]))
    times = sorted({at for _, series in found for at, _ in series.values})
    cells = [[dict(series.values).get(at) for at in times] for _, series in found]
    highest = max((value for row in cells for value in row if value is not None), default=1.0)
    behind, factor = suffix(panel)
    figure = go.Figure()
    figure.add_heatmap(
        x=[clock(at) for at in times],
        y=[name for name, _ in found],
        z=[[None if value is None else value * factor for value in row] for row in cells],
        colorscale="Turbo",
        zmin=0,
        zmax=panel["options"]["color"].get("max", highest) * factor,
        colorbar={"ticksuffix": behind, "thickness": 10},
    )
    return _figure(figure, size, {"yaxis": {"type": "category", "title": "worker", "gridcolor": GRID}})


def _bars(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> str:
    found = sorted(
        ((name, series.values[-1][1]) for name, series in _asked(panel, api, span)), key=lambda one: int(one[0])
    )
    colors = [light(panel, value) for _, value in found]
    figure = go.Figure()
    figure.add_bar(
        y=[f"{name} " for name, _ in found],
        x=[value for _, value in found],
        orientation="h",
        marker={"color": colors},
        text=[said(value, panel) for _, value in found],
        textposition="auto",
    )
    return _figure(figure, size, {"yaxis": {"type": "category", "autorange": "reversed"}, "xaxis": {"gridcolor": GRID}})


def _number(panel: Mapping[str, Any], api: Api, span: Span, _size: tuple[int, int]) -> str:
    found = _asked(panel, api, span)
    mode = panel["options"]["textMode"]
    if not found:
        return NOTHING
    if mode == "name":
        now = [name for name, series in found if series.values[-1][0] > span.end - 2 * span.step]
        return f"<div class='n'>{html.escape(', '.join(now))}</div>"
    each = []
    for name, series in found:
        value = series.values[-1][1]
        label = f" <span class='s'>{html.escape(name)}</span>" if mode == "value_and_name" else ""
        each.append(f"<span style='color:{light(panel, value)}'>{said(value, panel)}</span>{label}")
    return f"<div class='n'>{' &nbsp; '.join(each)}</div>"


def _table(panel: Mapping[str, Any], api: Api, span: Span, _size: tuple[int, int]) -> str:
    names = next(each["options"]["renameByName"] for each in panel["transformations"] if each["id"] == "organize")
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    labels: Sequence[str] = ()
    for target in panel["targets"]:
        for series in api.query(filled(target["expr"], span.chosen), span.end):
            labels = sorted(series.labels)
            row = rows.setdefault(tuple(series.labels[label] for label in labels), {})
            row[names[f"Value #{target['refId']}"]] = said(series.values[-1][1], panel)
    titles = list(names.values())
    head = "".join(f"<th>{html.escape(title)}</th>" for title in (*labels, *titles))
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in (*key, *(row.get(title, "") for title in titles)))
        + "</tr>"
        for key, row in sorted(rows.items())
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _words(panel: Mapping[str, Any], _api: Api, _span: Span, _size: tuple[int, int]) -> str:
    text = html.escape(panel["options"]["content"].strip())
    paragraphs = "".join(f"<p style='margin:6px 0'>{each}</p>" for each in text.split("\n\n"))
    return f"<div class='w'>{paragraphs.replace('**', '').replace('`', '').replace('*', '')}</div>"


DRAWN = {
    "timeseries": _lines,
    "heatmap": _heat,
    "bargauge": _bars,
    "stat": _number,
    "table": _table,
    "text": _words,
}


def _figure(figure: go.Figure, size: tuple[int, int], layout: Mapping[str, Any]) -> str:
    base = {
        **DARK,
        "width": size[0],
        "height": size[1],
        "margin": {"l": 55, "r": 14, "t": 6, "b": 22},
        "legend": {"orientation": "h", "y": -0.16, "font": {"size": 9}, "traceorder": "normal"},
        "xaxis": {"gridcolor": GRID, "tickformat": "%H:%M:%S", "nticks": 5 if size[0] < 500 else 9},
    }
    figure.update_layout({**base, **layout})
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"staticPlot": True}))


def _columns(series: Series) -> tuple[list[dt.datetime], list[float | None]]:
    return [clock(at) for at, _ in series.values], [
        value if math.isfinite(value) else None for _, value in series.values
    ]
