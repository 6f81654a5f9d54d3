"""Charts of the reports. The page sets the colours of text, lines and background, light or dark."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from skewless.spark.report.html_page import Figure

HEAT = [[0, "#2c3e8f"], [0.5, "#e8e3d3"], [1, "#b3261e"]]
"""The middle of the scale is the average load; lower loads are blue, higher ones red."""
MAX_LABEL_CHARACTERS = 40
TIME = {"type": "date", "title": {"text": "event time (UTC)"}}


def _figure(traces: Sequence[Any], height: int, **layout: Any) -> Figure:
    margin = {"l": 64, "r": 16, "t": layout.pop("top", 36), "b": 48}
    return {"data": traces, "layout": {"height": height, "margin": margin, **layout}}


def label(text: str) -> str:
    """Return a text shortened and escaped, because plotly interprets some HTML."""
    short = text if len(text) <= MAX_LABEL_CHARACTERS else text[: MAX_LABEL_CHARACTERS - 1] + "…"
    return html.escape(short if short.isprintable() else ascii(short))


def heat_map(
    title: str, times: Sequence[int], shares: Sequence[Sequence[float]], rows: Sequence[Sequence[int]]
) -> Figure:
    """Return a heat map of the loads of workers (rows) in ticks (columns); `shares` are relative to the average."""
    trace = {
        "type": "heatmap",
        "x": times,
        "y": list(range(len(shares))),
        "z": shares,
        "customdata": rows,
        "zmin": 0,
        "zmax": 2,
        "colorscale": HEAT,
        "colorbar": {
            "title": {"text": "x average"},
            "thickness": 12,
            "tickvals": [0, 0.5, 1, 1.5, 2],
            "ticktext": ["0", "½", "1", "1½", "≥ 2"],
        },
        "hovertemplate": "%{x}<br>worker %{y}: %{customdata:,} rows, %{z:.2f} x average<extra></extra>",
    }
    return _figure(
        [trace],
        height=150 + min(360, 14 * max(6, len(shares))),
        title={"text": label(title), "font": {"size": 14}, "x": 0, "xref": "paper"},
        xaxis=TIME,
        yaxis={"title": {"text": "worker"}, "tickformat": "d", "rangemode": "tozero"},
    )


def lines(
    series: Mapping[str, Sequence[tuple[float, float | None]]],
    y_title: str,
    *,
    x_title: str = "",
    bound: tuple[str, float] | None = None,
    log: bool = False,
) -> Figure:
    """Return a chart with a line per name through (x, y) points. A y of None makes a gap.

    Without `x_title`, x is event time in ms. `bound`: name and y of a dashed horizontal line.
    """
    columns = {name: ([x for x, _ in points], [y for _, y in points]) for name, points in series.items()}
    traces = [
        {"type": "scatter", "x": x, "y": y, "name": label(name), "mode": "lines+markers", "marker": {"size": 5}}
        for name, (x, y) in columns.items()
    ]
    if bound is not None:
        x_values = sorted({x for xs, _ in columns.values() for x in xs})
        limit = {"type": "scatter", "x": x_values, "y": [bound[1]] * len(x_values), "name": bound[0], "mode": "lines"}
        traces.append({**limit, "line": {"dash": "dash", "color": "#808a96"}})
    log_axis = {"type": "log", "exponentformat": "power", "dtick": 1}
    return _figure(
        traces,
        height=360,
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.28, "x": 0},
        showlegend=True,
        xaxis={"title": {"text": x_title}} if x_title else TIME,
        yaxis={"title": {"text": y_title}, **(log_axis if log else {"rangemode": "tozero"})},
        top=16,
    )


def over_workers(
    runs: Sequence[Mapping[str, Any]], measure: str, y_title: str, bound: tuple[str, float] | None = None
) -> Figure:
    """Return a chart of a measure of runs over their number of workers, with a line per grouping."""
    series: dict[str, list[tuple[float, float | None]]] = {}
    for run in runs:
        series.setdefault(run["grouping"], []).append((run["workers"], run[measure]))
    return lines(series, y_title, x_title="workers", bound=bound)


def bars(series: Mapping[str, Mapping[str, float]], y_title: str) -> Figure:
    """Return a chart with groups of bars; `series`: values by group, by name of the colour."""
    traces = [
        {
            "type": "bar",
            "x": [label(group) for group in values],
            "y": list(values.values()),
            "name": label(name),
            "hovertemplate": "%{y:,.4~g}",
        }
        for name, values in series.items()
    ]
    return _figure(
        traces,
        height=340,
        barmode="group",
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.28, "x": 0},
        showlegend=True,
        xaxis={"type": "category"},  # otherwise groups such as 17 or 2026-01-01 are numbers or times
        yaxis={"title": {"text": y_title}, "rangemode": "tozero"},
        top=16,
    )
