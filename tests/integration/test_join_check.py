"""`skewless join check` against a real Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from helpers.kafka import START_MS, create_topics
from helpers.waiting import WAIT_S
from skewless.cli.main import main

pytestmark = pytest.mark.broker
Row = tuple[str, int, str | None, int]
"""Id, time after START_MS in ms, record key, partition."""
IDS = 300


class Topics:
    """Two topics of a join, and its file."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.broker, self.names = broker, {side: f"{side}-{uuid.uuid4().hex[:8]}" for side in ("left", "right")}
        sides = {
            side: {"topic": name, "id": {"field": "id"}, "time": {"field": "time"}} for side, name in self.names.items()
        }
        kafka = {"bootstrap_servers": broker, "connect_timeout_s": WAIT_S}
        document = {"name": "checked", "kafka": kafka, "join": {**sides, "apart_s": 2}}
        self.file = folder / "pipeline.yaml"
        self.file.write_text(json.dumps(document))

    def create(self, side: str, partitions: int = 2, **options: str) -> None:
        create_topics(self.broker, {self.names[side]: partitions}, **options)

    def write(self, side: str, rows: Iterable[Row]) -> None:
        producer = Producer({"bootstrap.servers": self.broker, "enable.idempotence": True})
        errors: list[object] = []
        for record_id, time, key, partition in rows:
            value = json.dumps({"id": record_id, "time": START_MS + time})
            producer.produce(
                self.names[side], value, key, partition=partition, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(60) == 0
        assert not any(errors), errors

    def check(self, *options: str) -> Result:
        return CliRunner().invoke(main, ["join", "check", "-f", str(self.file), *options])


@pytest.fixture
def topics(broker: str, tmp_path: Path) -> Topics:
    return Topics(broker, tmp_path)


def rows(partition: Callable[[int], int] = lambda number: number % 2) -> list[Row]:
    return [(f"{number}", number, f"{number}", partition(number)) for number in range(IDS)]


def test_join_check_topics_that_fit_have_no_problem_and_no_group_is_created(broker: str, topics: Topics) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    before = {group.group_id for group in admin.list_consumer_groups().result().valid}
    for side in topics.names:
        topics.create(side)
        topics.write(side, rows())
    result = topics.check()
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert f"left     topic {topics.names['left']}: 2 partitions, 300 records read, disorder 0 s" in result.stdout
    assert "ids      300 in both samples, 0 of them in different partition numbers" in result.stdout
    assert {group.group_id for group in admin.list_consumer_groups().result().valid} <= before


@pytest.mark.parametrize(
    ("right", "problem"),
    [
        (rows(lambda number: (number + (number < 30)) % 2), "30 of 300 ids (10.00%) of both samples are in different"),
        ([(name, time, "x", part) for name, time, _, part in rows()], "the key of 300 of 300 records (100.00%) is not"),
        ([*rows(), ("1", -4_000, "1", 1)], "are up to 4.299 s older than one before them, and join.sync_delay_s tol"),
        ([*rows(), ("", 400, "", 0)], "1 of 301 records (0.33%) are invalid, they go to dead-letters: empty id (1)"),
        ([(f"x{name}", time, f"x{name}", part) for name, time, _, part in rows()], "no id is in both samples, of 300"),
        ([], "is empty: it has 2 partitions and no records"),
    ],
    ids=["other partitioner", "other key", "disorder", "invalid", "other ids", "empty"],
)
def test_join_check_right_topic_that_does_not_fit_is_a_problem(topics: Topics, right: list[Row], problem: str) -> None:
    for side, records in {"left": rows(), "right": right}.items():
        topics.create(side)
        topics.write(side, records)
    result = topics.check("--json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["problems"]
    assert problem in found
    assert result.stderr == "error: the topics do not fit the join: 1 problem\n"


def test_join_check_partition_counts_and_retention_are_compared_with_the_settings(topics: Topics) -> None:
    topics.create("left", 2)
    topics.create("right", 3, **{"retention.ms": "1000"})
    for side in topics.names:
        topics.write(side, rows())
    result = topics.check()
    assert result.exit_code == 1
    problems = [line for line in result.stdout.splitlines() if line.startswith("problem")]
    assert "has 2 partitions and topic" in problems[0]
    assert "keeps records for 1 s (retention.ms)" in problems[1]


def test_join_check_repartitioned_topics_may_have_other_keys_and_partitions(topics: Topics) -> None:
    topics.create("left", 2)
    topics.create("right", 3)
    topics.write("left", rows())
    topics.write("right", [(name, time, "x", (part + 1) % 2) for name, time, _, part in rows()])
    assert len(json.loads(topics.check("--json").stdout)["problems"]) == 3
    result = topics.check("--set", "join.repartition=always")
    assert (result.exit_code, result.stderr) == (0, ""), result.output


def test_join_check_missing_topic_is_named_with_its_setting(topics: Topics) -> None:
    topics.create("left")
    result = topics.check()
    assert result.exit_code == 3
    assert f"topic {topics.names['right']} does not exist" in result.stderr
    assert "correct join.right.topic" in result.stderr
