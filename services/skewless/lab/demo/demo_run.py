"""Runs the demo: a live stream with each grouping, then a data set with one pipeline, its counts and its table."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from skewless.errors import SkewlessError
from skewless.kafka.producer.bulk import BulkProducer, prepare_topic
from skewless.kafka.settings import KafkaSettings
from skewless.lab.datasets.produce_classified import input_rules, input_warnings
from skewless.lab.datasets.produce_run import run as produce
from skewless.lab.demo import demo_table
from skewless.lab.demo.console import DemoConsole, LiveProgress, RunProgress
from skewless.lab.demo.demo_cards import live_cards, result_cards, run_card
from skewless.lab.demo.demo_pipeline import drain
from skewless.lab.demo.demo_plan import COST_MS, SOURCE_PARTITIONS, STREAM_S, Plan, record_batches, window_for
from skewless.lab.demo.demo_report import NOTES, RunResult, comparison, comparison_title
from skewless.lab.demo.live_comparison import LiveResult, compare, measured
from skewless.lab.demo.prometheus_scraper import Snapshot
from skewless.lab.demo.read_results import read_counts, read_distribution, read_processing_s
from skewless.lab.demo.reference_count import ReferenceCounter, ReferenceResult
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker
from skewless.lab.local.prometheus import Prometheus
from skewless.lab.local.stage_host import StageHost, modules_of
from skewless.lab.local.supervisor import Event
from skewless.lab.progress import report_progress
from skewless.operations.live_page.cards import Card
from skewless.operations.live_page.server import LivePage, served
from skewless.spark.comparison import summary
from skewless.spark.evaluate_run import evaluated, write_report
from skewless.spark.pipeline_run import PipelineRun, run_of
from skewless.spark.report import require_packages
from skewless.topology import needed_stages, table_stage
from skewless.wire.window_counts import differences

PAGE_INTERVAL_S = 0.5
"""Interval at which a browser reads the page."""
SPARK_OPTIONS = {"master": "local[2]", "packages": (), "ship": False, "driver_memory": "1g", "ui": False}
SMALL_DATA_CONF = (
    "spark.sql.shuffle.partitions=2",
    "spark.sql.adaptive.enabled=false",
    "spark.sql.codegen.wholeStage=false",
)
"""Turns off optimizations of Spark that cost more than they save for so few records."""

QUERIES = {
    "rows per second of each worker": "sum by (pipeline, worker) (rate(skewless_router_rows_total[10s]))",
    "most loaded worker / average": "max by (pipeline) (skewless_router_max_over_avg_ratio)",
    "records not yet processed": "sum by (pipeline, stage) (skewless_consumer_lag_records)",
}
"""Useful Prometheus queries: title -> expression."""


class Demo:
    """One demo, with its files in `folder`. `seconds` is the duration of each step."""

    def __init__(self, plan: Plan, console: DemoConsole, folder: Path) -> None:
        self._plan = plan
        self._console = console
        self._folder = folder
        self.seconds: dict[str, float] = {}
        self.records = 0
        self.window_ms = 0
        self.reference = ReferenceResult()
        self.live_results: list[LiveResult] = []
        self.result: RunResult | None = None
        self._runs: list[PipelineRun] = []
        self._prometheus = Prometheus(folder / "prometheus") if plan.prometheus else None
        # All pipelines start as forks of one process, which imports the code of the stages once.
        stages = needed_stages(plan.pipeline("localhost:9092", 1, plan.database))
        self._host = StageHost(modules_of(stages), log=folder / "host.log")
        self._live_cards: list[Card] = []
        """Cards of the live stream, which stay on the page."""
        self._page = LivePage("skewless demo", PAGE_INTERVAL_S)
        self.report_file: Path | None = None
        self.pipeline_file: Path | None = None

    def run(self) -> bool:
        """Run all steps. Returns whether all counts are exact. Raises KeyboardInterrupt when the user interrupts it."""
        with served(self._page) as url:
            self._console.print_line(f"The pipelines are shown live at {url}", style="bold")
            return self._run()

    def _run(self) -> bool:
        broker = Broker(self._folder / "broker")
        dataset, *others, grouping = self._plan.dataset, *self._plan.groupings
        try:
            if self._prometheus:
                self._start(self._prometheus)
            with self._step("start Kafka", "Starting Kafka"):
                broker.start()
            together = f"{', '.join(others)} and {grouping} at the same time" if others else grouping
            with self._step("live stream", f"Running {together} on a live stream, workers take {COST_MS} ms per tuple"):
                self._compare(broker.bootstrap)
            with self._step(
                "write data set", f"Writing data set {dataset} to a topic ({SOURCE_PARTITIONS} partitions)"
            ):
                self._produce(broker.bootstrap)
            with self._step("count reference", "Counting the data set in this process, as the reference"):
                self._count()
            with self._step(
                "count with the pipeline",
                f"Counting it with {grouping}, one process per stage, without a cost per tuple",
            ):
                self.result = self._run_pipeline(broker.bootstrap)
            if self._plan.database is not None:
                with self._step("store in SQLite", "Storing the counts in a table of SQLite"):
                    self._store(self._plan.database, broker.bootstrap)
            if self._plan.report is not None:
                with self._step("evaluate with Spark", "Evaluating all runs with Spark"):
                    self._evaluate(self._plan.report)
            if self._prometheus and sys.stdin.isatty():
                self._console.print_line(
                    f"Prometheus keeps running at {self._prometheus.url} until you press Enter", style="bold"
                )
                sys.stdin.readline()
        finally:
            self._host.close()
            broker.stop()
            if self._prometheus:
                self._prometheus.stop()
        return self.result.exact

    def _compare(self, bootstrap: str) -> None:
        pipelines = self._plan.live_pipelines(bootstrap)
        progress = LiveProgress(self._plan.stream_rate, STREAM_S, self._plan.groupings)
        self._page.show(live_cards(progress))
        with self._console.live_comparison(progress) as update:

            def show(elapsed_s: float, snapshots: Mapping[str, Snapshot]) -> None:
                update(elapsed_s, snapshots)
                self._page.show(live_cards(progress))

            self._runs = compare(
                pipelines,
                self._plan.stream_rate,
                self._folder,
                self._host,
                on_snapshots=show,
                on_crash=self._print_event,
                on_start=self._watch,
            )
        self.live_results = [measured(run, each) for run, each in zip(self._runs, pipelines, strict=True)]
        self._live_cards = result_cards(self.live_results, progress.snapshots)
        self._page.show(self._live_cards)
        rates = ", ".join(f"{result.grouping} {result.tuples_per_s:,.0f}" for result in self.live_results)
        self._console.print_line(f"  {rates} tuples/s, of {self._plan.stream_rate:,.0f} that arrive")

    def _start(self, prometheus: Prometheus) -> None:
        with self._step("start Prometheus", "Starting Prometheus"):
            prometheus.start()
        self._console.print_line(f"  {prometheus.url} scrapes every process; useful queries:")
        for title, expr in QUERIES.items():
            self._console.print_line(f"  - {title}: {prometheus.page(expr)}")

    def _produce(self, bootstrap: str) -> None:
        kafka = KafkaSettings.model_validate({"bootstrap_servers": bootstrap})
        partitions = prepare_topic(kafka, self._plan.dataset, SOURCE_PARTITIONS)
        producer = BulkProducer(kafka, self._plan.dataset, partitions)
        sent = produce(record_batches(self._plan), producer, None, None, None)
        self.records = sent.records
        self.window_ms = window_for((sent.last_ms or 0) - (sent.first_ms or 0)) * 1000

    def _count(self) -> None:
        rules = input_rules(self._plan.pipeline("localhost:9092", self.window_ms / 1000), "source")
        counter = ReferenceCounter(rules.parsing, rules.event_times, self.window_ms, SOURCE_PARTITIONS)
        with report_progress("counting", self.records, time.monotonic()) as progress:
            for batch in record_batches(self._plan):
                counter.add(batch)
                progress(time.monotonic(), counter.records)
        self.reference = reference = counter.result
        self._console.print_line(
            f"  {self.records:,} records, {reference.tuples:,} tuples in {len(reference.windows)} windows of "
            f"{_duration(self.window_ms)}"
        )
        remedy = f"the file was detected as data set {self._plan.dataset}; correct them, or run your own pipeline"
        late_remedy = rules.late_remedy(reference.classified.max_lateness_ms)
        for warning in input_warnings(reference.classified.unreadable, remedy, reference.late, "tuples", late_remedy):
            self._console.print_line(f"  {warning}", style="yellow")

    def _run_pipeline(self, bootstrap: str) -> RunResult:
        settings = self._plan.pipeline(bootstrap, self.window_ms / 1000)
        window_ends = [window + self.window_ms for window in self.reference.windows]
        progress = RunProgress(self._plan.groupings[-1], self.reference.tuples, window_ends)
        with self._console.live(progress) as update:

            def show(now: float, snapshot: Snapshot) -> None:
                update(now, snapshot)
                self._page.show([*self._live_cards, run_card(self._plan.dataset, progress, now)])

            snapshots = drain(settings, self._folder, show, self._print_event, self._watch, host=self._host)
        seconds = time.monotonic() - progress.started
        self._runs.append(run_of(settings))
        counts = read_counts(settings)
        result = RunResult(
            grouping=self._plan.groupings[-1],
            counted=counts.total(),
            wrong=tuple(differences(self.reference.counts, counts)),
            seconds=seconds,
            counting_s=read_processing_s(settings),
            memory_bytes=max((snapshot.memory_bytes for snapshot in snapshots), default=0),
            distribution=read_distribution(settings).run,
        )
        self._console.print_line(f"  {result}", style=None if result.exact else "red")
        return result

    def _store(self, database: Path, bootstrap: str) -> None:
        """Run the last stage of the pipeline alone, after the run whose throughput is shown."""
        window_s, stored = self.window_ms / 1000, self._folder / "counts.db"
        settings = self._plan.pipeline(bootstrap, window_s, stored)
        replicas = settings.replicas.model_copy(
            update={stage.name: int(stage == table_stage(settings)) for stage in needed_stages(settings)}
        )
        drain(
            settings.model_copy(update={"replicas": replicas}),
            self._folder,
            lambda _now, _snapshot: None,
            self._print_event,
            host=self._host,
        )
        final = self._plan.pipeline(bootstrap, window_s, database)
        kafka = final.kafka.model_copy(update={"connect_timeout_s": 1.0})  # its broker will have ended
        self.pipeline_file = demo_table.keep(stored, database, final.model_copy(update={"kafka": kafka}))

    def _evaluate(self, report: Path) -> None:
        try:
            require_packages()
            with child_process.terminate_children_on_exit():
                conf = (*SMALL_DATA_CONF, f"spark.local.dir={self._folder / 'spark'}")
                evaluation = evaluated(self._runs, SPARK_OPTIONS | {"conf": conf})
            write_report(evaluation, report)
        except (SkewlessError, OSError) as error:
            self._console.print_line(f"  no report: {error}", style="red")
            return
        self.report_file = report

    def _print_event(self, event: Event) -> None:
        self._console.print_line(f"{event.name} {event.detail}")

    def _watch(self, ports: Mapping[str, int]) -> None:
        if self._prometheus:
            self._prometheus.watch(ports)

    @contextlib.contextmanager
    def _step(self, name: str, title: str) -> Iterator[None]:
        """Print the title and the duration of a step, and add the duration to `seconds`."""
        self._console.print_line(f"{title} ...", style="bold")
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 2)
        self._console.print_line(f"  {self.seconds[name]:.1f} s", style="dim")

    def report(self) -> None:
        """Print the results."""
        self._console.print_line()
        self._console.print_line(comparison_title(self._plan), style="bold")
        self._console.print_table(comparison(self.live_results))
        self._console.print_line(summary([result.compared for result in self.live_results]))
        self._console.print_line(NOTES, style="dim")
        self._console.print_line()
        self._console.print_line(
            f"Data set {self._plan.dataset}, counted with {self._plan.groupings[-1]}", style="bold"
        )
        self._console.print_line(f"{self.result}")
        if self.result is not None and self.result.exact:
            self._console.print_line(
                "Every key of every window has the count that the demo computed itself, without Kafka.", "dim"
            )
        if self._plan.database is not None and self.pipeline_file is not None:
            self._print_table(self._plan.database, self.pipeline_file)
        if self.report_file is not None:
            self._console.print_line(f"Report with charts: {self.report_file.resolve()}", style="bold")
        steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        self._console.print_line(f"Seconds: {steps}; total {sum(self.seconds.values()):.0f}", style="dim")

    def _print_table(self, database: Path, pipeline_file: Path) -> None:
        """Print the most frequent keys of the table, each time after the command that shows them."""
        sql = f'sqlite3 {shlex.quote(str(database))} "{demo_table.query(self._plan.table)}"'
        results = shlex.join(demo_table.results_command(pipeline_file))
        for command, lines in (
            (sql, demo_table.rows(database, self._plan.table)),
            (results, demo_table.results(pipeline_file)),
        ):
            self._console.print_line()
            self._console.print_command(command)
            for line in lines:
                self._console.print_line(line)
        self._console.print_line()

    def to_json(self) -> dict[str, object]:
        """Return the results of all pipelines as a JSON object."""
        return {
            "dataset": self._plan.dataset,
            "records": self.records,
            "tuples": self.reference.tuples,
            "late_tuples": self.reference.late,
            "late_by_s": self.reference.classified.max_lateness_ms / 1000,
            "unreadable_records": self.reference.classified.unreadable.total(),
            "window_s": self.window_ms / 1000,
            "windows": len(self.reference.windows),
            "workers": self._plan.workers,
            "exact": self.result is not None and self.result.exact,
            "seconds": self.seconds,
            "report": None if self.report_file is None else str(self.report_file.resolve()),
            "database": None if self._plan.database is None else str(self._plan.database.resolve()),
            "run": None if self.result is None else self.result.to_json(),
            "stream_tuples_per_s": self._plan.stream_rate,
            "worker_tuples_per_s": self._plan.worker_rate,
            "groupings": {result.grouping: asdict(result) for result in self.live_results},
        }


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
