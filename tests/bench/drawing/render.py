"""Renders pictures of dashboards from their JSON and the data of a real Prometheus, without Grafana.

`draw` runs every query of every panel as Grafana does, lays the panels out by `gridPos`, and takes a screenshot of the
page with Chromium. The panels only resemble Grafana's: this module has its own axes, colours and legends.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from bench.drawing.panel_rendering import RENDERERS, Span
from helpers.prometheus_api import Api, substitute_variables
from skewless.spark.report.html_page import template_environment

WIDTH, UNIT_PX, GAP_PX = 1500, 34, 6
_ENVIRONMENT = template_environment(Path(__file__).parent)


def draw(dashboard: Mapping[str, Any], api: Api, span: Span, picture: Path) -> None:
    """Write a picture of a dashboard as PNG. Folded rows stay folded."""
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * UNIT_PX + 30
    span = span._replace(events=events(dashboard, api, span))
    script = Path(go.__file__).parents[1] / "package_data" / "plotly.min.js"
    page = _ENVIRONMENT.get_template("picture.html.j2").render(
        panels=[_placed(panel, api, span) for panel in panels], script=script.as_uri(), width=WIDTH, height=height
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        _take_screenshot(file, picture, height)


def events(dashboard: Mapping[str, Any], api: Api, span: Span) -> list[tuple[float, str]]:
    """Return the start times of a dashboard's events in s, and their colours.

    An event starts at a point of its annotation's series that does not directly follow another point.
    """
    starts = []
    for event in dashboard["annotations"].get("list", ()):
        expr = substitute_variables(event["expr"], span.variables)
        for series in api.query_range(expr, span.start, span.end, span.step):
            times = [timestamp_s for timestamp_s, _ in series.values]
            for previous, timestamp_s in zip([0.0, *times], times, strict=False):
                if timestamp_s - previous > 1.5 * span.step:
                    starts.append((timestamp_s, event["iconColor"]))
    return starts


def _take_screenshot(page: Path, picture: Path, height: int) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("cannot take screenshots: install chromium or google-chrome, or put one of them on PATH")
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
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def _placed(panel: Mapping[str, Any], api: Api, span: Span) -> dict[str, Any]:
    """Return the title, the place and the content of a panel. A row has no content."""
    grid = panel["gridPos"]
    left, top = grid["x"] * WIDTH / 24, grid["y"] * UNIT_PX
    width, height = grid["w"] * WIDTH / 24 - GAP_PX, grid["h"] * UNIT_PX - GAP_PX
    is_row = panel["type"] == "row"
    return {
        "title": panel["title"],
        "style": f"left:{left:.0f}px;top:{top:.0f}px;width:{width:.0f}px;height:{height:.0f}px",
        "collapsed": panel.get("collapsed", False),
        "content": None if is_row else RENDERERS[panel["type"]](panel, api, span, (int(width), int(height) - 24)),
    }
