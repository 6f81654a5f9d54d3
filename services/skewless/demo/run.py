"""The demo from beginning to end: broker, data, the answer, a pipeline per grouping, and the comparison."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from skewless.commands.evaluate import evaluated
from skewless.commands.produce_judged import notes
from skewless.commands.produce_run import run as produce
from skewless.commands.progress import shown
from skewless.datasets import find_dataset
from skewless.demo.expected import Counting, Expected, differences
from skewless.demo.pipeline import drain
from skewless.demo.plan import SOURCE_PARTITIONS, Plan, chunks, window_for
from skewless.demo.report import LEGEND, Outcome, comparison, top_keys
from skewless.demo.results import read_counts, read_distribution, read_seconds
from skewless.demo.screen import Run, Screen
from skewless.errors import SkewlessError
from skewless.local import process
from skewless.local.broker import Broker
from skewless.local.prometheus import Prometheus
from skewless.local.supervisor import Event
from skewless.settings import PipelineSettings
from skewless.splitter.formats import create_format
from skewless.transport.sender import Sender, prepare_topic
from skewless.transport.settings import KafkaSettings

SPARK = {"master": "local[2]", "packages": (), "memory": "1g", "ui": False}
SMALL = ("spark.sql.shuffle.partitions=2", "spark.sql.adaptive.enabled=false", "spark.sql.codegen.wholeStage=false")
"""What Spark needs not do for so few records: it would cost more than it saves."""


LOOK_AT = {
    "tuples per second of each worker": "sum by (pipeline, worker) (rate(skewless_router_tuples_total[10s]))",
    "fullest worker / average": "max by (pipeline) (skewless_router_max_over_avg_ratio)",
    "records not yet processed": "sum by (pipeline, stage) (skewless_lag_records)",
}
"""What to see in Prometheus: title -> expression."""


class Demo:
    """One demo, whose files are in `folder`; `seconds` tells how long each part took."""

    def __init__(self, plan: Plan, screen: Screen, folder: Path) -> None:
        self._plan = plan
        self._screen = screen
        self._folder = folder
        self._dataset = find_dataset(plan.dataset)
        self.seconds: dict[str, float] = {}
        self.records = 0
        self.window_ms = 0
        self.expected = Expected()
        self.outcomes: list[Outcome] = []
        self._pipelines: list[PipelineSettings] = []
        self._prometheus = Prometheus(folder / "prometheus") if plan.prometheus else None
        self.report_file: Path | None = None

    def run(self) -> bool:
        """Do everything and return whether all counts are exact; raises KeyboardInterrupt when the user stops it."""
        broker = Broker(self._folder / "broker")
        try:
            if self._prometheus:
                self._start(self._prometheus)
            with self._part("kafka", "Starting Kafka"):
                broker.start()
            with self._part(
                "feed", f"Writing data set {self._plan.dataset} to a topic ({SOURCE_PARTITIONS} partitions)"
            ):
                self._feed(broker.bootstrap)
            with self._part("answer", "Counting it in this process, to know the answer"):
                self._count()
            for number, grouping in enumerate(self._plan.groupings, 1):
                title = f"{grouping} ({number} of {len(self._plan.groupings)})"
                with self._part(grouping, f"Counting it by pipeline {title}, a process per stage"):
                    self._pipeline(title, grouping, broker.bootstrap)
            if self._plan.report is not None:
                with self._part("evaluate", "Measuring every tick of it with Spark"):
                    self._evaluate(self._plan.report)
            if self._prometheus and sys.stdin.isatty():
                self._screen.say(f"Prometheus has it all, at {self._prometheus.url}; Enter ends it", style="bold")
                sys.stdin.readline()
        finally:
            broker.stop()
            if self._prometheus:
                self._prometheus.stop()
        return all(outcome.exact for outcome in self.outcomes)

    def _start(self, prometheus: Prometheus) -> None:
        with self._part("prometheus", "Starting Prometheus"):
            prometheus.start()
        self._screen.say(f"  {prometheus.url} watches every process; look at")
        for title, expr in LOOK_AT.items():
            self._screen.say(f"  - {title}: {prometheus.page(expr)}")

    def _feed(self, bootstrap: str) -> None:
        kafka = KafkaSettings.model_validate({"bootstrap_servers": bootstrap})
        partitions = prepare_topic(kafka, self._plan.topic, SOURCE_PARTITIONS)
        sender = Sender(kafka, self._plan.topic, partitions)
        sent = produce(chunks(self._plan), sender, self._dataset.records, None, None)
        if sent.interrupted:
            raise KeyboardInterrupt
        self.records = sent.records
        self.window_ms = window_for((sent.last_ms or 0) - (sent.first_ms or 0)) * 1000

    def _count(self) -> None:
        counting = Counting(create_format(self._dataset.splitter()), self.window_ms, SOURCE_PARTITIONS)
        with shown("counting", self.records, time.monotonic()) as progress:
            for chunk in chunks(self._plan):
                counting.add(chunk)
                progress.update(time.monotonic(), counting.records)
        self.expected = counting.result
        found = self.expected
        self._screen.say(
            f"  {self.records:,} records, {found.tuples:,} tuples in {len(found.windows)} windows of "
            f"{_duration(self.window_ms)}"
        )
        remedy = f"the file was taken for data set {self._plan.dataset}; correct them, or run a pipeline of your own"
        for note in notes(found.unreadable, found.late, "tuples", found.behind_ms, remedy):
            self._screen.say(f"  {note}", style="yellow")

    def _pipeline(self, title: str, grouping: str, bootstrap: str) -> None:
        settings = self._plan.pipeline(grouping, bootstrap, self.window_ms / 1000)
        self._pipelines.append(settings)
        ends = [window + self.window_ms for window in self.expected.windows]
        run = Run(title, self.expected.tuples, ends)
        with self._screen.live(run) as show:
            snapshots = drain(settings, self._folder, show, self._tell, self._watch)
        seconds = time.monotonic() - run.started
        counts = read_counts(settings)
        outcome = Outcome(
            grouping=grouping,
            counted=counts.total(),
            wrong=tuple(differences(self.expected.cells, counts)),
            seconds=seconds,
            counting_s=read_seconds(settings),
            memory_bytes=max((snapshot.memory_bytes for snapshot in snapshots), default=0),
            distribution=read_distribution(settings).run,
        )
        self.outcomes.append(outcome)
        self._screen.say(f"  {outcome}", style=None if outcome.exact else "red")

    def _evaluate(self, report: Path) -> None:
        out = self._folder / "evaluation"
        out.mkdir()
        try:
            with process.ended_afterwards():
                evaluated(self._pipelines, out, SPARK | {"conf": (*SMALL, f"spark.local.dir={out}")})
            shutil.copyfile(out / "report.html", report)
        except (SkewlessError, OSError) as error:
            self._screen.say(f"  no report: {error}", style="red")
            return
        self.report_file = report

    def _tell(self, event: Event) -> None:
        self._screen.say(f"{event.name} {event.detail}")

    def _watch(self, ports: Mapping[str, int]) -> None:
        if self._prometheus:
            self._prometheus.watch(ports)

    @contextlib.contextmanager
    def _part(self, name: str, title: str) -> Iterator[None]:
        self._screen.say(f"{title} ...", style="bold")
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 2)
        self._screen.say(f"  {self.seconds[name]:.1f} s", style="dim")

    def report(self) -> None:
        """Show the results."""
        self._screen.draw(top_keys(self.expected.cells, self.expected.windows))
        self._screen.draw(comparison(self.outcomes))
        self._screen.say(LEGEND, style="dim")
        if self.report_file is not None:
            self._screen.say(f"Report, with charts: {self.report_file.resolve()}", style="bold")
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        self._screen.say(f"Seconds: {parts}; {sum(self.seconds.values()):.0f} in all")

    def facts(self) -> dict[str, object]:
        """Everything as a JSON object."""
        return {
            "dataset": self._plan.dataset,
            "records": self.records,
            "tuples": self.expected.tuples,
            "late_tuples": self.expected.late,
            "late_by_s": self.expected.behind_ms / 1000,
            "unreadable_records": self.expected.unreadable.total(),
            "window_s": self.window_ms / 1000,
            "windows": len(self.expected.windows),
            "workers": self._plan.workers,
            "exact": all(outcome.exact for outcome in self.outcomes),
            "seconds": self.seconds,
            "report": None if self.report_file is None else str(self.report_file.resolve()),
            "groupings": {outcome.grouping: outcome.facts() for outcome in self.outcomes},
        }


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
