"""Counts of the runs of a pipeline, and the warnings of `skewless up` and `skewless status`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition

from helpers.join_oracle import Event
from helpers.joined import Joined
from helpers.kafka import START_MS, Pipeline, Source
from helpers.stage_hosts import share_host
from helpers.waiting import WAIT_S, until
from skewless.algorithms.join.window_join import Side
from skewless.cli.main import main
from skewless.config import topic_plan
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.settings import KafkaSettings
from skewless.operations import data_quality
from skewless.operations.data_quality import written_tuples
from skewless.operations.run_counts import Count, RunCounter
from skewless.wire.columns import write_table

pytestmark = [pytest.mark.broker, pytest.mark.thorough, pytest.mark.usefixtures("patient_commands")]


@pytest.fixture(autouse=True)
def _shared_host(monkeypatch: pytest.MonkeyPatch) -> None:
    share_host(monkeypatch)


def record(key: str, time_ms: int) -> bytes:
    return json.dumps({"key": key, "value": 1, "time": time_ms}).encode()


def test_counts_of_each_run_are_those_of_its_own_records(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    pipeline = Pipeline(broker, tmp_path, source, aggregator={"emit": "final"})
    source.send([(0, record("a", START_MS + 600_000)), (0, record("b", START_MS)), (0, b"{"), (1, b"["), (1, b"{")])
    first = RunCounter(pipeline.settings)
    pipeline.drain()
    counts = first.counts(exact=True)
    assert (counts.records, counts.results, counts.late, counts.invalid) == (5, Count(1), Count(1), Count(3))
    assert counts.is_any_accepted
    newest = counts.reasons.commonest()
    assert newest is not None
    assert (newest.reason, newest.position.topic) == ("malformed JSON", source.topic)

    assert counts.is_exact
    assert not counts.uncommitted

    # Everything is late or invalid in the second run, in transactions of other processes.
    source.send([(0, record("b", START_MS)), (0, record("b", START_MS)), (1, b"{")])
    second = RunCounter(pipeline.settings)
    pipeline.drain()
    counts = second.counts(exact=True)
    assert (counts.records, counts.results, counts.late, counts.invalid) == (3, Count(0), Count(2), Count(1))
    assert not counts.is_any_accepted


def test_up_of_transactions_counts_committed_records_and_names_those_that_it_does_not_read(
    broker: str, tmp_path: Path
) -> None:
    source = Source(broker, 1)
    pipeline = Pipeline(broker, tmp_path, source)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": source.topic})
    producer.init_transactions(WAIT_S)

    def begin(records: int) -> None:
        producer.begin_transaction()
        for number in range(records):
            producer.produce(source.topic, record("a", START_MS + number), partition=0)
        producer.flush(WAIT_S)

    begin(5)
    inspect = ["inspect", source.topic, "-b", broker]
    empty = CliRunner().invoke(main, inspect)
    assert empty.exit_code == 1
    unread = "5 records in or after open transactions of producers"
    assert empty.stderr == f"error: topic {source.topic} has {unread}, and no others\n"
    producer.abort_transaction(WAIT_S)
    begin(3)
    producer.commit_transaction(WAIT_S)
    begin(1)

    assert (
        "\nnot read    1 record in or after open transactions of producers\n"
        in CliRunner().invoke(main, inspect).stdout
    )
    created = CliRunner().invoke(main, ["init", source.topic, "-b", broker, "-o", str(tmp_path / "i.yaml"), "--yes"])
    assert "not read: 1 record in or after open transactions of producers\n" in created.stderr
    up = ["up", "-f", str(pipeline.file), "--drain", "--log-dir", str(tmp_path / "logs")]
    first = CliRunner().invoke(main, up)
    assert first.exit_code == 0, first.output
    warning = f"warning: topic {source.topic} has 1 record in or after open transactions of producers: "
    assert f"\n3 records: 1 update of results, 0 late, 0 invalid\n{warning}" in first.stdout
    producer.commit_transaction(WAIT_S)
    second = CliRunner().invoke(main, up)
    assert second.stdout.endswith("\n1 record: 1 update of results, 0 late, 0 invalid\n")
    source.send([(0, b"?")])
    third = CliRunner().invoke(main, up)
    assert third.exit_code == 1, third.output
    remedy = "The earlier results remain. Correct the settings, and replay the invalid records with `skewless dead-l"
    assert f"1 are invalid, and 0 late. {remedy}" in third.stderr


def test_up_with_only_filtered_records_warns_and_names_the_condition(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    source.send([(0, record("a", START_MS + number)) for number in range(20)])
    source.send([(0, None)] * 12)
    splitter = {
        "format": "json",
        "key": {"field": "key"},
        "time": {"field": "time"},
        "where": [{"field": "key", "is": "b"}],
    }
    pipeline = Pipeline(broker, tmp_path, source, splitter=splitter)
    up = ["up", "-f", str(pipeline.file), "--drain", "--log-dir", str(tmp_path / "logs")]
    first = CliRunner().invoke(main, up)
    assert first.exit_code == 0, first.output
    assert "\n32 records: 0 updates of results, 0 late, 12 invalid\n" in first.stdout
    assert first.stdout.endswith("\nwarning: none of the other 20 records has a tuple, because of splitter.where\n")
    status = CliRunner().invoke(main, ["status", "-f", str(pipeline.file)])
    assert '12 of the recent records are invalid: "empty record" (12)' in status.stdout
    results = CliRunner().invoke(main, ["results", "-f", str(pipeline.file)])
    assert "settings such as splitter.where may filter all records" in results.stderr

    source.send([(0, record("b", START_MS + 30))])
    second = CliRunner().invoke(main, up)
    assert second.stdout.endswith("\n1 record: 1 update of results, 0 late, 0 invalid\n")


def test_up_with_only_keys_that_do_not_match_warns_and_names_the_pattern(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    source.send([(0, record("a", START_MS + number)) for number in range(20)])
    splitter = {"format": "json", "key": {"field": "key", "pattern": "[0-9]+"}, "time": {"field": "time"}}
    pipeline = Pipeline(broker, tmp_path, source, splitter=splitter)
    found = CliRunner().invoke(main, ["up", "-f", str(pipeline.file), "--drain", "--log-dir", str(tmp_path / "logs")])
    assert found.exit_code == 0, found.output
    assert found.stdout.endswith("\nwarning: none of 20 records has a tuple, because of splitter.key.pattern\n")


def test_up_with_values_that_are_rounded_warns_once_and_names_the_setting(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    times = range(START_MS, START_MS + 20)
    source.send([(0, json.dumps({"key": "a", "price": 0.25, "time": time}).encode()) for time in times])
    fields = {name: {"field": name} for name in ("key", "time")}
    pipeline = Pipeline(broker, tmp_path, source, splitter={"format": "json", "value": {"field": "price"}, **fields})
    found = CliRunner().invoke(main, ["up", "-f", str(pipeline.file), "--drain", "--log-dir", str(tmp_path / "logs")])
    assert found.exit_code == 0, found.output
    (warning,) = (line for line in found.stdout.splitlines() if line.startswith("warning: "))
    assert warning.startswith("warning: splitter-0: value field price is rounded to a whole number, as ")
    assert "set splitter.value.decimals to the number" in warning


def test_up_with_results_that_retention_deletes_at_once_warns_and_names_the_setting(
    broker: str, tmp_path: Path
) -> None:
    source = Source(broker, 1)
    source.send([(0, record("a", START_MS + number)) for number in range(20)])
    pipeline = Pipeline(broker, tmp_path, source, topics={"results_retention_s": 86_400})
    found = CliRunner().invoke(main, ["up", "-f", str(pipeline.file), "--drain", "--log-dir", str(tmp_path / "logs")])
    assert found.exit_code == 0, found.output
    (warning,) = (line for line in found.stdout.splitlines() if line.startswith("warning: "))
    assert warning.startswith(
        "warning: aggregator-0: results of old windows, such as the one from 2026-01-01T00:00:00Z"
    )
    assert "topics.results_retention_s is 86400. To keep them, raise it" in warning


def test_counts_of_a_run_include_results_that_are_deleted_already(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    pipeline = Pipeline(broker, tmp_path, source, topics={"results_retention_s": 8_640_000_000})
    source.send([(0, record(f"k{number}", START_MS + number)) for number in range(50)])
    counter = RunCounter(pipeline.settings)
    pipeline.drain()
    assert counter.counts(exact=True).results == Count(50)
    name = pipeline.settings.topic("aggregates")
    ranges = OffsetReader(pipeline.settings.kafka).ranges(name)
    partition, (_, end) = max(ranges.items(), key=lambda item: item[1][1])
    deleted = TopicPartition(name, partition, end - 2)
    pipeline.admin.delete_records([deleted])[deleted].result(WAIT_S)
    results = counter.counts(exact=True).results
    assert (results.records >= 50, results.is_exact) == (True, False)


def test_up_of_pairs_without_any_warns_and_names_the_join_and_of_filtered_ones_the_condition(
    broker: str, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path)
    tested.document |= {
        "source": {"topic": tested.settings.topic("joined")},
        "event_time": {"allowed_lateness_s": 10},
        "splitter": {
            "format": "json",
            "key": {"field": "id"},
            "time": {"field": "left_time"},
            "where": [{"field": "id", "is_not": "3"}],
        },
    }
    tested.load()
    topic_plan.apply(tested.settings)
    up = ["up", "-f", str(tested.file), "--drain", "--log-dir", str(tmp_path / "logs")]

    def sent(left: str, right: str, time_ms: int) -> str:
        tested.send(Side.LEFT, [Event(left, time_ms)])
        tested.send(Side.RIGHT, [Event(right, time_ms)])
        tested.flush()
        found = CliRunner().invoke(main, up)
        assert found.exit_code == 0, found.output
        return found.stdout

    line = "\n2 records: 0 updates of results, 0 late, 0 invalid\nwarning: none of 2 records has a"
    assert sent("1", "2", START_MS).endswith(f"{line} partner in the join\n")
    assert sent("3", "3", START_MS + 60_000).endswith(f"{line} tuple, because of splitter.where\n")

    tested.send(Side.RIGHT, [Event("5", START_MS + 1)] * 12)  # in the partition of the others
    tested.flush()
    late = CliRunner().invoke(main, up)
    assert late.exit_code == 1, late.output
    assert "error: none of 12 records is in a result: 0 are invalid, and 12 late. Correct the settings" in late.stderr
    status = CliRunner().invoke(main, ["status", "-f", str(tested.file)])
    assert "\nwarning  12 recent records of join.right are late, and take no part in the join; with " in status.stdout


def test_up_with_only_invalid_records_prints_the_reason_and_fails(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    source.send([(0, record("a", START_MS + number)) for number in range(20)])
    wrong = {"format": "json", "key": {"field": "item"}, "time": {"field": "time"}}
    pipeline = Pipeline(broker, tmp_path, source, splitter=wrong)
    up = CliRunner().invoke(main, ["up", "-f", str(pipeline.file), "--drain", "--log-dir", str(tmp_path / "logs")])
    assert up.exit_code == 1, up.output
    assert "\n20 records: 0 updates of results, 0 late, 20 invalid\n" in up.stdout
    reason = f'"key field item is missing" (20), such as {source.topic}/0/19: {{"key": "a", "value": 1, "time": '
    assert f"\ninvalid records: {reason}" in up.stdout
    assert up.stderr.startswith("error: none of 20 records is in a result: 20 are invalid, and 0 late. Correct")

    status = CliRunner().invoke(main, ["status", "-f", str(pipeline.file)])
    assert status.exit_code == 1, status.output
    assert f"\nproblem  splitter: all 20 records so far are invalid: {reason}" in status.stdout


@pytest.mark.parametrize(
    ("partitions", "sampled", "errors"),
    [(2, 2_000, 0.0), (2, 40, 0.5), (20, 40, 0.5)],
    ids=["all", "some", "four of each partition"],
)
def test_written_tuples_of_a_load_that_fell_are_those_of_the_whole_period(
    broker: str, monkeypatch: pytest.MonkeyPatch, partitions: int, sampled: int, errors: float
) -> None:
    monkeypatch.setattr(data_quality, "SAMPLED", sampled)
    source = Source(broker, partitions)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": source.topic})
    producer.init_transactions(WAIT_S)
    sizes = [1_000] * 20 + [1] * 20 if partitions == 2 else [1_000] * 20
    for size in sizes:  # the last offset of each partition is a marker
        rows = pa.array(["k"] * size)
        value = write_table(pa.table([rows.dictionary_encode(), pa.array([1] * size)], names=["key", "value"]))
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(source.topic, value, partition=partition)
        producer.commit_transaction(WAIT_S)
    kafka = KafkaSettings(bootstrap_servers=broker, connect_timeout_s=WAIT_S)
    found = written_tuples(OffsetReader(kafka), source.topic, 0)
    assert found == pytest.approx(sum(sizes) * partitions, rel=errors or 1e-9)


def test_status_with_late_tuples_warns_until_they_are_no_longer_recent(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    pipeline = Pipeline(broker, tmp_path, source, event_time={"allowed_lateness_s": 2.0})
    source.send([(0, record("a", START_MS + 600_000)), *[(0, record("b", START_MS))] * 20])
    pipeline.drain()

    def status(*options: str) -> Result:
        return CliRunner().invoke(main, ["status", "-f", str(pipeline.file), *options])

    warned = status()
    assert warned.exit_code == 1, warned.output
    assert (
        "\nwarning  95.2 % of the recent tuples are late and in no result; with event_time.allowed_lateness_s: 550 "
        "instead of 2, at most 0.1 % would be late\n"
    ) in warned.stdout
    assert warned.stderr == f"error: pipeline {pipeline.name}: 1 warning\n"
    assert status("--max-late-share", "1").exit_code == 0
    until(lambda: status("--recent", "1s").exit_code == 0)
