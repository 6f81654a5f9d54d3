"""Prometheus and a running pipeline: every expression has a result, values are correct, and alerts fire."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import skewless
from dashboards.generate.alerts import ALERTS
from dashboards.generate.balance import DECIDED, RESIZED
from helpers import tools
from helpers.docs_blocks import ROOT
from helpers.kafka import (
    RANK_SINKS,
    REPARTITIONING,
    SINK_MODES,
    STAGES,
    START_MS,
    Feed,
    Pipeline,
    Record,
    Sent,
    Source,
    zipf_records,
)
from helpers.prometheus_api import Api, PanelQuery, expressions, substitute_variables
from helpers.waiting import until
from skewless.lab.local.prometheus import Prometheus
from skewless.lab.local.supervisor import Supervisor
from skewless.wire.columns import read_table

LIMIT_S = 240.0
"""Deadline in s when many tests run at once. On two idle cores the whole test takes about 60 s."""
RECORDS = 12_000
STIR = 2_000
"""Records of a new hot key, to which the grouping assigns more workers."""
RATE_INTERVAL = "10s"
"""Time in s that covers several scrapes, even if some are slow on a busy machine."""
# A late scrape makes the series of its process vanish for a while. So the last values count: they do not change.
OTHERS = "sink|join|left|right|enricher|ranker|ranksink"
TUPLES = f'sum by (stage) (last_over_time(skewless_tuples_total{{stage!~"{OTHERS}"}}[60s]))'
"""Tuples by stage. The sinks and the ranker read results, and the other stages write no tuples."""
COUNTING = {*STAGES, "flusher"}
"""Stages that process tuples."""
RUNNING = {*STAGES, *SINK_MODES, *RANK_SINKS, *REPARTITIONING, "join", "ranker", "enricher"}
LATER_MS = START_MS + 3_600_000
DASHBOARDS = [json.loads(path.read_text()) for path in sorted((ROOT / "dashboards").glob("*.json"))]
OPTIONAL = {"cluster", "namespace"}
"""Variables of labels that Prometheus adds on Kubernetes only."""
TARGETS = [pytest.param(requested, id=requested.where) for found in DASHBOARDS for requested in expressions(found)]
VARIABLES = [
    pytest.param(each["query"]["query"], id=f"{found['uid']}-{each['name']}")
    for found in DASHBOARDS
    for each in found["templating"]["list"]
    if each["type"] == "query" and each["name"] not in OPTIONAL
]
RECORDED = re.compile(r"\w+:skewless_\w+:\w+")
SELECTOR = re.compile(r"\bskewless_\w+(?:\{[^}]*\})?")
SPLIT = (
    'sum by (stage) (skewless_consumed_records_total{stage="splitter"})'
    ' and on () sum(skewless_consumer_lag_records{stage="splitter"}) == 0'
)
SETTINGS: dict[str, Mapping[str, Any]] = {
    "router": {"grouping": "even", "workers": 4},
    "observer": {"tick_s": 15},
    "aggregator": {"top": {"n": 3, "by": "count"}},
    "event_time": {"allowed_lateness_s": 20, "idle_timeout_s": None},
    "transport": {"commit_interval_s": 1.0, "transaction_timeout_s": 120},
}


@dataclass
class Watched:
    """Observations of one pipeline during a sequence of events."""

    api: Api
    pipeline: Pipeline
    supervisors: list[Supervisor]
    """Of the pipeline, and of each stage that writes to a database."""
    began: float = field(default_factory=time.time)
    firing: dict[str, set[str]] = field(default_factory=dict)
    """Alerts that fired, by the event before them."""
    tuples: dict[str, int] = field(default_factory=dict)
    """Tuples by stage, when the pipeline is idle."""
    repeated: set[str] = field(default_factory=set)
    """Stages that repeated work, for example because of a slow broker. Their counters count this work twice."""
    sent: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    """Tuples by worker in the metrics of the router and of the workers, when the pipeline is idle."""
    held: dict[int, int] = field(default_factory=dict)
    """Tuples by partition of the topic worker-input, at the same time."""
    pages: dict[str, str] = field(default_factory=dict)
    """/metrics of every process, at the same time."""

    @property
    def ports(self) -> dict[str, int]:
        """Metrics port by name of the process."""
        processes = [replica for supervisor in self.supervisors for replica in supervisor.processes.values()]
        return {replica.name: replica.metrics_port for replica in processes}

    def poll(self) -> None:
        """Restart processes that have ended."""
        for supervisor in self.supervisors:
            supervisor.poll(time.monotonic())

    def by(self, label: str, expr: str) -> dict[str, int]:
        """Evaluate an expression now; returns its values by one label."""
        return {series.labels[label]: int(series.values[-1][1]) for series in self.api.query(expr)}

    def history(self, expr: str) -> int:
        """Count the series that an expression has had since the start of the test."""
        chosen = dict.fromkeys(("job", "instance", "compared", "stage"), ".+") | {"pipeline": self.pipeline.name}
        chosen |= dict.fromkeys(("cluster", "namespace"), ".*")
        now = time.time()
        chosen |= {"__rate_interval": RATE_INTERVAL, "__range": f"{int(now - self.began)}s"}
        return len(self.api.query_range(substitute_variables(expr, chosen), self.began, now, 1))


def shortened(folder: Path) -> list[Path]:
    """Copy the rules with seconds instead of minutes: 2 s per minute of a range, 1 s for every `for`."""
    for name in ("rules.yaml", "alerts.yaml"):
        text = (ROOT / "dashboards" / name).read_text()
        text = re.sub(r"(\[|offset )(\d+)m\b", lambda found: f"{found[1]}{2 * int(found[2])}s", text)
        (folder / name).write_text(re.sub(r"for: \d+m", "for: 1s", text))
    return [folder / "rules.yaml", folder / "alerts.yaml"]


@dataclass
class Records:
    """Writes records to two partitions: a thousand even keys, and one hot key with its own share."""

    hot: float = 0.0
    ended: bool = False

    def close(self) -> None:
        """Stop writing."""
        self.ended = True

    def __iter__(self) -> Iterator[Sent]:
        for number in itertools.count():
            if self.ended:
                return
            key = "hot" if number % 100 < self.hot * 100 else f"k{number * 7 % 1009}"
            for partition in (0, 1):
                yield partition, json.dumps({"key": key, "value": 1, "time": LATER_MS + 20 * number}).encode()


@pytest.fixture(scope="module")
def watched(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Run a pipeline through all events, and return the observations."""
    tools.prometheus()
    folder = tmp_path_factory.mktemp("watch")
    source = Source(broker, 2)
    sides = {side: Source(broker, 2) for side in ("left", "right")}
    pipeline = Pipeline(broker, folder, source, **SETTINGS, join=join_of(sides))
    with (
        pytest.MonkeyPatch.context() as patch,
        Prometheus(folder / "prometheus", scrape_s=0.5, rules=shortened(folder)) as prometheus,
    ):
        patch.setenv("PYTHONPATH", str(Path(skewless.__file__).parents[1]))
        with (
            pipeline.running() as supervisor,
            pipeline.running_sinks() as sinks,
            pipeline.running_repartition() as repartition,
            pipeline.running_enricher() as enricher,
        ):
            seen = Watched(Api(prometheus.url), pipeline, [supervisor, *sinks, repartition, enricher])
            prometheus.watch(seen.ports)
            look_at_rest(seen, source)
            resize(seen, supervisor)
            disturb(seen, source, sides["left"], supervisor)
        # Prometheus keeps what it has scraped, so nothing else has to run any longer.
        yield seen


def join_of(sides: Mapping[str, Source]) -> dict[str, Any]:
    """Write pairs, unmatched and late records of two topics, and return the settings of their join."""
    for side, topic in sides.items():
        # Of ten left records, nine have a right one. The last record is late.
        events = [(number, number) for number in range(100) if side == "left" or number % 10]
        send_ids(topic, [*events, (100, 5_000), (101, 0)])
    fields = {"id": {"field": "id"}, "time": {"field": "time"}}
    return {side: {"topic": topic.topic, **fields} for side, topic in sides.items()} | {"apart_s": 1}


def send_ids(topic: Source, events: Iterable[tuple[int, int]]) -> None:
    """Write records with these ids and times to both partitions of a joined topic."""
    records = ((partition, f"{partition}-{number}", START_MS + time) for number, time in events for partition in (0, 1))
    topic.send_complete(
        Record(partition, 0, at, name.encode(), json.dumps({"id": name, "time": at}).encode(), {})
        for partition, name, at in records
    )


def waiting(seen: Watched) -> Callable[[Callable[[], bool]], None]:
    def look_after() -> None:
        seen.poll()
        time.sleep(0.1)

    return lambda holds: until(holds, each=look_after, limit_s=LIMIT_S)


def make_decisions(seen: Watched, source: Source) -> int:
    """Send records of one new hot key per second until a scrape shows more decisions; returns the number of records.

    Prometheus computes an increase only for a counter that it has scraped before.
    """
    wait = waiting(seen)
    wait(lambda: bool(seen.api.query("skewless_router_key_worker_changes_total")))
    keys = itertools.count()

    def stir() -> None:
        seen.poll()
        entry = json.dumps({"key": f"hot-{next(keys)}", "value": 1, "time": START_MS}).encode()
        source.send((number % 2, entry) for number in range(STIR))
        time.sleep(1.0)

    until(lambda: seen.history(DECIDED) > 0, each=stir, limit_s=LIMIT_S)
    return next(keys) * STIR


def look_at_rest(seen: Watched, source: Source) -> None:
    """Send this many records, and return the metrics after all of them are processed."""
    sent = make_decisions(seen, source) + RECORDS
    source.send(zipf_records(RECORDS, 2, seed=7))
    wait = waiting(seen)
    wait(lambda: seen.by("stage", SPLIT).get("splitter", 0) >= sent)
    tuples = seen.pipeline.tuples("tuples")

    def at_rest() -> bool:
        shown = seen.by("stage", TUPLES)
        processed = shown.keys() == COUNTING and min(shown.values()) >= tuples
        return processed and bool(seen.api.query("sum(skewless_consumer_lag_records) == 0"))

    wait(at_rest)
    wait(lambda: bool(seen.api.query("skewless_observer_tick_tuples > 0 and on () skewless_aggregator_keys > 0")))
    idle = "sum by (stage) (increase(skewless_tuples_total[4s])) == 0"
    commits = "min by (stage) (changes(skewless_commit_duration_seconds_count[4s])) > 0"
    wait(lambda: len(seen.api.query(f"{idle} and on (stage) {commits}")) == len(RUNNING))
    seen.tuples = seen.by("stage", TUPLES)
    seen.repeated = set(seen.by("stage", "sum by (stage) (last_over_time(skewless_recoveries_total[60s])) > 0"))
    seen.sent = by_worker(seen, "skewless_router_tuples_total")
    seen.used = by_worker(seen, "skewless_worker_tuples_total")
    seen.held = in_worker_input(seen.pipeline)
    for name, port in seen.ports.items():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            seen.pages[name] = answer.read().decode()


def by_worker(seen: Watched, name: str) -> dict[int, int]:
    loads = seen.by("worker", f"sum by (worker) (last_over_time({name}[60s]))")
    return {int(worker): tuples for worker, tuples in loads.items() if tuples}


def in_worker_input(pipeline: Pipeline) -> dict[int, int]:
    held: Counter[int] = Counter()
    for record in pipeline.read("worker-input"):
        if record.value:
            held[record.partition] += read_table(record.value).num_rows
    return dict(held)


def resize(seen: Watched, supervisor: Supervisor) -> None:
    """Change W while the pipeline runs, then change the grouping, which requires a restart of the router."""
    document = json.loads(seen.pipeline.file.read_text())
    wait = waiting(seen)
    for workers in itertools.cycle((5, 4)):
        document["router"]["workers"] = workers
        seen.pipeline.file.write_text(json.dumps(document))
        wait(lambda expected=workers: bool(seen.api.query(f"skewless_router_workers == {expected}")))  # type: ignore[misc]
        if workers == 5 and seen.history(RESIZED):
            break
    document["router"]["grouping"] = "key"
    seen.pipeline.file.write_text(json.dumps(document))
    supervisor.kill("router-0")
    wait(
        lambda: bool(
            seen.api.query('skewless_router_info{grouping="key"} and on () (skewless_ready{stage="router"} == 1)')
        )
    )


@dataclass(frozen=True)
class Alerts:
    """Alerts that must fire after an event, and alerts that must not."""

    fires: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()

    def hold(self, firing: set[str]) -> bool:
        return self.fires <= firing and not self.quiet & firing


EXPECTED = {
    "even load": Alerts(
        quiet=frozenset(
            {"SkewlessWorkerOverloaded", "SkewlessDeadLetters", "SkewlessWorkerMissing", "SkewlessProcessHung"}
        )
    ),
    "hot key": Alerts(
        fires=frozenset({"SkewlessWorkerOverloaded"}),
        quiet=frozenset({"SkewlessDeadLetters", "SkewlessWorkerMissing"}),
    ),
    "poisoned input": Alerts(fires=frozenset({"SkewlessDeadLetters"}), quiet=frozenset({"SkewlessWorkerMissing"})),
    "worker stopped": Alerts(fires=frozenset({"SkewlessWorkerMissing", "SkewlessStageDown"})),
    "worker started": Alerts(quiet=frozenset({"SkewlessWorkerMissing", "SkewlessStageDown", "SkewlessJoinStopped"})),
    "right topic silent": Alerts(fires=frozenset({"SkewlessJoinStopped"})),
}


def disturb(seen: Watched, source: Source, left: Source, supervisor: Supervisor) -> None:
    """Send a hot key, write invalid records, stop the worker, start it again, and let a left record wait."""
    wait = waiting(seen)
    flows = "sum(rate(skewless_router_tuples_total[4s])) > 0 and on () sum(rate(skewless_worker_tuples_total[4s])) > 0"
    records = Records()

    def settle(done: str, wait: Callable[[Callable[[], bool]], None]) -> None:
        def holds() -> bool:
            seen.firing[done] = seen.api.firing()
            return EXPECTED[done].hold(seen.firing[done])

        wait(holds)

    with Feed(source, records, rate=400), contextlib.closing(records):
        wait(lambda: bool(seen.api.query(flows)))
        settle("even load", wait)
        records.hot = 0.6
        settle("hot key", wait)
        source.send([(0, b"no JSON at all"), (1, b"{")])
        settle("poisoned input", wait)
        supervisor.kill("worker-0")
        settle("worker stopped", lambda holds: until(holds, limit_s=LIMIT_S))  # or the supervisor restarts it
        settle("worker started", wait)
        send_ids(left, [(102, 6_000)])
        settle("right topic silent", wait)


pytestmark = [pytest.mark.timeout(1800), pytest.mark.thorough]


def test_monitoring_stage_tuples_equal_the_tuples_in_the_topics(watched: Watched) -> None:
    there_are = sum(watched.held.values())
    assert watched.tuples.keys() == COUNTING
    for stage, tuples in watched.tuples.items():
        assert tuples == there_are or (stage in watched.repeated and tuples > there_are)


def test_monitoring_worker_load_equals_the_tuples_in_its_partition(watched: Watched) -> None:
    for stage, shown in (("router", watched.sent), ("worker", watched.used)):
        assert shown.keys() == watched.held.keys()
        twice = stage in watched.repeated
        assert all(shown[worker] == held or (twice and shown[worker] > held) for worker, held in watched.held.items())


def test_monitoring_metrics_pages_pass_promtool(watched: Watched) -> None:
    assert {name.partition("-")[0] for name in watched.pages} == RUNNING
    for page in watched.pages.values():
        done = subprocess.run(
            [tools.promtool(), "check", "metrics"],
            input=page,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("requested", TARGETS)
def test_monitoring_dashboard_expression_returns_data(watched: Watched, requested: PanelQuery) -> None:
    assert watched.history(requested.expr) > 0


@pytest.mark.parametrize("query", VARIABLES)
def test_monitoring_dashboard_variable_has_values(watched: Watched, query: str) -> None:
    chosen = dict.fromkeys(OPTIONAL, ".*") | {"job": ".+", "pipeline": watched.pipeline.name}
    assert watched.api.label_values(substitute_variables(query, chosen))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_monitoring_alert_expression_selects_existing_series(watched: Watched, alert: Any) -> None:
    series = [*RECORDED.findall(alert.expr), *SELECTOR.findall(RECORDED.sub("", alert.expr))]
    assert series
    assert all(map(watched.history, series))


def test_monitoring_loaded_rules_are_healthy(watched: Watched) -> None:
    rules = [rule for group in watched.api.get("rules")["groups"] for rule in group["rules"]]
    written = [yaml.safe_load((ROOT / "dashboards" / name).read_text()) for name in ("rules.yaml", "alerts.yaml")]
    assert len(rules) == sum(len(group["rules"]) for each in written for group in each["groups"])
    assert {rule["health"] for rule in rules} == {"ok"}


@pytest.mark.parametrize("done", EXPECTED)
def test_monitoring_induced_condition_fires_its_alert(watched: Watched, done: str) -> None:
    assert EXPECTED[done].hold(watched.firing[done]), watched.firing[done]
