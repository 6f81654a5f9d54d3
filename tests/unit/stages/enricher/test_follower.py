"""The tables of an enricher follow their topics, also while several partitions are processed at the same time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message

from skewless.engine.message_batch import MessageBatch
from skewless.errors import UnavailableError
from skewless.kafka.settings import KafkaSettings
from skewless.schema_registry.schema import prefix
from skewless.schema_registry.settings import RegistrySettings
from skewless.stages.enricher import follower
from skewless.stages.enricher.follower import TableFollower
from skewless.stages.enricher.settings import TableSettings
from skewless.stages.enricher.table import Table as RealTable
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

KAFKA = KafkaSettings(bootstrap_servers="127.0.0.1:1")
BATCH = MessageBatch.of_outputs(TopicPartition("t", 0), [OutputRecord("t", b"")], 0)


class Offsets:
    """The offsets of an empty topic with one partition."""

    def __init__(self, _kafka: KafkaSettings) -> None: ...

    def ranges(self, _topic: str) -> dict[int, tuple[int, int]]:
        return {0: (0, 0)}

    def end(self, _topic: str) -> dict[int, int]:
        return {0: 2}


class Records:
    """Two portions of records that arrive one after the other."""

    def __init__(self, *_arguments: object) -> None:
        self.portions: list[list[str]] = [["older"], ["newer"]]

    def has_reached(self, ends: dict[int, int]) -> bool:
        return ends[0] <= 2 - len(self.portions)

    def poll(self, _timeout_s: float) -> list[str]:
        return self.portions.pop(0) if self.portions else []


class Table:
    topic = "users"

    def __len__(self) -> int:
        return 0


def followed(
    monkeypatch: pytest.MonkeyPatch, apply: Callable[[Any, Sequence[str]], None], reader: type[Records] = Records
) -> TableFollower:
    """Return a follower of an empty topic, for which records arrive."""
    for name, fake in (("OffsetReader", Offsets), ("TopicReader", reader), ("apply", apply)):
        monkeypatch.setattr(follower, name, fake)
    # A machine that stands still must not look like a time without polls.
    monkeypatch.setattr(follower, "IDLE_S", 3600.0)
    monkeypatch.setattr(follower, "LOOK_S", 7200.0)
    monkeypatch.setattr(follower, "read_topic_ids", lambda _options, _topics: {})
    monkeypatch.setattr(follower, "read_ranges", lambda *_arguments: [])
    tested = TableFollower(KAFKA, [Table()])  # type: ignore[list-item]  # what the follower needs of one
    tested.load()
    return tested


async def test_follower_asked_during_an_update_gives_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[str] = []
    go_on = threading.Event()

    def apply(_table: Any, records: Sequence[str]) -> None:
        go_on.wait()
        applied.extend(records)

    tested = followed(monkeypatch, apply)
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


class NoRecords(Records):
    """No records arrive."""

    def __init__(self, *_arguments: object) -> None:
        self.portions = []


async def test_follower_of_a_topic_with_an_added_partition_reads_it_once_and_follows_it_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges, starts = {0: (1, 2)}, []

    class Started(NoRecords):
        def __init__(self, _kafka: KafkaSettings, _topic: str, offsets: dict[int, int]) -> None:
            super().__init__()
            starts.append(offsets)

    monkeypatch.setattr(Offsets, "ranges", lambda _self, _topic: dict(ranges))
    tested = followed(monkeypatch, lambda _table, _records: None, Started)
    ranges[1] = 3, 5
    for _ in range(2):
        tested._looked_at -= follower.LOOK_S
        update = tested.before_step(BATCH)
        assert update is not None
        await update
    assert starts == [{0: 2}, {1: 5}]


async def test_follower_that_polls_often_does_not_read_the_ends_of_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = followed(monkeypatch, lambda _table, _records: None, NoRecords)
    for _ in range(2):
        tested._polled_at -= follower.IDLE_S / 2
        assert tested.before_step(BATCH) is None


class FullQueue(Records):
    """The second portion is fetched after the first one was returned, because the queue was full."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.polls = 0

    def poll(self, timeout_s: float) -> list[str]:
        self.polls += 1
        return [] if self.polls == 2 else super().poll(timeout_s)


async def test_follower_after_a_time_without_records_applies_all_rows_that_were_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied: list[str] = []
    tested = followed(monkeypatch, lambda _table, records: applied.extend(records), FullQueue)
    tested._polled_at -= follower.IDLE_S
    while (update := tested.before_step(BATCH)) is not None:
        await update
    assert applied == ["older", "newer"]


async def test_follower_whose_records_lack_a_schema_keeps_them_and_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[Sequence[str]] = []
    reported: list[tuple[str, ...]] = []

    def apply(_table: Any, records: Sequence[str]) -> None:
        reported.append(tested.waiting)
        attempts.append(records)
        if len(attempts) < 3:
            raise UnavailableError(f"attempt {len(attempts)}")

    monkeypatch.setattr(follower, "pauses", lambda: itertools.repeat(0.0))
    tested = followed(monkeypatch, apply)
    for _ in range(2):
        update = tested.before_step(BATCH)
        assert update is not None
        await update
    assert attempts == [["older"]] * 3 + [["newer"]]
    assert reported == [(), ("attempt 1",), ("attempt 2",), ()]
    assert tested.waiting == ()


def test_apply_of_several_partitions_without_a_schema_changes_nothing() -> None:
    """A part of the records would otherwise be applied and counted again."""
    settings = TableSettings.model_validate({"topic": "users", "format": "avro", "fields": {"country": "country"}})
    assert settings.format.bind(RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})) is None
    table = RealTable(settings)
    good = Message(topic="users", partition=0, offset=0, key=b"ann", value=b"no schema id")
    waits = Message(topic="users", partition=1, offset=0, key=b"bob", value=prefix(7) + b"\x04de")
    with pytest.raises(UnavailableError, match="table users waits for schema 7: no schema registry answers at"):
        follower.apply(table, [(0, [good]), (1, [waits])])
    assert table.unreadable == 0


def test_apply_of_a_row_whose_key_is_unreadable_keeps_the_row_of_the_empty_key() -> None:
    table = RealTable(TableSettings.model_validate({"topic": "users", "fields": {"country": "country"}}))
    row = Message(topic="users", partition=0, offset=0, key=b"", value=b'{"country": "de"}')
    unreadable = [
        Message(topic="users", partition=0, offset=offset, key=key, value=value)
        for offset, (key, value) in enumerate([(None, b"{}"), (b"\xff", b"{}"), (b"\xff", None)], 1)
    ]
    follower.apply(table, [(0, [row, *unreadable])])
    assert table.fields("") == ["de"]
    assert table.unreadable == 2
