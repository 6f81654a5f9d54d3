"""The tables of an enricher follow their topics, also while several partitions are processed at the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from skewless.engine.message_batch import MessageBatch
from skewless.kafka.settings import KafkaSettings
from skewless.stages.enricher import follower
from skewless.stages.enricher.follower import TableFollower
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

KAFKA = KafkaSettings(bootstrap_servers="127.0.0.1:1")
BATCH = MessageBatch.of_outputs(TopicPartition("t", 0), [OutputRecord("t", b"")], 0)


class Offsets:
    """The offsets of an empty topic with one partition."""

    def __init__(self, _kafka: KafkaSettings) -> None: ...

    def begin(self, _topic: str) -> dict[int, int]:
        return {0: 0}

    def log_range(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, 0


class Records:
    """Two portions of records that arrive one after the other."""

    def __init__(self, *_arguments: object) -> None:
        self.portions: list[list[str]] = [["older"], ["newer"]]

    def poll(self, _timeout_s: float) -> list[str]:
        return self.portions.pop(0) if self.portions else []


class Table:
    topic = "users"

    def __len__(self) -> int:
        return 0


async def test_follower_asked_during_an_update_gives_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[str] = []
    go_on = threading.Event()

    def apply(_table: Any, records: Sequence[str]) -> None:
        go_on.wait()
        applied.extend(records)

    for name, fake in (("OffsetReader", Offsets), ("TopicReader", Records), ("apply", apply)):
        monkeypatch.setattr(follower, name, fake)
    monkeypatch.setattr(follower, "read_ranges", lambda *_arguments: [])
    tested = TableFollower(KAFKA, [Table()])  # type: ignore[list-item]  # what the follower needs of one
    tested.load()

    first, second = tested.before_step(BATCH), tested.before_step(BATCH)
    assert first is second
    assert first is not None
    go_on.set()
    await first
    third = tested.before_step(BATCH)
    assert third is not None
    await third
    assert applied == ["older", "newer"]
    assert tested.before_step(BATCH) is None
