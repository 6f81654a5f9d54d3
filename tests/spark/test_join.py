"""The join as a Spark job has the answer of its definition, and of the stream."""
# ruff: noqa: S311 - the records are seeded, not secret

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from helpers.join_oracle import Event, answer
from skewless.algorithms.join.window_join import Side
from skewless.stages.join.settings import JoinSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT, RIGHT = Side
SIDES: dict[str, Any] = {
    side: {"topic": side, "id": {"field": "id"}, "time": {"field": "time"}} for side in ("left", "right")
}
INPUT = "side string, partition int, offset bigint, timestamp bigint, key binary, value binary"
Logs = dict[tuple[Side, int], list[Event]]


def settings(**changes: Any) -> JoinSettings:
    return JoinSettings.model_validate(SIDES | {"apart_s": 0.005, "sync_delay_s": 0.008, "window_s": 0.007} | changes)


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


def expected(logs: Logs, join: JoinSettings, *, ended: bool) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for partition in range(2):
        result = answer(logs[LEFT, partition], logs[RIGHT, partition], join.rules(), ended=ended)
        found.update(("joined", partition, *pair) for pair in result.pairs)
        found.update(("unmatched-left", partition, at) for at in result.unmatched_left if join.kind == "left")
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


@pytest.mark.parametrize(("kind", "batch_rows"), [("left", "10000"), ("inner", "20")])
def test_join_answer_of_random_logs_is_that_of_the_definition(spark: SparkSession, kind: str, batch_rows: str) -> None:
    from skewless.spark import join_pipeline

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
    try:
        for seed in range(2):
            logs, join = random_logs(seed), settings(kind=kind)
            found = join_pipeline.answer(spark.createDataFrame(rows_of(logs), INPUT), join)
            rows = found.rows.collect()
            found.close()
            assert Counter(map(outcome, rows)) == expected(logs, join, ended=True)
            assert Counter(outcome(row) for row in rows if row.decided) == expected(logs, join, ended=False)
            assert sum(found.records.values()) == len(rows_of(logs))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_join_answer_invalid_records_are_counted_by_reason(spark: SparkSession) -> None:
    from skewless.spark import join_pipeline

    rows = [
        ("left", 0, 0, 0, b"a", b'{"id": "a", "time": 5}'),
        ("left", 0, 1, 0, b"b", b'{"id": "a", "time": 5}'),
        ("right", 0, 0, 0, b"a", None),
        ("right", 0, 1, 0, b"a", b'{"id": "a", "time": 99}'),
    ]
    found = join_pipeline.answer(spark.createDataFrame(rows, INPUT), settings(), newest=50)
    assert [row.topic for row in found.rows.collect()] == ["unmatched-left"]
    assert list(found.invalid.values()) == [1, 1, 1]
    assert [reason.partition(": ")[0] for reason in found.invalid] == ["left", "right", "right"]
    found.close()
