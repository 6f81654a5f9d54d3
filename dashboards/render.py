"""Draws dashboards from their JSON, with what their queries give in a real Prometheus. This is no Grafana.

`draw` asks every query of every panel as Grafana does, lays the panels out by `gridPos`, and takes a picture of the
page with Chromium. Panels look alike, not the same: axes, colours and legends are this module's own.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.drawn import DRAWN, Span
from dashboards.live import Api, filled

WIDTH, UNIT_PX, GAP_PX = 1500, 34, 6
STYLE = """body{margin:0;background:#111217;font:12px sans-serif;color:#ccccdc;position:relative}
.p{position:absolute;background:#181b1f;border:1px solid #2c3235;overflow:hidden;box-sizing:border-box}
.r{position:absolute;font-size:15px;font-weight:bold;padding-top:10px}
.t{padding:5px 8px 0;font-weight:bold;white-space:nowrap}.n{text-align:center;padding-top:22px;font-size:34px}
.s{font-size:13px;color:#9a9aab}table{width:98%;margin:4px 1%;border-collapse:collapse;font-size:13px}
td,th{border-bottom:1px solid #2c3235;padding:5px;text-align:left}.w{padding:0 10px}"""


def draw(dashboard: Mapping[str, Any], api: Api, span: Span, picture: Path, most_rows: int | None = None) -> None:
    """Draw what a dashboard shows into a PNG, at most so many rows of it; folded rows stay folded."""
    shown = dashboard["panels"]
    rows = [number for number, panel in enumerate(shown) if panel["type"] == "row"]
    if most_rows is not None and most_rows < len(rows):
        shown = shown[: rows[most_rows]]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) * UNIT_PX + 30
    span = span._replace(events=events(dashboard, api, span))
    parts = [_panel(panel, api, span) for panel in shown]
    script = Path(go.__file__).parents[1] / "package_data" / "plotly.min.js"
    page = f"<html><head><meta charset='utf-8'><style>{STYLE}</style><script src='{script.as_uri()}'></script></head>"
    page += f"<body style='width:{WIDTH}px;height:{height}px'>{''.join(parts)}</body></html>"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        _photograph(file, picture, height)


def events(dashboard: Mapping[str, Any], api: Api, span: Span) -> list[tuple[float, str]]:
    """Find when the events of a dashboard began: the first points of what its annotations give."""
    found = []
    for event in dashboard["annotations"].get("list", ()):
        for series in api.query_range(filled(event["expr"], span.chosen), span.start, span.end, span.step):
            times = [at for at, _ in series.values]
            first = [at for before, at in zip([0.0, *times], times, strict=False) if at - before > 1.5 * span.step]
            found += [(at, event["iconColor"]) for at in first]
    return found


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
    inner = DRAWN[panel["type"]](panel, api, span, (int(box[2]), int(box[3]) - 24))
    return f"<div class='p' style='{place}'><div class='t'>{title}</div>{inner}</div>"
