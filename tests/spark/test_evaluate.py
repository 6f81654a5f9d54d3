"""Evaluating a run on a real broker: every measure against plain Python over the same topics; the report; bad input."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from skewless import cli
from skewless.commands.evaluate import offsets_of, recorded
from skewless.records import encode_tuples, headers_of
from skewless.settings import PipelineSettings
from skewless.spark.evaluate import evaluate
from skewless.spark.report.evaluation import report
from support_kafka import Pipeline, Record, Source, zipf_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = 3
WINDOW_MS, TICK_MS = 120_000, 60_000
TUPLES = 12_000


@pytest.fixture(scope="module")
def pipelines(broker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Pipeline]:
    """Two pipelines that have run over the same source, and beside it a transaction that was given up."""
    source = Source(broker, 2)
    source.send(zipf_records(TUPLES, 2, seed=5, keys=500))
    parts: dict[str, Any] = {
        "worker_input": {"max_workers": 4},
        "topics": {"aggregator_partitions": 1},
        "aggregator": {"window_s": WINDOW_MS / 1000},
        "observer": {"tick_s": TICK_MS / 1000},
    }
    made = []
    for grouping, encoding in (("key", "record"), ("even", "batch")):
        router = {"grouping": grouping, "workers": WORKERS}
        worker_input = parts["worker_input"] | {"encoding": encoding}
        pipeline = Pipeline(
            broker,
            tmp_path_factory.mktemp(grouping),
            source,
            **(parts | {"router": router, "worker_input": worker_input}),
        )
        pipeline.drain()
        give_up(pipeline)
        made.append(pipeline)
    return made


def give_up(pipeline: Pipeline) -> None:
    """Write tuples to a worker in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "transactional.id": f"{pipeline.name}-aborted"})
    producer.init_transactions()
    producer.begin_transaction()
    keys = pa.array(["never"] * 100).dictionary_encode()
    value = encode_tuples(keys, *([pa.array([1] * 100).to_numpy()] * 2))
    producer.produce(pipeline.settings.topic("worker-input"), value, partition=0, headers=list(headers_of(SCHEMA, {})))
    producer.flush()
    producer.abort_transaction()


SCHEMA = "skewless.tuples.v1"


@pytest.fixture(scope="module")
def facts(spark: SparkSession, pipelines: list[Pipeline], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runs = [recorded(spark, each.settings, offsets_of(each.settings)) for each in pipelines]
    return evaluate(spark, runs, tmp_path_factory.mktemp("evaluation"))


@pytest.fixture(params=[0, 1], ids=["key", "even"])
def run(
    request: pytest.FixtureRequest, facts: dict[str, Any], pipelines: list[Pipeline]
) -> tuple[Pipeline, dict[str, Any]]:
    return pipelines[request.param], facts["runs"][request.param]


# What a plain loop over the topics finds

Where = tuple[int, str, int]
"""Time of the tuple, its key, its worker."""


def tuples_of(record: Record) -> Iterator[tuple[int, str]]:
    if record.value is None:
        return
    if record.headers["schema"] == b"skewless.tuple.v1":
        yield json.loads(record.value)["time"], (record.key or b"").decode()
        return
    table = pa.ipc.open_stream(record.value).read_all()
    yield from zip(table["time"].to_pylist(), table["key"].to_pylist(), strict=True)


def routed(pipeline: Pipeline) -> Counter[Where]:
    return Counter(
        (time, key, record.partition) for record in pipeline.read("worker-input") for time, key in tuples_of(record)
    )


def spread(tuples: Mapping[Where, int]) -> dict[str, Any]:
    """Measure loads and replication by their definitions."""
    loads, pairs = [0] * WORKERS, defaultdict(set)
    for (_, key, worker), count in tuples.items():
        loads[worker] += count
        pairs[key].add(worker)
    total, average = sum(loads), sum(loads) / WORKERS
    widths = [len(workers) for workers in pairs.values()]
    return {
        "tuples": total,
        "tuples_by_worker": loads,
        "imbalance_tuples": max(loads) - average,
        "imbalance": (max(loads) - average) / total,
        "max_over_avg": max(loads) / average,
        "rate": average / max(loads),
        "std_dev": statistics.pstdev(100 * load / total for load in loads),
        "keys": len(pairs),
        "pairs": sum(widths),
        "replication": sum(widths) / len(pairs),
        "replication_max": max(widths),
    }


def spans(tuples: Counter[Where], span_ms: int) -> dict[int, Counter[Where]]:
    found: defaultdict[int, Counter[Where]] = defaultdict(Counter)
    for (time, key, worker), count in tuples.items():
        found[time // span_ms * span_ms][time, key, worker] += count
    return dict(sorted(found.items()))


def chosen(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in expected}


def near(expected: Mapping[str, Any]) -> Any:
    """Equal, but for the last digit that floats may differ in."""
    floats = {
        name: pytest.approx(value, rel=1e-12, abs=1e-15) for name, value in expected.items() if isinstance(value, float)
    }
    return {**expected, **floats}


def test_measures_of_the_run_are_those_of_a_plain_count(run: tuple[Pipeline, dict[str, Any]]) -> None:
    pipeline, found = run
    tuples = routed(pipeline)
    by_key: Counter[str] = Counter()
    for (_, key, _), count in tuples.items():
        by_key[key] += count
    total = tuples.total()
    windows = [spread(each) for each in spans(tuples, WINDOW_MS).values()]
    expected = spread(tuples) | {
        "p1": max(by_key.values()) / total,
        "replication_bound": sum(math.ceil(count * WORKERS / total) for count in by_key.values()) / len(by_key),
        "windows": len(windows),
        "window_replication": sum(each["pairs"] for each in windows) / sum(each["keys"] for each in windows),
        "window_replication_max": max(each["replication"] for each in windows),
        "aggregation_cost": sum(each["pairs"] for each in windows) / len(windows),
        "window_max_over_avg": sum(max(each["tuples_by_worker"]) for each in windows) * WORKERS / total,
    }
    assert chosen(found, expected) == near(expected)
    ordered = sorted(by_key.items(), key=lambda each: (-each[1], each[0]))[: len(found["hottest_keys"])]
    assert [(each["key"], each["tuples"]) for each in found["hottest_keys"]] == ordered
    assert (found["grouping"], found["workers"]) == (pipeline.settings.router.grouping, WORKERS)


def test_measures_of_every_tick_are_those_of_a_plain_count(run: tuple[Pipeline, dict[str, Any]]) -> None:
    pipeline, found = run
    ticks = spans(routed(pipeline), TICK_MS)
    assert [tick["tick_start"] for tick in found["ticks"]] == list(ticks)
    so_far: Counter[Where] = Counter()
    for told, tuples in zip(found["ticks"], ticks.values(), strict=True):
        so_far += tuples
        expected = spread(tuples) | {"running_imbalance": spread(so_far)["imbalance"]}
        assert chosen(told, expected) == near(expected)
        assert (told["reference"]["STD_DEV"], told["reference"]["DIST_COST"]) == (told["std_dev"], told["replication"])
    assert found["observer_differs"] == 0


def test_what_reached_the_aggregator_is_counted(run: tuple[Pipeline, dict[str, Any]]) -> None:
    pipeline, found = run
    assert found["partials_per_window"] == pipeline.tuples("partials") / found["windows"]
    saved = [len(record.value) for record in pipeline.read("control") if record.value]
    assert found["state_bytes"] == saved[-1]


def test_latency_is_from_the_last_tuple_sent_to_the_record_that_completes_the_count(
    run: tuple[Pipeline, dict[str, Any]],
) -> None:
    pipeline, found = run
    sent: dict[tuple[int, str], int] = {}
    for record in pipeline.read("tuples"):
        for time, key in tuples_of(record):
            at = time // WINDOW_MS * WINDOW_MS, key
            sent[at] = max(sent.get(at, 0), record.timestamp)
    done: dict[tuple[int, str], int] = {}
    for record in pipeline.read("windows"):
        if record.value:
            for key in pa.ipc.open_stream(record.value).read_all()["key"].to_pylist():
                done[int((record.key or b"").split(b"/")[0]), key] = record.timestamp
    took = sorted(done[at] - sent[at] for at in sent)
    assert found["latency_ms"] == {
        "results": len(took),
        "p50": pytest.approx(quantile(took, 0.5)),
        "p95": pytest.approx(quantile(took, 0.95)),
        "p99": pytest.approx(quantile(took, 0.99)),
        "max": took[-1],
    }


def quantile(ordered: list[int], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def test_the_report_opens_without_errors_or_a_network(facts: dict[str, Any], tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    facts = {"names": facts["names"], "runs": [dict(facts["runs"][0]), facts["runs"][1]]}
    hostile = '</script><img src="http://127.0.0.1:9/x">&<b>'
    facts["runs"][0] |= {"pipeline": hostile, "hottest_keys": [{"key": hostile, "tuples": 1, "workers": 1}]}
    file = tmp_path / "report.html"
    file.write_text(report(facts), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/p",
    ]
    done = subprocess.run(
        [browser, *options, "--virtual-time-budget=10000", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    page = done.stdout
    assert page.count('class="chart js-plotly-plot"') == page.count('class="chart') == 8
    assert page.count("heatmaplayer") >= 2
    body = page[page.index("<header>") : page.index('<script type="application/json"')]
    links = Links()
    links.feed(body)
    assert links.found == []


class Links(HTMLParser):
    """What elements of a page lead elsewhere; what is written in their texts and other attributes does not."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [(name, value or "") for name, value in attrs if name in {"src", "href", "xlink:href"}]
        self.found += [f"{tag} {name}={value}" for name, value in links if not value.startswith("data:")]


def invoke(folder: Path, settings: PipelineSettings) -> tuple[int, str]:
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(settings.model_dump(mode="json", include={"name", "source", "kafka", "router"})))
    done = CliRunner().invoke(cli.main, ["evaluate", "-f", str(file), "--out", str(folder / "out")])
    return done.exit_code, done.stderr


def test_a_pipeline_that_has_never_run_is_told(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    code, text = invoke(tmp_path, pipeline.settings)
    assert code == 1
    assert text == f"error: topic {pipeline.name}.worker-input has no tuples: run the pipeline first, then evaluate\n"


def test_a_pipeline_without_topics_is_told(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    code, text = invoke(tmp_path, pipeline.settings.model_copy(update={"name": "nobody"}))
    assert (code, text.startswith("error: topic nobody.worker-input does not exist")) == (3, True)


def test_a_broker_that_does_not_answer_is_told(tmp_path: Path) -> None:
    settings = PipelineSettings.model_validate(
        {"name": "x", "source": {"topic": "y"}, "kafka": {"bootstrap_servers": "127.0.0.1:1", "timeout_s": 1}}
    )
    code, text = invoke(tmp_path, settings)
    assert (code, "127.0.0.1:1" in text) == (3, True)
