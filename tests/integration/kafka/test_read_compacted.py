"""Reads a changelog. Records whose transaction is open when the read begins belong to the state."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from integration.engine.harness import Harness
from skewless.kafka.consumer import read_compacted
from skewless.kafka.consumer.read_compacted import ReadProgress


def test_read_compacted_transaction_open_at_the_start_waits_for_its_end(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker of a commit can reach a partition after the commit has returned. Its records are stable only then."""
    harness = Harness(broker, partitions=1)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": harness.prefix})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(harness.topic("out"), b"value", b"key", partition=0)
    assert producer.flush(20) == 0

    def made(options: dict[str, Any]) -> Consumer:
        # The reader creates its consumer after it has determined the end offsets.
        producer.commit_transaction(20)
        return Consumer(options)

    monkeypatch.setattr(read_compacted, "Consumer", made)
    assert read_compacted.read_compacted(harness.kafka, harness.topic("out"), 0, lambda _key: True) == [
        (b"key", b"value")
    ]


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
    producer = Producer({"bootstrap.servers": broker})
    for number in range(100):
        producer.produce(harness.topic("out"), b"value", b"%d" % (number % 7), partition=0)
    assert producer.flush(20) == 0
    monkeypatch.setattr(read_compacted, "READ_RECORDS", 30)
    progress = Observed()
    state = read_compacted.read_compacted(harness.kafka, harness.topic("out"), 0, lambda _key: True, progress)
    assert len(state) == 7
    assert (progress.noted[0], progress.noted[-1]) == (100, 0)
    assert len(progress.noted) >= 4
    assert progress.noted == sorted(progress.noted, reverse=True)
