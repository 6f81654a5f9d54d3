"""Generates the pictures of docs/images: runs a pipeline per grouping on skewed keys and renders its dashboards.

`PYTHONPATH=services:tests:. python tests/bench/render_dashboards.py [--seconds 90] [--out docs/images]`
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bench.drawing.panel_rendering import Span
from bench.drawing.render import draw
from helpers.docs_blocks import ROOT
from helpers.kafka import BASE, Feed, Sent, Source, zipf_records
from helpers.prometheus_api import Api
from helpers.waiting import until
from skewless.config import loader, topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.local.broker import Broker
from skewless.lab.local.prometheus import Prometheus
from skewless.lab.local.supervisor import Supervisor

GROUPINGS = ("key", "partial-key", "even")
PICTURES = {
    "dashboard-pipeline": ("skewless-pipeline", "even"),
    "dashboard-stage": ("skewless-stage", "even"),
    "dashboard-balance-key": ("skewless-balance", "key"),
    "dashboard-balance-even": ("skewless-balance", "even"),
    "dashboard-evaluation": ("skewless-evaluation", "even"),
}
WORKERS = 8


def main() -> None:
    """Run the pipelines, render the dashboards, and print the files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, Broker() as broker:
        folder = Path(temporary)
        with Prometheus(folder / "prometheus") as prometheus:
            api = Api(prometheus.url)
            began = time.time()
            spans = dict(runs(broker.bootstrap, folder, prometheus, given.seconds * given.rate, given.rate))
            for picture, (uid, grouping) in PICTURES.items():
                start, end = spans[grouping]
                compared = uid == "skewless-balance" and grouping == "even"
                shown = (began if compared else start, end)
                file = given.out / f"{picture}.png"
                found = json.loads((ROOT / "dashboards" / f"{uid}.json").read_text())
                draw(found, api, Span(*shown, chosen(grouping, shown[1] - shown[0])), file)
                print(json.dumps({"picture": str(file), "bytes": file.stat().st_size}))


def chosen(grouping: str, seconds: float) -> dict[str, str]:
    """Return the variables of a dashboard as a user would select them."""
    everything = dict.fromkeys(("job", "instance", "compared"), ".+") | dict.fromkeys(("cluster", "namespace"), ".*")
    return everything | {
        "pipeline": grouping,
        "stage": "worker",
        "__rate_interval": "10s",
        "__range": f"{int(seconds)}s",
    }


def runs(
    bootstrap: str, folder: Path, prometheus: Prometheus, records: float, rate: float
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Run the pipelines in turn over this many records; returns the start and the end of each."""
    for grouping in GROUPINGS:
        source = Source(bootstrap, 2)
        settings = pipeline(bootstrap, grouping, source.topic)
        topic_plan.apply(settings)
        file = folder / f"{grouping}.yaml"
        file.write_text(loader.dump(settings))
        supervisor = Supervisor(file, settings, drain=False, logs=folder / grouping)
        sent = live(zipf_records(int(records), 2, seed=3, keys=5_000, z=1.2))
        try:
            supervisor.start()
            prometheus.watch({f"{grouping}-{name}": each.metrics_port for name, each in supervisor.processes.items()})
            wait(supervisor, lambda: ready(Api(prometheus.url), supervisor, grouping), 300)  # noqa: B023 - called in this round
            start = time.time()
            with Feed(source, sent, rate):
                wait(supervisor, lambda: time.time() > start + records / rate, 900)  # noqa: B023 - as above
                end = time.time()  # the feed sends its last records at once
            yield grouping, (start, end)
        finally:
            supervisor.stop()


def live(records: Iterable[Sent]) -> Iterator[Sent]:
    """Yield records with the time at which they are read as their event time, as live data have it."""
    for partition, value in records:
        yield partition, re.sub(rb'"time":\d+', b'"time":%d' % (time.time_ns() // 1_000_000), value or b"")


def pipeline(bootstrap: str, grouping: str, topic: str) -> PipelineSettings:
    """Return the settings of the pipeline of a grouping."""
    own = {
        "name": grouping,
        "source": {"topic": topic},
        "kafka": {"bootstrap_servers": bootstrap},
        "router": {"grouping": grouping.replace("-", "_"), "workers": WORKERS},
        "observer": {"tick_s": 15},
        "event_time": {"allowed_lateness_s": 5, "idle_timeout_s": None},
    }
    return PipelineSettings.model_validate(BASE | own)


def wait(supervisor: Supervisor, holds: Callable[[], bool], limit_s: float) -> None:
    """Check the processes until a condition holds."""
    until(holds, each=lambda: supervisor.poll(time.monotonic()), limit_s=limit_s)


def ready(api: Api, supervisor: Supervisor, name: str) -> bool:
    """Return whether all processes are ready."""
    return bool(api.query(f'count(skewless_ready{{pipeline="{name}"}} == 1) == {len(supervisor.processes)}'))


if __name__ == "__main__":
    main()
