"""Reads of committed records: to an end with markers, over deleted records, and of a changelog."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from helpers.waiting import WAIT_S
from integration.engine.harness import Harness
from skewless.errors import UnreachableError
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer import topic_reader
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import (
    PartitionRecords,
    ReadAhead,
    ReadProgress,
    TopicReader,
    first_batches,
    first_records,
    has_records_after,
    read_compacted,
    read_ranges,
)


class Writer:
    """Writes transactions to topic `out`."""

    def __init__(self, harness: Harness) -> None:
        self._topic = harness.topic("out")
        self._producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": harness.prefix})
        self._producer.init_transactions(WAIT_S)

    def begin(self, values: Iterable[bytes], partition: int = 0) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value, b"key", partition=partition)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)


def values(batches: Iterable[PartitionRecords]) -> list[bytes | None]:
    return [message.value() for _, messages in batches for message in messages]


def partition_0(harness: Harness, name: str = "out") -> dict[int, tuple[int, int]]:
    return {0: OffsetReader(harness.kafka).ranges(harness.topic(name))[0]}


def test_read_ranges_aborted_records_and_markers_at_the_end_are_passed_at_once(broker: str) -> None:
    harness = Harness(broker)
    writer, topic, started = Writer(harness), harness.topic("out"), time.monotonic()
    writer.begin([b"committed"])
    writer.commit()
    writer.begin([b"aborted"])
    writer.abort()
    writer.begin([b"of another partition"], partition=1)
    writer.abort()
    offset_reader = OffsetReader(harness.kafka)
    ranges = offset_reader.ranges(topic)
    assert ranges == {0: (0, 4), 1: (0, 2), 2: (0, 0), 3: (0, 0)}
    assert values(read_ranges(harness.kafka, topic, ranges)) == [b"committed"]
    first = first_records(harness.kafka, topic, ranges)
    assert {partition: message.value() for partition, message in first.items()} == {0: b"committed"}
    assert values(first_batches(harness.kafka, topic, ranges, 5)) == [b"committed"]
    assert has_records_after(offset_reader, topic, {0: 0, 1: 0})
    assert not has_records_after(offset_reader, topic, {0: 1, 1: 0})
    assert not has_records_after(offset_reader, topic, {0: 0}, bool)
    assert time.monotonic() < started + WAIT_S


def test_first_batches_end_after_enough_records_or_bytes(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(broker)
    writer, topic = Writer(harness), harness.topic("out")
    for number in range(3):
        writer.begin([b"%d" % number, b"0"])
        writer.commit()
    ranges = OffsetReader(harness.kafka).ranges(topic)
    assert values(first_batches(harness.kafka, topic, ranges, 3)) == [b"0", b"0", b"1"]
    for _ in range(30):
        writer.begin([b"x" * 100_000])
        writer.commit()
    monkeypatch.setattr(topic_reader, "FIRST_BYTES", 100)
    ranges = OffsetReader(harness.kafka).ranges(topic)
    assert len(values(first_batches(harness.kafka, topic, ranges, 1_000_000))) < 36


def test_read_ranges_during_an_open_transaction_ends_before_it(broker: str) -> None:
    harness = Harness(broker)
    writer = Writer(harness)
    writer.begin([b"committed"])
    writer.commit()
    writer.begin([b"open"])
    assert values(read_ranges(harness.kafka, harness.topic("out"), partition_0(harness))) == [b"committed"]
    writer.abort()


def test_read_ranges_within_the_log_has_exactly_their_records(broker: str) -> None:
    harness = Harness(broker, partitions=2)
    harness.fill(200)
    found = read_ranges(harness.kafka, harness.topic("in"), {0: (10, 12), 1: (99, 100)})
    assert sorted(values(found), key=str) == [b"199", b"20", b"22"]


def test_read_ranges_of_records_that_retention_deletes_continues_at_the_new_beginning(broker: str) -> None:
    harness = Harness(broker, partitions=1)
    harness.fill(100)
    ranges = partition_0(harness, "in")
    harness.delete_records("in", before=60)
    found = values(read_ranges(harness.kafka, harness.topic("in"), ranges))
    assert found == [str(number).encode() for number in range(60, 100)]


def test_read_ranges_while_partitions_are_added_reads_those_of_the_ranges(broker: str) -> None:
    harness = Harness(broker, partitions=1)
    harness.fill(100)
    batches = read_ranges(harness.kafka, harness.topic("in"), partition_0(harness, "in"), ReadAhead(batch_records=10))
    found = values([next(batches)])
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_partitions([NewPartitions(harness.topic("in"), 3)])[harness.topic("in")].result(WAIT_S)
    assert found + values(batches) == [str(number).encode() for number in range(100)]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["end beyond the log", "topic deleted"])
def test_read_ranges_that_does_not_advance_names_the_broker_and_the_offsets(
    broker: str, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    harness = Harness(broker, partitions=1)
    harness.fill(1)
    batches = read_ranges(harness.kafka, harness.topic("in"), {0: (0, 2)})
    assert values([next(batches)]) == [b"0"]
    monkeypatch.setattr(topic_reader, "STALL_TIMEOUT_S", 1.0)
    if is_deleted:
        Admin(harness.kafka).delete(harness.topic("in"))
    message = f"{harness.topic('in')} at {broker} within 1 s: partition 0 was read to offset 1, and its end offset is 2"
    with pytest.raises(UnreachableError, match=message):
        next(batches)


def test_read_ranges_that_reads_nothing_names_the_first_offset(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(broker, partitions=1)
    monkeypatch.setattr(topic_reader, "STALL_TIMEOUT_S", 1.0)
    with pytest.raises(UnreachableError, match="partition 0 was read to offset 0, and its end offset is 1"):
        next(read_ranges(harness.kafka, harness.topic("in"), {0: (0, 1)}))


def test_topic_reader_from_the_end_returns_records_that_are_committed_later(broker: str) -> None:
    harness = Harness(broker)
    writer, topic = Writer(harness), harness.topic("out")
    writer.begin([b"earlier"])
    writer.commit()
    with TopicReader(harness.kafka, topic, OffsetReader(harness.kafka).end(topic)) as reader:
        writer.begin([b"later"])
        assert reader.poll(0.5) == []
        writer.commit()
        deadline, found = time.monotonic() + WAIT_S, list[bytes | None]()
        while not found and time.monotonic() < deadline:
            found = values(reader.poll(0.05))
    assert found == [b"later"]


def test_read_compacted_transaction_open_at_the_start_waits_for_its_end(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker of a commit can reach a partition after the commit has returned. Its records are stable only then."""
    harness = Harness(broker, partitions=1)
    writer = Writer(harness)
    writer.begin([b"value"])

    def made(options: dict[str, Any]) -> Consumer:
        # The reader creates its consumer after it has determined the end offsets.
        writer.commit()
        return Consumer(options)

    monkeypatch.setattr(topic_reader, "Consumer", made)
    assert read_compacted(harness.kafka, harness.topic("out"), 0) == [(b"key", b"value")]


class Observed(ReadProgress):
    """Notes what remained at each update."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[int] = []

    def update(self, topic: str, partition: int, remaining: int) -> None:
        super().update(topic, partition, remaining)
        self.noted.append(self.remaining)


def test_read_compacted_progress_falls_from_the_size_of_the_log_to_zero(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(broker, partitions=1)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(100):
        producer.produce(harness.topic("out"), b"value", b"%d" % (number % 7), partition=0)
    producer.produce(harness.topic("out"), None, b"0", partition=0)
    assert producer.flush(WAIT_S) == 0
    monkeypatch.setattr(topic_reader, "WHOLE_PARTITION", ReadAhead(batch_records=30))
    progress = Observed()
    state = read_compacted(harness.kafka, harness.topic("out"), 0, lambda key: key != b"1", progress)
    assert dict(state) == {b"1": b"", **{b"%d" % number: b"value" for number in range(2, 7)}}
    assert (progress.noted[0], progress.noted[-1]) == (101, 0)
    assert len(progress.noted) >= 4
    assert progress.noted == sorted(progress.noted, reverse=True)
