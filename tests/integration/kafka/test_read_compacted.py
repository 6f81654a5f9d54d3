"""Reads a changelog: records whose transaction is open when the read begins belong to the state."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from integration.engine.harness import Stand
from skewless.kafka.consumer import read_compacted


def test_read_compacted_transaction_open_at_the_start_waits_for_its_end(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The markers of a commit reach a partition after the commit returned: until then its records are not stable."""
    stand = Stand(broker, partitions=1)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": stand.prefix})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(stand.topic("out"), b"value", b"key", partition=0)
    assert producer.flush(20) == 0

    def made(options: dict[str, Any]) -> Consumer:
        # The reader makes its consumer when it knows how far to read.
        producer.commit_transaction(20)
        return Consumer(options)

    monkeypatch.setattr(read_compacted, "Consumer", made)
    assert read_compacted.read_compacted(stand.kafka, stand.topic("out"), 0, lambda _key: True) == [(b"key", b"value")]
