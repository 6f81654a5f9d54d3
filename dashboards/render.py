"""Draws dashboards from their JSON, with what their queries give in a real Prometheus. This is no Grafana.

`draw` asks every query of every panel as Grafana does, lays the panels out by `gridPos`, and takes a picture of the
page with Chromium. Panels look alike, not the same: axes, colours and legends are this module's own.
"""

from __future__ import annotations

import datetime as dt
import html
import math
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import plotly.graph_objects as go

from dashboards.live import Api, Series, filled

WIDTH, UNIT_PX, GAP_PX = 1500, 34, 6
STEPS = 120
DARK = {"paper_bgcolor": "#181b1f", "plot_bgcolor": "#181b1f", "font": {"color": "#ccccdc", "size": 11}}
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#e0b400", "#1f60c4", "#fa6400")
GRID = "#2c3235"
LIGHTS = {"green": "#73bf69", "yellow": "#f2cc0c", "red": "#f2495c"}
STYLE = """body{margin:0;background:#111217;font:12px sans-serif;color:#ccccdc;position:relative}
.p{position:absolute;background:#181b1f;border:1px solid #2c3235;overflow:hidden;box-sizing:border-box}
.r{position:absolute;font-size:15px;font-weight:bold;padding-top:10px}
.t{padding:5px 8px 0;font-weight:bold;white-space:nowrap}.n{text-align:center;padding-top:22px;font-size:34px}
.s{font-size:13px;color:#9a9aab}table{width:98%;margin:4px 1%;border-collapse:collapse;font-size:13px}
td,th{border-bottom:1px solid #2c3235;padding:5px;text-align:left}.w{padding:0 10px}"""


class Span(NamedTuple):
    """The time that is shown, in seconds, and what is chosen."""

    start: float
    end: float
    chosen: Mapping[str, str]

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, (self.end - self.start) / STEPS)


def draw(dashboard: Mapping[str, Any], api: Api, span: Span, picture: Path, most_rows: int | None = None) -> None:
    """Draw what a dashboard shows into a PNG, at most so many rows of it; folded rows stay folded."""
    shown = dashboard["panels"]
    rows = [number for number, panel in enumerate(shown) if panel["type"] == "row"]
    if most_rows is not None and most_rows < len(rows):
        shown = shown[: rows[most_rows]]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) * UNIT_PX + 30
    parts = [_panel(panel, api, span) for panel in shown]
    script = Path(go.__file__).parents[1] / "package_data" / "plotly.min.js"
    page = f"<html><head><meta charset='utf-8'><style>{STYLE}</style><script src='{script.as_uri()}'></script></head>"
    page += f"<body style='width:{WIDTH}px;height:{height}px'>{''.join(parts)}</body></html>"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        _photograph(file, picture, height)


def _photograph(page: Path, picture: Path, height: int) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("pictures need chromium or google-chrome on PATH")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
    ]
    command += [
        f"--window-size={WIDTH},{height}",
        "--virtual-time-budget=15000",
        f"--screenshot={picture}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603 - no shell


def _panel(panel: Mapping[str, Any], api: Api, span: Span) -> str:
    at = panel["gridPos"]
    box = (at["x"] * WIDTH / 24, at["y"] * UNIT_PX, at["w"] * WIDTH / 24 - GAP_PX, at["h"] * UNIT_PX - GAP_PX)
    place = "left:{:.0f}px;top:{:.0f}px;width:{:.0f}px;height:{:.0f}px".format(*box)
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        fold = "&#9656;" if panel.get("collapsed") else "&#9662;"
        return f"<div class='r' style='{place}'>{fold} {title}</div>"
    inner = _DRAWN[panel["type"]](panel, api, span, (int(box[2]), int(box[3]) - 24))
    return f"<div class='p' style='{place}'><div class='t'>{title}</div>{inner}</div>"


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
    figure = go.Figure()
    for number, (name, series) in enumerate(_asked(panel, api, span)):
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
    return _figure(figure, size, {"yaxis": _axis(panel), "showlegend": True})


def _heat(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> str:
    found = sorted(_asked(panel, api, span), key=lambda one: int(one[0]))
    times = sorted({at for _, series in found for at, _ in series.values})
    cells = [[dict(series.values).get(at) for at in times] for _, series in found]
    scale = panel["options"]["color"]
    form, factor = _form(panel)
    figure = go.Figure()
    figure.add_heatmap(
        x=[_clock(at) for at in times],
        y=[name for name, _ in found],
        z=[[None if value is None else value * factor for value in row] for row in cells],
        colorscale="Turbo",
        zmin=0,
        zmax=scale["max"] * factor if "max" in scale else None,
        colorbar={"ticksuffix": form, "thickness": 10},
    )
    return _figure(figure, size, {"yaxis": {"type": "category", "title": "worker", "gridcolor": GRID}})


def _bars(panel: Mapping[str, Any], api: Api, span: Span, size: tuple[int, int]) -> str:
    found = sorted(
        ((name, series.values[-1][1]) for name, series in _asked(panel, api, span)), key=lambda one: int(one[0])
    )
    colors = [_light(panel, value) for _, value in found]
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
        return "<div class='n s'>No data</div>"
    if mode == "name":
        now = [name for name, series in found if series.values[-1][0] > span.end - 2 * span.step]
        return f"<div class='n'>{html.escape(', '.join(now))}</div>"
    each = []
    for name, series in found:
        value = series.values[-1][1]
        label = f" <span class='s'>{html.escape(name)}</span>" if mode == "value_and_name" else ""
        each.append(f"<span style='color:{_light(panel, value)}'>{said(value, panel)}</span>{label}")
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


_DRAWN = {
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
    return [_clock(at) for at, _ in series.values], [
        value if math.isfinite(value) else None for _, value in series.values
    ]


def _clock(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, tz=dt.UTC)


def _axis(panel: Mapping[str, Any]) -> dict[str, Any]:
    defaults = panel["fieldConfig"]["defaults"]
    axis: dict[str, Any] = {"gridcolor": GRID, "rangemode": "tozero" if defaults.get("min") == 0 else "normal"}
    match defaults["unit"]:
        case "percentunit":
            axis["tickformat"] = ".0%"
        case "dateTimeAsIso":
            axis["type"] = "date"
        case "bytes":
            axis |= {"tickformat": ".3s", "ticksuffix": "B"}
        case "Bps":
            axis |= {"tickformat": ".3s", "ticksuffix": "B/s"}
        case "s":
            axis["ticksuffix"] = " s"
        case "cps":
            axis["ticksuffix"] = "/s"
    return axis


def _form(panel: Mapping[str, Any]) -> tuple[str, float]:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return {"percentunit": ("%", 100.0), "cps": ("/s", 1.0)}.get(unit, ("", 1.0))


def _light(panel: Mapping[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    reached = [step["color"] for step in steps if step.get("value") is None or value >= step["value"]]
    return LIGHTS[reached[-1]] if reached else LIGHTS["green"]


def said(value: float, panel: Mapping[str, Any]) -> str:
    """Write a value in the unit of its panel."""
    match panel["fieldConfig"]["defaults"]["unit"]:
        case "percentunit":
            return f"{value:.1%}"
        case "dateTimeAsIso":
            return _clock(value / 1000).strftime("%H:%M:%S")
        case "cps":
            return f"{value:,.0f}/s"
        case "none":
            return f"{value:.2f}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"
