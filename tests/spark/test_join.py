"""The join as a Spark job has the answer of its definition, and of the stream."""
# ruff: noqa: S311 - the records are seeded, not secret

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from helpers.join_oracle import Event, answer
from helpers.join_stage import record
from helpers.joined import Joined, traffic
from helpers.kafka import START_MS, read
from helpers.repartitioned_join import RepartitionedJoin
from helpers.waiting import until
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.parsing.validation import TOO_FAR_AHEAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skewless.spark.join_pipeline import JoinPlan

LEFT, RIGHT = Side
SIDES: dict[str, Any] = {
    side: {"topic": side, "id": {"field": "id"}, "time": {"field": "time"}} for side in ("left", "right")
}
RECORDS = 600
"""Left records of a run."""
INPUT = "side string, partition int, offset bigint, timestamp bigint, key binary, value binary"
Logs = dict[tuple[Side, int], list[Event]]


def settings(**changes: Any) -> PipelineSettings:
    join = SIDES | {"apart_s": 0.005, "sync_delay_s": 0.008, "window_s": 0.007} | changes
    return PipelineSettings.model_validate({"name": "p", "join": join})


def random_logs(seed: int) -> Logs:
    """Two partitions of each side, with repeated ids, equal times, and times out of order."""
    chance = random.Random(seed)
    return {
        (side, partition): [
            Event(chance.choice("abcdef"), at // 4 + chance.randrange(-6, 7) + 10) for at in range(chance.randrange(90))
        ]
        for side in Side
        for partition in range(2)
    }


def rows_of(logs: Logs) -> list[tuple[Any, ...]]:
    return [
        (side.value, partition, offset, 0, event.id.encode(), msgspec.json.encode({**event._asdict(), "at": offset}))
        for (side, partition), log in logs.items()
        for offset, event in enumerate(log)
    ]


def expected(logs: Logs, join: JoinPlan, *, ended: bool) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for partition in range(2):
        result = answer(logs[LEFT, partition], logs[RIGHT, partition], join.rules, ended=ended)
        found.update(("joined", partition, *pair) for pair in result.pairs)
        found.update(("unmatched-left", partition, at) for at in result.unmatched_left if join.emit_unmatched_left)
        found.update(("unmatched-right", partition, at) for at in result.unmatched_right)
        found.update(("join-late", partition, "left", at) for at in result.late_left)
        found.update(("join-late", partition, "right", at) for at in result.late_right)
    return found


def outcome(row: Any) -> tuple[Any, ...]:
    value = msgspec.json.decode(row.value)
    if row.topic == "joined":
        return row.topic, row.partition, value["left"]["at"], value["right"]["at"]
    if row.topic == "join-late":
        assert value["offset"] == value["record"]["at"]
        return row.topic, row.partition, value["side"], value["offset"]
    return row.topic, row.partition, value["record"]["at"]


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "batch_rows"), [("left", "10000"), ("inner", "20")])
def test_join_answer_of_random_logs_is_that_of_the_definition(spark: SparkSession, kind: str, batch_rows: str) -> None:
    from skewless.spark import join_pipeline

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
    try:
        for seed in range(2):
            logs, join = random_logs(seed), join_pipeline.plan_of(settings(kind=kind), {})
            found = join_pipeline.answer(spark.createDataFrame(rows_of(logs), INPUT), join)
            rows = found.rows.collect()
            found.close()
            assert Counter(map(outcome, rows)) == expected(logs, join, ended=True)
            assert Counter(outcome(row) for row in rows if row.decided) == expected(logs, join, ended=False)
            assert sum(found.records.values()) == len(rows_of(logs))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def pairs_input(logs: Logs) -> pa.RecordBatch:
    """Return records as `_Pairs` reads them: ordered by number, id, side, partition and offset."""
    rows = sorted(
        (partition, event.id, side.value, partition, at, event.time, msgspec.json.encode({"at": at}))
        for (side, partition), log in logs.items()
        for at, event in enumerate(log)
    )
    names = ["number", "id", "side", "partition", "offset", "time", "value"]
    return pa.record_batch([pa.array(list(column)) for column in zip(*rows, strict=True)], names)


@pytest.mark.parametrize("batch_rows", [1, 7, 1_000])
def test_join_pairs_of_ids_in_any_slices_and_batches_are_those_of_the_definition(
    monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    from skewless.spark import join_pipeline

    monkeypatch.setattr(join_pipeline, "SLICE_RECORDS", 3)
    in_order = JoinRules(5, 10**6, 10**6)
    for seed in range(20):
        logs = random_logs(seed)
        plan = join_pipeline.plan_of(settings(), {})
        batch = pairs_input(logs)
        batches = [batch.slice(first, batch_rows) for first in range(0, batch.num_rows, batch_rows)]
        answers = join_pipeline._Pairs(plan, {})(batches)
        rows = [SimpleNamespace(**row) for answered in answers for row in answered.to_pylist()]
        assert Counter(map(outcome, rows)) == expected(logs, replace(plan, rules=in_order), ended=True)


def test_join_pairs_of_one_id_take_linear_time() -> None:
    from skewless.spark import join_pipeline

    def run_over(count: int) -> float:
        # Half of the left records have no partner, so they wait until the right times have passed.
        logs = {(LEFT, 0): [Event("a", 1_000 * at) for at in range(count)]}
        logs[RIGHT, 0] = [Event("a", 1_000 * at) for at in range(0, count, 2)]
        batch, plan = pairs_input(logs), join_pipeline.plan_of(settings(), {})
        started = process_time()
        (answered,) = join_pipeline._Pairs(plan, {})([batch])
        assert answered.num_rows == count
        return process_time() - started

    # 16 times the records take about 18 times as long, and 40 times if records never expire. Other processes may
    # delay one of the two runs, but not again and again.
    assert any(run_over(320_000) < 27 * run_over(20_000) for _ in range(3))


def test_join_answer_invalid_records_are_counted_by_reason(spark: SparkSession) -> None:
    from skewless.spark import join_pipeline

    rows = [
        ("left", 0, 0, 0, b"a", b'{"id": "a", "time": 5}'),
        ("left", 0, 1, 0, b"b", b'{"id": "a", "time": 5}'),
        ("right", 0, 0, 0, b"a", None),
        ("right", 0, 1, 0, b"a", b'{"id": "a", "time": 99}'),
    ]
    found = join_pipeline.answer(spark.createDataFrame(rows, INPUT), join_pipeline.plan_of(settings(), {}), newest=50)
    assert [row.topic for row in found.rows.collect()] == ["unmatched-left"]
    assert list(found.invalid.values()) == [1, 1, 1]
    assert [reason.partition(": ")[0] for reason in found.invalid] == ["left", "right", "right"]
    found.close()


def test_join_answer_record_that_the_repartitioned_join_takes_for_late_takes_no_part(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    from skewless.spark import join_pipeline

    run = RepartitionedJoin(JoinRules(5, 0, 0), 2, idle_timeout_ms=1_000)
    written: list[tuple[Any, ...]] = []

    def write(side: Side, partition: int, name: str, time: int) -> None:
        each = record(name, time)
        written.append((side.value, partition, run.offsets[side][partition], 0, each.key, each.value))
        run.write(side, partition, each)

    write(LEFT, 1, "first", 5)
    run.join.now += 1_000
    for side, partition in ((LEFT, 0), (LEFT, 0), (RIGHT, 0), (RIGHT, 1)):
        write(side, partition, f"{side.value}-{partition}", 5_000)
    run.run()
    write(LEFT, 1, "late", 500)  # its partition and offset are those of no record of left-records
    run.run()
    late = [(row["side"], row["partition"], row["offset"]) for row in run.join.texts("join-late")]
    assert late == [("left", 1, 1)]

    columns = "partition int, offset bigint, key binary, value binary"
    left, right = (
        join_pipeline.merged_records(
            spark.createDataFrame([(0, at, each.key, each.value) for at, each in enumerate(log)], columns), side
        )
        for side, log in run.join.logs.items()
    )
    answer = join_pipeline.answer(
        spark.createDataFrame(written, INPUT),
        join_pipeline.plan_of(settings(repartition="always", sync_delay_s=None, window_s=None), dict.fromkeys(Side, 2)),
        late=spark.createDataFrame(late, "side string, partition int, offset bigint"),
        merged=left.unionByName(right),
    )
    rows = answer.rows.groupBy("topic").agg(F.sort_array(F.collect_list("key")).alias("keys")).collect()
    answer.close()
    assert {row.topic: row["keys"] for row in rows} == {
        "unmatched-left": ["first", "left-0", "left-0"],
        "unmatched-right": ["right-0", "right-1"],
        "left-records": ["first", "late", "left-0", "left-0"],
        "right-records": ["right-0", "right-1"],
    }


def send_ahead(tested: Joined, side: Side, count: int) -> None:
    """Write records that are too far ahead of the clock."""
    for _ in range(count):
        tested.producer.produce(
            tested.topics[side], b'{"id": "0", "time": 9000000000000}', b"0", partition=0, headers=[("id", b"0")]
        )


def invoke(command: str, tested: Joined, *arguments: str) -> Result:
    return CliRunner().invoke(main, [command, "-f", str(tested.file), *arguments])


@pytest.mark.thorough
def test_batch_and_audit_of_a_join_agree_with_the_stream_and_find_differences(
    broker: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = Joined(broker, tmp_path)
    tested.document["join"]["right"]["id"] = {"header": "id"}
    tested.load()
    assert "run the pipeline first" in invoke("audit", tested).stderr
    for side, log in traffic(RECORDS, 4).items():
        tested.send(side, log)
    tested.producer.produce(tested.topics[LEFT], b"{}", b"0", partition=0)
    send_ahead(tested, LEFT, 1)
    send_ahead(tested, RIGHT, 2)
    tested.flush()
    tested.drain()
    written = [
        (topic, record.partition, (record.key or b"").decode(), (record.value or b"").decode(), record.timestamp)
        for topic in ("joined", "unmatched-left", "unmatched-right", "join-late")
        for record in read(broker, tested.settings.topic(topic))
    ]

    done = invoke("audit", tested, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["compared"], report["differences"], report["left_out"]) == (len(written), 0, {})
    assert report["dead_letters"] == 4
    assert report["records"] == 4 + sum(map(len, tested.logs[LEFT] + tested.logs[RIGHT]))
    ahead = {f"left: {TOO_FAR_AHEAD}": 1, f"right: {TOO_FAR_AHEAD}": 2}
    assert report["dead_letters_by_reason"].items() >= ahead.items()

    batch = invoke("batch", tested, "--out", str(tmp_path / "out"), "--json")
    assert batch.exit_code == 0, batch.output
    table = spark.read.parquet(str(tmp_path / "out")).collect()
    found = [(row.topic, row.partition, row.key, row.value, row.timestamp) for row in table]
    assert Counter(found) == Counter(written)
    assert json.loads(batch.stdout)["results_by_topic"] == dict(Counter(row[0] for row in written))

    joined = [row for row in written if row[0] == "joined"]
    tested.write_result("joined", joined[0])
    tested.write_result("unmatched-right", ("", 0, "1", '{"id":"1","record":{},"time":5}', 5))
    monkeypatch.chdir(tmp_path)
    wrong = invoke("audit", tested, "--json", "--out", "audit-20:10")
    assert wrong.exit_code == 1, wrong.output
    assert json.loads(wrong.stdout)["differences_by_kind"] == {"duplicate": 1, "unexpected": 1}
    parts = (tmp_path / "audit-20:10" / "differences").glob("*.json")
    assert sum(len(part.read_text().splitlines()) for part in parts) == 2


@pytest.mark.thorough
def test_batch_and_audit_of_a_repartitioned_join_agree_with_the_stream_and_find_differences(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path, {LEFT: 3, RIGHT: 2}, repartition="always")
    for side, log in traffic(RECORDS, 4).items():
        unique = {event.id: event for event in log}.values()  # the order of duplicates is that of the stream
        tested.send(side, sorted(log if side is RIGHT else unique, key=lambda event: event.time))
    send_ahead(tested, LEFT, 1)
    tested.flush()
    tested.drain()
    assert tested.wrong_repartitioned() == {}
    topics = ("joined", "unmatched-left", "unmatched-right", "join-late")
    written = Counter(
        (topic, record.partition, (record.key or b"").decode(), (record.value or b"").decode())
        for topic in topics
        for record in read(broker, tested.settings.topic(topic))
    )
    batch = invoke("batch", tested, "--out", str(tmp_path / "out"), "--json")
    assert batch.exit_code == 0, batch.output
    table = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter((row.topic, row.partition, row.key, row.value) for row in table) == written

    counts = {topic: sum(n for row, n in written.items() if row[0] == topic) for topic in topics}
    tested.write_result("joined", next((*row, 5) for row in written if row[0] == "joined"))
    wrong = invoke("audit", tested, "--json")
    assert wrong.exit_code == 1, wrong.output
    report = json.loads(wrong.stdout)
    assert report["differences_by_kind"] == {"duplicate": 1}
    assert report["dead_letters_by_reason"] == {f"left: {TOO_FAR_AHEAD}": 1}
    counts["joined"] += 1
    assert {topic: report["compared_by_topic"].get(topic, 0) for topic in topics} == counts
    assert min(counts["joined"], counts["unmatched-left"], counts["unmatched-right"]) > 0


@pytest.mark.thorough
def test_audit_of_a_join_record_that_is_late_by_its_partition_and_by_the_other_topic_is_no_difference(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path, dict.fromkeys(Side, 1), idle_timeout_s=0.2)
    tested.send(LEFT, [Event("1", START_MS + 5_000)])
    tested.send(RIGHT, [Event("2", START_MS + 8_000)])
    supervisor = tested.supervisor(drain=False)
    try:
        supervisor.start()

        def step() -> None:
            supervisor.poll(time.monotonic())
            tested.send(RIGHT, [Event("3", START_MS + 60_000)])
            tested.flush()

        until(lambda: any(tested.read("unmatched-right")), each=step)  # the silent left topic follows the right one
        tested.send(LEFT, [Event("4", START_MS)])
        until(lambda: any(tested.read("join-late")), each=step)
    finally:
        supervisor.stop()
    tested.drain()
    assert [row["watermark"] > START_MS + 5_000 for row in tested.read("join-late")] == [True]

    done = invoke("audit", tested, "--json")
    report = json.loads(done.stdout)
    assert (report["differences"], report["left_out"]) == (0, {}), done.output
    assert report["compared_by_topic"]["join-late"] == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("batch", "--out", "x", "--input", "y"), "--input: not with a join"),
        (("batch", "--output-topic", "x"), "--output-topic: not with a join"),
        (("batch", "--out", "x", "--ending-offsets", '{"0": 1}'), "offsets by partition are not possible with a join"),
        (("audit", "--since", "2026-01-01"), "--since: not with a join"),
    ],
)
def test_spark_command_option_that_a_join_does_not_have_is_refused(
    arguments: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", "join": {**SIDES, "apart_s": 1}}))
    done = CliRunner().invoke(main, [arguments[0], "-f", str(file), *arguments[1:]])
    assert (done.exit_code, problem in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("command", [("batch", "--out", "x"), ("audit",)])
def test_spark_command_join_of_a_pipeline_without_one_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", "source": {"topic": "t"}}))
    done = CliRunner().invoke(main, [command[0], "-f", str(file), *command[1:], "--join"])
    assert (done.exit_code, "--join: pipeline p joins nothing" in done.stderr) == (2, True), done.output
