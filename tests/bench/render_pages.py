"""Generates pictures of docs/images from pages: the heat map of the demo's report, and `skewless top --web`.

`PYTHONPATH=services:tests:. python tests/bench/render_pages.py [--report skewless-demo.html] [--out docs/images]`
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.render_dashboards import WORKERS, live, pipeline
from helpers.browser import open_page
from helpers.docs_blocks import ROOT
from helpers.kafka import Feed, Source, zipf_records
from skewless.config import loader, topic_plan
from skewless.lab.local.broker import Broker
from skewless.lab.local.supervisor import Supervisor

SECONDS, RATE = 45, 1000


def main() -> None:
    """Write the pictures, and print the files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=Path, help="report of a demo; without it, only the page of top is drawn")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    if given.report:
        draw_heatmap(given.report, given.out / "report-heatmap.png")
    draw_top(given.out / "top-web.png")


def draw_heatmap(report: Path, picture: Path) -> None:
    """Draw the first heat maps of a report, which show the load per worker over time, without the rest of the page."""
    text = report.read_text(encoding="utf-8")
    section = text.partition("<h2>Load per worker over time</h2>")[2].partition("<h2>")[0]
    charts = re.findall(r'id="(chart-\d+)" style="height:(\d+)px"', section)
    shown = ", ".join(f"#{name}" for name, _ in charts)
    # plotly measures texts in an element of its own.
    kept = f"main, section, {shown}, .chart *, #js-plotly-tester, #js-plotly-tester *"
    style = f"<style>body :not({kept}), .modebar {{ display: none !important }}</style>"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(text.replace("</head>", f"{style}</head>", 1), encoding="utf-8")
        height = sum(int(height) + 24 for _, height in charts) + 24
        open_page(page.as_uri(), picture, (1100, height))
    print(json.dumps({"picture": str(picture), "charts": len(charts)}))


def draw_top(picture: Path) -> None:
    """Run a pipeline with the grouping `key` on live data, and draw `skewless top --web`."""
    with tempfile.TemporaryDirectory() as temporary, Broker() as broker:
        folder, source = Path(temporary), Source(broker.bootstrap, 2)
        settings = pipeline(broker.bootstrap, "key", source.topic)
        topic_plan.apply(settings)
        file = folder / "key.yaml"
        file.write_text(loader.dump(settings))
        supervisor = Supervisor(file, settings, drain=False, logs=folder / "key")
        try:
            supervisor.start()
            with Feed(source, live(zipf_records(SECONDS * RATE, 2, seed=3, keys=5_000, z=1.2)), RATE):
                until = time.monotonic() + SECONDS * 0.8
                while time.monotonic() < until:
                    supervisor.poll(time.monotonic())
                    time.sleep(0.1)
                command = [sys.executable, "-m", "skewless", "top", "-f", str(file), "--web", "0"]
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
                    assert shown.stdout is not None
                    (url,) = re.findall(r"http://\S+", shown.stdout.readline())
                    open_page(url, picture, (1100, 900))
                    shown.send_signal(signal.SIGINT)
            print(json.dumps({"picture": str(picture), "workers": WORKERS}))
        finally:
            supervisor.stop()


if __name__ == "__main__":
    main()
