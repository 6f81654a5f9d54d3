"""`skewless dead-letters` with the real topics of a pipeline; the dead letters are encoded as the stages do it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.kafka import START_MS, Pipeline, Record, Source, create_topics, read
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.kafka.admin.client import Admin
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.wire.record import OutputRecord

pytestmark = pytest.mark.broker
MALFORMED, MISSING = "malformed JSON", "key field key is missing"
ATTEMPT = "__skewless.replay.attempt"


@pytest.fixture
def pipeline(broker: str, tmp_path: Path) -> Pipeline:
    """Return a pipeline with four records in its source, of which 0/0, 0/1 and 1/0 are invalid."""
    pipeline = Pipeline(broker, tmp_path, Source(broker, 2))
    pipeline.source.send_complete(
        [
            Record(0, 0, START_MS, b"k", b"{", {"trace": b"1"}),
            Record(0, 0, START_MS + 1, None, b"{\x1b", {}),
            Record(0, 0, START_MS + 2, None, b'{"key": "a"}', {}),
            Record(1, 0, START_MS + 3, None, b'{"value": 1}', {}),
        ]
    )
    write_dead_letters(pipeline, [(0, 0, MALFORMED), (0, 1, MALFORMED), (1, 0, MISSING)])
    return pipeline


def write_dead_letters(pipeline: Pipeline, letters: Iterable[tuple[int, int, str]], topic: str | None = None) -> None:
    records = {(record.partition, record.offset): record for record in read(pipeline.bootstrap, pipeline.source.topic)}
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "enable.idempotence": True})
    for partition, offset, reason in letters:
        invalid = records.get((partition, offset))
        texts = {"topic": topic or pipeline.source.topic, "partition": str(partition), "offset": str(offset)}
        headers = {f"__skewless.errors.{name}": text.encode() for name, text in (texts | {"reason": reason}).items()}
        key, value = (invalid.key, invalid.value) if invalid else (None, b"?")
        producer.produce(pipeline.settings.topic("dead-letters"), value, key, partition=partition, headers=headers)
    assert producer.flush(60) == 0


def run(pipeline: Pipeline, command: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["dead-letters", command, "-f", str(pipeline.file), *options])


def replay(pipeline: Pipeline, *options: str) -> str:
    result = run(pipeline, "replay", *options)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def replayed(pipeline: Pipeline, topic: str | None = None) -> list[Record]:
    return [record for record in read(pipeline.bootstrap, topic or pipeline.source.topic) if ATTEMPT in record.headers]


def contents(records: Iterable[Record]) -> Counter[tuple[object, ...]]:
    return Counter((one.partition, one.timestamp, one.value, tuple(sorted(one.headers.items()))) for one in records)


def test_dead_letters_are_counted_by_reason_and_shown(pipeline: Pipeline) -> None:
    topic = pipeline.source.topic
    assert run(pipeline, "list").stdout.split() == ["2", topic, *MALFORMED.split(), "1", topic, *MISSING.split()]
    each = run(pipeline, "list", "--each", "--reason", MISSING).stdout
    assert each == f"{topic}/1/0  {MISSING}\n"
    shown = run(pipeline, "show", f"{topic}/0/1").stdout
    assert f"reason       {MALFORMED}\n" in shown
    assert "value        {?\n" in shown
    found = json.loads(run(pipeline, "show", f"{topic}/0/1", "--json").stdout)
    assert (found["offset"], found["key"], found["value"]) == (1, None, "{\x1b")
    missing = run(pipeline, "show", f"{topic}/0/2")
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)


def test_replay_writes_each_record_once_to_each_topic(pipeline: Pipeline, broker: str) -> None:
    source = pipeline.source.topic
    assert "3 records would be replayed" in replay(pipeline, "--dry-run")
    assert replayed(pipeline) == []
    planned = CliRunner().invoke(main, ["reset", "-f", str(pipeline.file), "--to-start", "--dry-run"])
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert f"1 record replayed to {source}" in replay(pipeline, "--reason", MISSING)
    assert "2 records would be replayed" in replay(pipeline, "--dry-run")
    assert "left out: 1 record replayed before" in replay(pipeline)
    assert "0 records replayed" in replay(pipeline)
    expected = [
        (0, START_MS, b"{", {"trace": b"1"}),
        (0, START_MS + 1, b"{\x1b", {}),
        (1, START_MS + 3, b'{"value": 1}', {}),
    ]
    once = Counter((p, t, value, tuple(sorted({**own, ATTEMPT: b"1"}.items()))) for p, t, value, own in expected)
    assert contents(replayed(pipeline)) == once
    planned = CliRunner().invoke(main, ["reset", "-f", str(pipeline.file), "--to-start", "--dry-run"])
    assert "the next start counts both" in planned.stderr

    other = f"{source}-repair"
    create_topics(broker, {other: 2})
    assert "3 records replayed" in replay(pipeline, "--to", other)
    assert "0 records replayed" in replay(pipeline, "--to", other)
    assert contents(replayed(pipeline, other)) == once


def test_replay_after_a_crash_writes_nothing_twice(pipeline: Pipeline) -> None:
    settings, source = pipeline.settings, pipeline.source.topic
    crashed = TransactionalProducer(
        settings.kafka, settings.transport, lambda name: name, f"{settings.name}-dead-letters-replay"
    )
    crashed.open(WAIT_S)
    crashed.send([OutputRecord(source, b"{", partition=0, headers=[(ATTEMPT, b"1")])])
    crashed.producer.flush(WAIT_S)  # its record is in the log, and its transaction is open
    assert "3 records replayed" in replay(pipeline)
    crashed.close()
    assert len(replayed(pipeline)) == 3


@pytest.mark.thorough
def test_replay_record_that_stays_invalid_ends_after_the_maximum(pipeline: Pipeline) -> None:
    for attempt in (1, 2):
        assert "1 record replayed" in replay(pipeline, "--reason", MISSING, "--max-attempts", "2")
        newest = max(replayed(pipeline), key=lambda record: record.offset)
        assert newest.headers[ATTEMPT] == b"%d" % attempt
        write_dead_letters(pipeline, [(newest.partition, newest.offset, MISSING)])
    answer = replay(pipeline, "--reason", MISSING, "--max-attempts", "2")
    assert "0 records replayed" in answer
    assert "left out: 1 record replayed 2 times, and invalid again" in answer


def test_replay_deleted_and_internal_records_are_left_out(pipeline: Pipeline, broker: str) -> None:
    write_dead_letters(pipeline, [(0, 0, "no schema header")], pipeline.settings.topic("tuples"))
    admin = AdminClient({"bootstrap.servers": broker})  # must outlive its futures
    at = TopicPartition(pipeline.source.topic, 0, 2)
    admin.delete_records([at])[at].result()
    answer = replay(pipeline)
    assert "1 record replayed" in answer
    assert f"left out: 2 records no longer in topic {pipeline.source.topic}\n" in answer
    assert "left out: 1 record of topics that the pipeline writes or no longer reads, which cannot be" in answer


def test_replay_of_a_topic_created_again_leaves_out_its_other_records(pipeline: Pipeline, broker: str) -> None:
    source = pipeline.source
    pipeline.admin.delete_topics([source.topic])[source.topic].result()
    until(lambda: source.topic not in Admin(pipeline.settings.kafka).partition_counts())
    create_topics(broker, {source.topic: 2})
    of_0 = [Record(0, 0, START_MS, key, b"{", {}) for key in (b"k", b"other")]
    source.send_complete([*of_0, Record(1, 0, START_MS, None, b'{"key": "a", "value": 1}', {})])
    write_dead_letters(pipeline, [(0, 1, MALFORMED)])
    answer = replay(pipeline)
    assert "2 records replayed" in answer
    assert "left out: 1 record replayed before" in answer
    assert f"left out: 1 record no longer in topic {source.topic}\n" in answer
    assert {(record.key, record.value) for record in replayed(pipeline)} == {(b"k", b"{"), (b"other", b"{")}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--to", "nowhere"), 3, "topic nowhere does not exist"),
        (("--to", "a b"), 2, "--to: must contain only letters without accents"),
        (("--max-attempts", "0"), 2, "--max-attempts"),
    ],
)
def test_replay_wrong_target_is_one_line(pipeline: Pipeline, options: tuple[str, ...], code: int, message: str) -> None:
    result = run(pipeline, "replay", *options)
    assert (result.exit_code, message in result.stderr) == (code, True), result.output


def test_replay_to_a_topic_of_the_pipeline_is_refused(pipeline: Pipeline) -> None:
    result = run(pipeline, "replay", "--to", pipeline.settings.topic("aggregates"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "is a topic of the pipeline itself" in result.stderr
