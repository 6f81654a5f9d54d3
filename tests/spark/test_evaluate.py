"""Evaluation of a run on a real broker: every measure compared with plain Python; the report; invalid input."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import IsolationLevel, Producer, TopicPartition

from helpers import recorded_runs
from helpers.batches import encode_tuples
from helpers.browser import open_page
from helpers.headers import internal_headers
from helpers.kafka import Pipeline, Record, Source, read
from helpers.recorded_runs import PARTITIONS, TICK_MS, TUPLES, WINDOW_MS, WORKERS
from helpers.waiting import WAIT_S
from skewless.algorithms.grouping import GroupingOptions
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.cli import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.demo import live_comparison
from skewless.lab.simulation.recommend import Demand
from skewless.lab.simulation.simulation import Simulation, SimulationConfig
from skewless.lab.simulation.tuple_blocks import ReadPlan
from skewless.spark import kafka_options
from skewless.spark.evaluate_job import evaluate
from skewless.spark.pipeline_run import run_of
from skewless.spark.plan_job import plan
from skewless.spark.report.evaluation_report import report
from skewless.wire.columns import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

HOTTEST = 10
EVEN = 1e-3
"""Imbalance up to which a load counts as even."""


@pytest.fixture(scope="module")
def pipelines(broker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Pipeline]:
    """Run three pipelines, `key`, `even` and `local`, to the end of one source with late and invalid records."""
    return list(recorded_runs.recorded(broker, tmp_path_factory.mktemp("recorded")))


@pytest.fixture(scope="module")
def evaluation(
    spark: SparkSession, pipelines: list[Pipeline], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    for pipeline in pipelines:
        abort_tuples(pipeline)
        # No stage reads these topics any more, so the pipeline stays exact for the tests that audit it.
        write_foreign_records(pipeline, "distribution", "aggregator-changelog")
    runs = [run_of(each.settings) for each in pipelines]
    with contextlib.chdir(tmp_path_factory.mktemp("evaluation")):
        return evaluate(spark, runs, Path("evaluation-20:10"))


def abort_tuples(pipeline: Pipeline) -> None:
    """Write tuples to a worker in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "transactional.id": f"{pipeline.name}-aborted"})
    producer.init_transactions()
    producer.begin_transaction()
    keys = pa.array(["never"] * 100).dictionary_encode()
    value = encode_tuples(keys, *([pa.array([1] * 100).to_numpy()] * 2))
    headers = list(internal_headers("skewless.tuples.v1", {}))
    producer.produce(pipeline.settings.topic("worker-input"), value, partition=0, headers=headers)
    producer.flush()
    producer.abort_transaction()


def write_foreign_records(pipeline: Pipeline, *topics: str) -> None:
    """Write foreign records to topics of the pipeline."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "enable.idempotence": True})
    for topic in topics:
        producer.produce(pipeline.settings.topic(topic), b"{}", key=b"0/0", partition=0)
    assert producer.flush(WAIT_S) == 0


@pytest.fixture(params=[0, 1, 2], ids=["key", "even", "local"])
def run(
    request: pytest.FixtureRequest, evaluation: dict[str, Any], pipelines: list[Pipeline]
) -> tuple[Pipeline, dict[str, Any]]:
    return pipelines[request.param], evaluation["runs"][request.param]


# Reference values of a plain loop over the topics


class Routed(NamedTuple):
    """A tuple, or a row of several tuples, that reached a worker, and the Kafka timestamp of its record."""

    time: int
    key: str
    tuples: int
    worker: int
    at: int


def rows_of(record: Record) -> Iterator[tuple[int, str, int]]:
    """Yield event time or pane, key, and number of tuples."""
    if record.value is None or "schema" not in record.headers:
        return
    if record.headers["schema"] == b"skewless.tuple.v1":
        yield json.loads(record.value)["time"], (record.key or b"").decode(), 1
        return
    table = read_table(record.value)
    if record.headers["schema"] == b"skewless.rows.v1":
        yield from zip(*(table[name].to_pylist() for name in ("pane", "key", "count")), strict=True)
    else:
        yield from zip(table["time"].to_pylist(), table["key"].to_pylist(), [1] * table.num_rows, strict=True)


def routed(pipeline: Pipeline) -> list[Routed]:
    return [
        Routed(*row, record.partition, record.timestamp)
        for record in pipeline.read("worker-input")
        for row in rows_of(record)
    ]


def spread(rows: Sequence[Routed]) -> dict[str, Any]:
    """Compute loads and replication by their definitions."""
    loads, tuples, pairs = [0] * WORKERS, [0] * WORKERS, defaultdict(set)
    for each in rows:
        loads[each.worker] += 1
        tuples[each.worker] += each.tuples
        pairs[each.key].add(each.worker)
    total, average = sum(loads), sum(loads) / WORKERS
    widths = [len(workers) for workers in pairs.values()]
    took = max(each.at for each in rows) - min(each.at for each in rows)
    load_stddev_percent = statistics.pstdev(100 * load / total for load in loads)
    return {
        "tuples": sum(tuples),
        "tuples_by_worker": tuples,
        "rows": total,
        "rows_by_worker": loads,
        "rows_per_tuple": total / sum(tuples),
        "imbalance_tuples": max(loads) - average,
        "imbalance": (max(loads) - average) / total,
        "max_over_avg": max(loads) / average,
        "rate": average / max(loads),
        "load_stddev_percent": load_stddev_percent,
        "keys": len(pairs),
        "pairs": sum(widths),
        "replication_factor": sum(widths) / len(pairs),
        "replication_max": max(widths),
        "top_keys": hottest(rows, pairs),
        "reference": {
            "STD_DEV": load_stddev_percent,
            "DIST_COST": sum(widths) / len(pairs),
            "THROUGHPUT_RATIO": sum(tuples) * 1000 / took if took else 0.0,
            "TOTAL_COUNT": sum(tuples),
            "DURATION": took,
        },
    }


def tuples_by_key(rows: Sequence[Routed]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in rows:
        counts[each.key] += each.tuples
    return counts


def hottest(rows: Sequence[Routed], pairs: Mapping[str, set[int]]) -> list[dict[str, Any]]:
    counts = tuples_by_key(rows)
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:HOTTEST]
    return [{"key": key, "tuples": count, "workers": len(pairs[key])} for key, count in ordered]


def spans(tuples: Sequence[Routed], span_ms: int) -> dict[int, list[Routed]]:
    found: defaultdict[int, list[Routed]] = defaultdict(list)
    for each in tuples:
        found[each.time // span_ms * span_ms].append(each)
    return dict(sorted(found.items()))


def ticks_of(tuples: Sequence[Routed]) -> list[dict[str, Any]]:
    begin, loads, found = min(each.at for each in tuples), [0] * WORKERS, []
    for start, own in spans(tuples, TICK_MS).items():
        for each in own:
            loads[each.worker] += 1
        found.append(
            {
                "tick_start": start,
                "tick_end": start + TICK_MS,
                **spread(own),
                "running_imbalance": (max(loads) - sum(loads) / WORKERS) / sum(loads),
                "last_at_ms": max(each.at for each in own) - begin,
            }
        )
    return found


def reactions_of(ticks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    tops = [tick["top_keys"][0]["key"] for tick in ticks]
    changes = [at for at in range(1, len(ticks)) if tops[at] != tops[at - 1]]
    found = []
    for at, end in itertools.pairwise([*changes, len(ticks)]):
        spent = list(itertools.takewhile(lambda tick: tick["imbalance"] > EVEN, ticks[at:end]))
        over = len(spent) < end - at
        found.append(
            {
                "tick_start": ticks[at]["tick_start"],
                "from": tops[at - 1],
                "to": tops[at],
                "seconds": len(spent) * TICK_MS / 1000 if over else None,
                "tuples": sum(tick["tuples"] for tick in spent) if over else None,
            }
        )
    return found


def near(expected: Any) -> Any:
    """Equal up to the rounding errors of floats."""
    if isinstance(expected, dict):
        return {name: near(value) for name, value in expected.items()}
    if isinstance(expected, list):
        return [near(value) for value in expected]
    return pytest.approx(expected, rel=1e-12, abs=1e-15) if isinstance(expected, float) else expected


def ticks_behind_the_watermark(pipeline: Pipeline) -> set[int]:
    """Return the ticks of tuples that are behind the watermark of their partition, and whose window is open.

    The observer may have emitted these ticks before.
    """
    newest: dict[int, int] = {}
    ticks: set[int] = set()
    for record in read(pipeline.bootstrap, pipeline.source.topic):
        with contextlib.suppress(TypeError, ValueError):
            time: int = json.loads(record.value or b"")["time"]
            watermark = newest.get(record.partition, time) - pipeline.settings.event_time.lateness_ms
            if time < watermark < (time // WINDOW_MS + 1) * WINDOW_MS:
                ticks.add(time // TICK_MS * TICK_MS)
            newest[record.partition] = max(time, newest.get(record.partition, time))
    return ticks


def test_evaluate_of_a_run_gives_the_measures_of_a_reference_count(run: tuple[Pipeline, dict[str, Any]]) -> None:
    pipeline, found = run
    rows = routed(pipeline)
    by_key = tuples_by_key(rows)
    total = sum(by_key.values())
    assert (len(rows) < total) == (pipeline.settings.splitter.local.mode == "buffer")
    windows = [spread(each) for each in spans(rows, WINDOW_MS).values()]
    ticks = ticks_of(rows)
    expected = spread(rows) | {
        "p1": max(by_key.values()) / total,
        "replication_bound": sum(math.ceil(count * WORKERS / total) for count in by_key.values()) / len(by_key),
        "windows": len(windows),
        "window_replication": sum(each["pairs"] for each in windows) / sum(each["keys"] for each in windows),
        "window_replication_max": max(each["replication_factor"] for each in windows),
        "aggregation_cost": sum(each["pairs"] for each in windows) / len(windows),
        "window_max_over_avg": sum(max(each["rows_by_worker"]) for each in windows) * WORKERS / len(rows),
        "worst_window_max_over_avg": max(each["max_over_avg"] for each in windows if each["rows"] >= 100 * WORKERS),
        "reactions": reactions_of(ticks),
    }
    expected["duration_ms"] = expected["reference"]["DURATION"]
    ran_with = {"pipeline": pipeline.name, "grouping": pipeline.settings.router.grouping, "workers": WORKERS}
    ran_with |= {"routers": 1, "window_s": WINDOW_MS / 1000, "tick_s": TICK_MS / 1000}
    ran_with["source"] = pipeline.settings.topic("source")
    assert found["observer_differs"] <= len(ticks_behind_the_watermark(pipeline)) < len(ticks)
    elsewhere = {
        "completed",
        "observer_differs",
        "ticks",
        "offsets",
        "partials_per_window",
        "state_bytes",
        "latency_ms",
        "latency_ms_by_window",
    }
    assert {name: value for name, value in found.items() if name not in elsewhere} == near(expected | ran_with)
    assert found["ticks"] == near(ticks)


def test_evaluate_of_a_run_counts_the_partials_of_the_aggregator(run: tuple[Pipeline, dict[str, Any]]) -> None:
    pipeline, found = run
    values = [record.value for record in pipeline.read("partials") if "schema" in record.headers and record.value]
    rows = sum(read_table(value).num_rows for value in values)
    assert found["partials_per_window"] == rows / found["windows"]
    saved = [len(record.value) for record in pipeline.read("router-state") if record.value]
    assert found["state_bytes"] == saved[-1]


def test_evaluate_latency_spans_the_last_tuple_sent_to_the_record_that_completes_the_count(
    run: tuple[Pipeline, dict[str, Any]],
) -> None:
    pipeline, found = run
    sent: dict[tuple[int, str], int] = {}
    for record in pipeline.read("tuples"):
        for time, key, _ in rows_of(record):
            at = time // WINDOW_MS * WINDOW_MS, key
            sent[at] = max(sent.get(at, 0), record.timestamp)
    done: dict[tuple[int, str], int] = {}
    for record in pipeline.read("aggregator-changelog"):
        if record.value and record.value != b"{}":
            for key in read_table(record.value)["key"].to_pylist():
                done[int((record.key or b"").split(b"/")[0]), key] = record.timestamp
    by_window: defaultdict[int, list[int]] = defaultdict(list)
    for (window, key), began in sent.items():
        by_window[window].append(done[window, key] - began)
    assert found["latency_ms"] == near(quantiles([each for took in by_window.values() for each in took]))
    assert found["latency_ms_by_window"] == near(
        [{"window_start": window, **quantiles(took)} for window, took in sorted(by_window.items())]
    )


def test_evaluate_completed_tuples_are_those_of_the_partials_in_the_order_of_the_queues(
    run: tuple[Pipeline, dict[str, Any]],
) -> None:
    pipeline, found = run
    arrived: defaultdict[int, list[int]] = defaultdict(list)
    left: defaultdict[int, list[int]] = defaultdict(list)
    for row in routed(pipeline):
        arrived[row.worker] += [row.at] * row.tuples
    for record in pipeline.read("partials"):
        if record.value:
            partials = read_table(record.value)
            for worker, count in zip(partials["worker"].to_pylist(), partials["count"].to_pylist(), strict=True):
                left[worker] += [record.timestamp] * count
    waits = [
        end - begin
        for worker in arrived
        for begin, end in zip(sorted(arrived[worker]), sorted(left[worker]), strict=True)
    ]
    first, last = min(map(min, arrived.values())), max(map(max, left.values()))
    measures = quantiles(waits)
    assert found["completed"] == near(
        {
            "tuples": len(waits),
            "waiting": 0,
            "first_at": first,
            "last_at": last,
            "tuples_per_s": len(waits) * 1000 / (last - first),
            "latency_ms": {"tuples": measures.pop("results"), **measures},
            "waiting_ms": None,
        }
    )


def test_evaluate_and_the_table_of_the_demo_have_the_same_figures(run: tuple[Pipeline, dict[str, Any]]) -> None:
    pipeline, found = run
    shown = live_comparison.measured(run_of(pipeline.settings), "even")
    assert (shown.tuples, shown.waiting) == (found["completed"]["tuples"], found["completed"]["waiting"])
    assert shown.tuples_per_s == found["completed"]["tuples_per_s"]
    assert (shown.max_over_avg, shown.replication_factor) == near((found["max_over_avg"], found["replication_factor"]))


def quantiles(latencies: Sequence[int]) -> dict[str, float]:
    ordered = sorted(latencies)
    shares = {f"p{share * 100:g}": quantile(ordered, share) for share in (0.5, 0.95, 0.99)}
    return {"results": len(ordered), **shares, "max": ordered[-1]}


def quantile(ordered: list[int], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def test_plan_of_the_source_predicts_the_measures_of_its_runs(
    spark: SparkSession, evaluation: dict[str, Any], pipelines: list[Pipeline]
) -> None:
    settings = pipelines[0].settings
    good = dict.fromkeys(range(PARTITIONS), (0, TUPLES // PARTITIONS))
    reading = ReadPlan(settings.splitter, settings.event_time_rules(), good, now=MAX_WATERMARK)
    records = kafka_options.read(spark, settings.kafka, {settings.topic("source"): reading.offset_ranges})
    config = SimulationConfig(GroupingOptions(clock="event"), 1, WINDOW_MS)
    simulation = Simulation([("key", WORKERS), ("even", WORKERS)], config)
    planned = plan(records, reading, simulation, Demand(1.0, None, 1.5))["candidates"]
    for foreseen, measured in zip(planned, evaluation["runs"][:2], strict=True):
        wanted = {name: pytest.approx(measured[name], rel=0.02) for name in ("max_over_avg", "replication_factor")}
        assert {name: foreseen[name] for name in wanted} == wanted
        assert (foreseen["keys"], foreseen["tuples"]) == (measured["keys"], measured["tuples"])


def test_evaluation_report_in_a_browser_opens_without_errors_or_network(
    evaluation: dict[str, Any], tmp_path: Path
) -> None:
    comparison = {"runs": [0, 1], "names": ["key", "even"], "summary": "even completed most"}
    evaluation |= {"runs": [dict(evaluation["runs"][0]), evaluation["runs"][1]], "comparisons": [comparison]}
    hostile = '</script><img src="http://127.0.0.1:9/x">&<b>'
    comparison["names"] = [hostile, "even"]
    evaluation["runs"][0] |= {"source": hostile, "top_keys": [{"key": hostile, "tuples": 1, "workers": 1}]}
    file = tmp_path / "report.html"
    file.write_text(report(evaluation), encoding="utf-8")
    opened = open_page(file.as_uri())
    assert opened.console == []
    page = opened.html
    assert page.count('class="chart js-plotly-plot"') == page.count('class="chart') == 8
    assert page.count("heatmaplayer") >= 2
    body = page[page.index("<header>") : page.index('<script type="application/json"')]
    links = Links()
    links.feed(body)
    assert links.found == []


class Links(HTMLParser):
    """Collects references of a page's elements to other resources. Texts and other attributes are not references."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [(name, value or "") for name, value in attrs if name in {"src", "href", "xlink:href"}]
        self.found += [f"{tag} {name}={value}" for name, value in links if not value.startswith("data:")]


def invoke(folder: Path, settings: PipelineSettings) -> tuple[int, str]:
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(settings.model_dump(mode="json", include={"name", "source", "kafka", "router"})))
    done = CliRunner().invoke(main.main, ["evaluate", "-f", str(file), "--out", str(folder / "out")])
    return done.exit_code, done.stderr


def delete_records(pipeline: Pipeline, *topics: str) -> None:
    """Delete all records of topics, as retention does."""
    ends = [
        TopicPartition(pipeline.settings.topic(topic), partition, end)
        for topic in topics
        for partition, end in pipeline.ends(topic, IsolationLevel.READ_UNCOMMITTED).items()
        if end
    ]
    for future in pipeline.admin.delete_records(ends).values():
        future.result()


def test_evaluate_after_retention_ends_with_the_topic_whose_tuples_are_gone(
    pipelines: list[Pipeline], tmp_path: Path
) -> None:
    pipeline = pipelines[-1]  # of which no later test reads the tuples
    delete_records(pipeline, "tuples", "worker-input", "partials")
    code, text = invoke(tmp_path, pipeline.settings)
    assert code == 3
    assert text == (
        f"error: topic {pipeline.name}.worker-input has no tuples any more, because retention has deleted them: "
        "evaluate a run within topics.internal_retention_s of its end\n"
    )


def test_evaluate_of_a_pipeline_that_never_ran_asks_to_run_it(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    code, text = invoke(tmp_path, pipeline.settings)
    assert code == 1
    assert text == (
        f"error: topic {pipeline.name}.worker-input has no tuples: run the pipeline first, then evaluate; "
        "`skewless stream` does not write this topic, `skewless top` shows its load\n"
    )


def test_evaluate_of_topics_with_invalid_records_ends_with_1(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    write_foreign_records(pipeline, "distribution", "worker-input", "tuples", "partials", "aggregator-changelog")
    assert invoke(tmp_path, pipeline.settings)[0] == 1


def test_evaluate_of_a_pipeline_without_topics_ends_with_the_missing_topic(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    code, text = invoke(tmp_path, pipeline.settings.model_copy(update={"name": "absent"}))
    assert (code, text.startswith("error: topic absent.worker-input does not exist")) == (3, True)


def test_evaluate_broker_without_answer_ends_with_its_address(tmp_path: Path) -> None:
    settings = PipelineSettings.model_validate(
        {"name": "x", "source": {"topic": "y"}, "kafka": {"bootstrap_servers": "127.0.0.1:1", "connect_timeout_s": 1}}
    )
    code, text = invoke(tmp_path, settings)
    assert (code, "127.0.0.1:1" in text) == (3, True)
