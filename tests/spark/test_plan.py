"""Planning for a topic on a real broker: measures equal those of a simulation, and reasons are texts."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from helpers.kafka import START_MS
from skewless.algorithms.grouping import GROUPINGS, GroupingOptions
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.cli import main
from skewless.kafka.settings import KafkaSettings
from skewless.lab.simulation import planning, tuple_blocks
from skewless.lab.simulation.recommend import Demand, recommend
from skewless.lab.simulation.simulation import Simulation, SimulationConfig
from skewless.lab.simulation.tuple_blocks import Block, ReadPlan
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.spark import kafka_options
from skewless.spark.plan_job import plan, to_blocks
from skewless.spark.report.planning_report import report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PER_PARTITION = 30_000
OPTIONS = GroupingOptions(clock="event")
JSON = ParsingSettings.model_validate({"format": "json", "key": {"field": "key"}})
RECORD_KEY = ParsingSettings.model_validate({"key": {"from": "record_key"}})
NEVER_LATE = EventTimeRules(lateness_ms=MAX_WATERMARK, max_ahead_ms=MAX_WATERMARK)
WORKERS = (4, 9)


def keys(partition: int) -> list[str]:
    random = np.random.default_rng(partition)
    return [f"k{number}" for number in random.zipf(1.3, PER_PARTITION) % 3000]


def times() -> list[int]:
    return [START_MS + 10 * number for number in range(PER_PARTITION)]


def created(broker: str, partitions: int) -> str:
    name = f"plan-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker})  # the client must outlive its futures
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    return name


@pytest.fixture(scope="module")
def topic(broker: str) -> str:
    """Create a topic of two partitions whose records are keys with timestamps."""
    name = created(broker, 2)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 20})
    for partition in range(2):
        for key, time in zip(keys(partition), times(), strict=True):
            producer.produce(name, b"", key=key.encode(), partition=partition, timestamp=time)
        producer.flush()
    return name


def planned(spark: SparkSession, broker: str, topic: str, partitions: int, routers: int) -> list[dict[str, Any]]:
    spans = {0: (0, PER_PARTITION), 1: (0, PER_PARTITION if partitions == 2 else 0)}
    records = kafka_options.read(spark, KafkaSettings(bootstrap_servers=broker), {topic: spans})
    read_plan, simulation = ReadPlan(RECORD_KEY, NEVER_LATE, spans, now=0), simulated(routers)
    report_values = plan(records, read_plan, simulation, Demand(1.0, None, 1.5))
    assert report_values["stream"]["tuples"] == partitions * PER_PARTITION
    assert report_values["stream"]["tuples_per_s"] == pytest.approx(partitions * 100, rel=1e-3)
    found: list[dict[str, Any]] = report_values["candidates"]
    return found


def simulated(routers: int = 1) -> Simulation:
    return Simulation(product(GROUPINGS, WORKERS), SimulationConfig(OPTIONS, routers, 60_000))


def comparable(report_values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report_values.items() if name not in {"router_ns_per_tuple", "max_rate"}}


def test_plan_of_one_partition_gives_the_measures_of_a_simulation(spark: SparkSession, broker: str, topic: str) -> None:
    simulation = simulated()
    simulation.add(pa.array(keys(0)), np.array(times(), dtype=np.int64))
    found = planned(spark, broker, topic, 1, 1)
    assert [comparable(each) for each in found] == [comparable(each) for each in simulation.facts()]


def test_plan_with_two_routers_separates_loads_and_partitions(spark: SparkSession, broker: str, topic: str) -> None:
    found = {(each["grouping"], each["workers"]): each for each in planned(spark, broker, topic, 2, 2)}
    alone = [planned_alone("even", 4, partition) for partition in range(2)]
    loads = np.sum([each["tuples_by_worker"] for each in alone], axis=0)
    assert found["even", 4]["tuples_by_worker"] == loads.tolist()
    assert found["even", 4]["routers"] == 2


def test_plan_in_this_process_gives_the_measures_of_spark(spark: SparkSession, broker: str, topic: str) -> None:
    done = CliRunner().invoke(
        main.main,
        [
            *("plan", "--topic", topic, "--bootstrap-servers", broker, "--sample", "all", "--json", "--routers", "2"),
            *("--grouping", ",".join(GROUPINGS), "--workers", ",".join(map(str, WORKERS))),
        ],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["offsets"] == {"0": [0, PER_PARTITION], "1": [0, PER_PARTITION]}
    found = [comparable(each) for each in document["candidates"]]
    assert found == [comparable(each) for each in planned(spark, broker, topic, 2, 2)]


def test_plan_in_this_process_reads_the_same_blocks_with_any_read_ahead(broker: str, topic: str) -> None:
    read_plan = ReadPlan(RECORD_KEY, NEVER_LATE, dict.fromkeys(range(2), (0, PER_PARTITION)), now=0)

    def blocks(**options: int) -> list[Block]:
        kafka = KafkaSettings.model_validate(
            {"bootstrap_servers": broker, "options": {name.replace("_", "."): value for name, value in options.items()}}
        )
        return planning.read_blocks(kafka, topic, read_plan, lambda _now, _records: None)

    found = blocks()
    assert [(each.partition, each.tuples) for each in found] == [(0, 20_000), (1, 20_000), (0, 10_000), (1, 10_000)]
    assert blocks(fetch_message_max_bytes=10_000, queued_min_messages=100) == found


def test_plan_in_this_process_needs_no_spark(broker: str, topic: str) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from skewless.cli.main import main; main()"
    arguments = ["plan", "--topic", topic, "-b", broker, "--workers", "4", "--grouping", "key,even", "--rate", "9999"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Recommended: even on 4 workers, although that is too few for the rate\n" in done.stdout


def planned_alone(grouping: str, workers: int, partition: int) -> dict[str, Any]:
    simulation = Simulation([(grouping, workers)], SimulationConfig(OPTIONS, 1, 60_000))
    simulation.add(pa.array(keys(partition)), np.array(times(), dtype=np.int64))
    return simulation.facts()[0]


def test_plan_grouping_local_aggregates_the_tuples_of_each_block() -> None:
    simulation = Simulation([("key", 4), ("local", 4)], SimulationConfig(OPTIONS, 1, 60_000, longest_pane_ms=1000))
    for _ in range(2):
        simulation.add(pa.array(["a", "b", "a", "a"]), np.array([0, 1, 2, 1000], dtype=np.int64), router=0)
    by_key, local = simulation.facts()
    assert (by_key["tuples"], by_key["rows"]) == (8, 8)
    assert (local["tuples"], local["rows"], local["keys"]) == (8, 6, 2)


def rows(keys: list[bytes | None], at: list[int]) -> pa.RecordBatch:
    size = len(keys)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array([b"{}"] * size),
        "source_partition": pa.array([0] * size, pa.int32()),
        "offset": pa.array(range(10, 10 + size), pa.int64()),
        "timestamp": pa.array(at, pa.int64()),
    }
    return pa.record_batch(columns)


def read(batch: pa.RecordBatch, rules: EventTimeRules, splitter: ParsingSettings = RECORD_KEY, now: int = 0) -> Any:
    reading = ReadPlan(splitter, rules, {0: (0, 100)}, now)
    (block,) = (made.to_pylist()[0] for made in to_blocks(iter([batch]), reading))
    return {name: block[name] for name in ("tuples", "late", "bad", "progress")}


@pytest.mark.parametrize("wrong", [[], [0], [10**12]])
def test_plan_rate_is_not_changed_by_a_wrong_timestamp(wrong: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuple_blocks, "TUPLES", 1500)
    at = [*range(START_MS, START_MS + 20_000, 10), *wrong]
    read_plan = ReadPlan(RECORD_KEY, NEVER_LATE, {0: (0, 2020)}, now=0)
    blocks = [Block(**made.to_pylist()[0]) for made in to_blocks(iter([rows([b"a"] * len(at), at)]), read_plan)]
    found = planning.plan(blocks, simulated(), Demand(1.0, None, 1.5))
    assert found["stream"]["tuples_per_s"] == pytest.approx(100, rel=0.01)


def test_plan_late_and_unreadable_records_are_counted_and_left_out() -> None:
    batch = rows([b"a", None, b"\xff", b"late", b"b"], [5000, 6000, 7000, 3000, 8000])
    counted = read(batch, replace(NEVER_LATE, lateness_ms=1000))
    assert counted == {"tuples": 2, "late": 1, "bad": 2, "progress": 0.1}


@pytest.mark.parametrize(
    "splitter",
    [RECORD_KEY, ParsingSettings.model_validate({"format": "json", "key": {"field": "key"}})],
    ids=["key and timestamp", "splitter"],
)
def test_plan_invalid_event_time_makes_no_other_record_late(splitter: ParsingSettings) -> None:
    batch = rows([b"a", b"b", b"c", b"d"], [5000, 99_000_000, -1, 5001])
    values = pa.array([b'{"key": "a"}'] * 4)
    batch = batch.set_column(1, "value", values)
    counted = read(batch, EventTimeRules(lateness_ms=0, max_ahead_ms=1000), splitter, now=6000)
    assert counted == {"tuples": 2, "late": 0, "bad": 2, "progress": 0.1}


def candidate(
    grouping: str, workers: int, uneven: float, replication_factor: float, rows: int = 1000
) -> dict[str, Any]:
    others = {"router_ns_per_tuple": 50, "replication_max": 3, "replication_bound": 1.0, "aggregation_cost": 10}
    measures = {"max_over_avg": uneven, "replication_factor": replication_factor, "state_bytes": 1000}
    others |= {"tuples": 1000, "rows": rows}
    return {"grouping": grouping, "workers": workers, **measures, **others}


CANDIDATES = [
    candidate("shuffle", 5, 1.0, 4.0),
    candidate("key", 5, 2.0, 1.0),
    candidate("shuffle", 10, 1.0, 8.0),
    candidate("key", 10, 4.0, 1.0),
    candidate("even", 10, 1.02, 1.2),
]


@pytest.mark.parametrize(
    ("rate", "grouping", "workers", "sufficient"),
    [(2000.0, "key", 5, True), (4900.0, "shuffle", 5, True), (9000.0, "even", 10, True), (20_000.0, "even", 10, False)],
)
def test_recommendation_of_sufficient_candidates_has_fewest_workers_then_lowest_cost(
    rate: float, grouping: str, workers: int, *, sufficient: bool
) -> None:
    found = recommend(CANDIDATES, Demand(1.0, rate, 1.0))["recommendation"]
    assert (found["grouping"], found["workers"], found["sufficient"]) == (grouping, workers, sufficient)
    assert f"{rate:,.0f}" in found["reasons"][0]
    assert ("even a perfect load needs 20 workers" in found["reasons"][1]) is not sufficient


def test_recommendation_local_aggregation_that_does_not_pay_is_not_recommended() -> None:
    almost_unique = [candidate("key", 5, 1.02, 1.0), candidate("local", 5, 1.01, 1.0, rows=980)]
    found = recommend(almost_unique, Demand(1.0, 1000.0, 1.5))["recommendation"]
    assert found["grouping"] == "key"
    assert "Local aggregation pays only if all else is too slow: it would send 0.98 rows per tuple." in found["reasons"]


@pytest.mark.parametrize("rate", [4000.0, 50_000.0])
def test_recommendation_local_aggregation_that_does_not_pay_does_not_choose_the_workers(rate: float) -> None:
    by_key = [candidate("key", workers, 2.0, 1.0) for workers in (5, 10)]
    local = [candidate("local", workers, 1.0, 1.0, rows=800) for workers in (5, 10)]
    found = recommend([*by_key, *local], Demand(1.0, rate, 1.0))["recommendation"]
    assert (found["grouping"], found["workers"]) == ("key", 10)
    assert "local on 5" not in found["reasons"][1]


def test_recommendation_local_aggregation_that_alone_meets_the_demand_is_recommended() -> None:
    candidates = [candidate("key", 10, 5.0, 1.0), candidate("local", 10, 1.0, 1.0, rows=800)]
    found = recommend(candidates, Demand(1.0, 5000.0, 1.0))["recommendation"]
    assert (found["grouping"], found["workers"], found["sufficient"]) == ("local", 10, True)


def test_recommendation_of_a_slow_topic_has_a_rate_above_0() -> None:
    found = recommend(CANDIDATES, Demand(1.0, 0.0124, 1.5))["recommendation"]
    assert found["reasons"][0].startswith("Required capacity: 0.0186 tuples/s, which is 0.0124 (as specified)")


@pytest.mark.parametrize(
    ("rows", "grouping", "text"),
    [
        (100, "local", "Local aggregation (splitter.local) would send 0.10 rows per tuple"),
        (800, "even", "Local aggregation pays only if all else is too slow: it would send 0.80 rows per tuple."),
    ],
)
def test_recommendation_counts_a_row_of_local_aggregation_as_a_tuple(rows: int, grouping: str, text: str) -> None:
    candidates = [*CANDIDATES, candidate("local", 10, 2.0, 1.0, rows)]
    found = recommend(candidates, Demand(1.0, 9000.0, 1.0))
    assert found["recommendation"]["grouping"] == grouping
    assert found["candidates"][-1]["max_rate"] == pytest.approx(10 / 2 * 1000 * 1000 / rows)
    assert any(reason.startswith(text) for reason in found["recommendation"]["reasons"])


@pytest.mark.parametrize(
    ("partitions", "grouping", "reason"),
    [
        # 6,000 tuples per s, 2 commits per s: 3,000 and 750 tuples of a partition in a commit.
        (1, "local", "Local aggregation (splitter.local) would send 0.10 rows per tuple, with 20,000 tuples"),
        (4, "even", "At this rate a commit has 750, and so more rows per tuple: it is not counted on."),
    ],
)
def test_recommendation_counts_on_local_aggregation_only_with_the_tuples_of_a_commit_at_the_required_rate(
    partitions: int, grouping: str, reason: str
) -> None:
    candidates = [candidate("even", 10, 1.02, 1.2), candidate("local", 5, 1.0, 1.0, rows=100)]
    found = recommend(candidates, Demand(1.0, None, 1.5).of(4000.0, partitions))
    assert found["recommendation"]["grouping"] == grouping
    # 3,000 tuples have at most as many rows as 20,000.
    assert found["candidates"][1]["max_rate"] == pytest.approx(5000 / (2 / 3 if partitions == 1 else 1))
    texts = recommend(
        [*candidates, candidate("local", 10, 1.0, 1.0, rows=100)], Demand(1.0, None, 1.5).of(4e3, partitions)
    )
    assert any(reason in text for text in texts["recommendation"]["reasons"])


def invoke(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(main.main, ["plan", *args])
    return done.exit_code, done.stderr


def test_plan_command_invalid_arguments_end_before_anything_starts() -> None:
    assert invoke() == (2, "error: --topic: missing; name the topic to plan for, or give a pipeline with -f\n")
    assert invoke("--topic", "t", "--sample", "some") == (
        2,
        "error: --sample: 'some' is neither a number of records nor all\n",
    )
    code, text = invoke("--topic", "t", "--workers", "0,x", "--grouping", "nice")
    assert (code, text.count("error: ")) == (2, 3)


def test_plan_of_an_empty_topic_ends_with_its_name(broker: str) -> None:
    name = created(broker, 1)
    code, text = invoke("--topic", name, "--bootstrap-servers", broker)
    assert (code, text) == (1, f"error: topic {name} is empty: it has no records to plan with\n")


def test_plan_of_a_missing_topic_ends_with_its_name(broker: str) -> None:
    code, text = invoke("--topic", "nowhere", "--bootstrap-servers", broker)
    assert (code, text.startswith("error: topic nowhere does not exist")) == (3, True)


def test_planning_report_names_the_recommendation_and_escapes_foreign_text(tmp_path: Path) -> None:
    report_values: dict[str, Any] = {
        "topic": "<i>",
        "offsets": {"0": [0, 10]},
        "stream": {"tuples": 10, "keys": 2, "p1": 0.5, "late": 0, "bad": 0},
        **Demand(1.0, 100.0, 1.5).to_json(),
    }
    extra = {"routers": 1, "imbalance": 0.0, "window_replication": 1.0, "pairs": 3, "worst_window_max_over_avg": None}
    page = report(report_values | recommend([each | extra for each in CANDIDATES], Demand(1.0, 100.0, 1.5)))
    assert "&lt;i&gt;" in page
    assert json.loads(page.split('id="figures">')[1].split("</script>")[0])[0]["data"][-1]["name"] == "required"
    assert "key on 5 workers" in page
