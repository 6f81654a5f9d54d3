"""librdkafka reports the end of a partition again after a resume. The engine relies on it."""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from helpers.waiting import WAIT_S
from integration.engine.harness import Harness

END = "end"


def read_to_end(consumer: Consumer) -> list[str]:
    """Return the values of the next records, and `end` after the last one."""
    found: list[str] = []
    deadline = time.monotonic() + WAIT_S
    while END not in found:
        assert time.monotonic() < deadline
        for message in consumer.consume(10, 0.1):
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF
            found.append((message.value() or b"").decode() if error is None else END)
    return found


def test_consumer_partition_that_is_resumed_reports_its_end_again(broker: str) -> None:
    harness = Harness(broker)
    partition = TopicPartition(harness.topic("in"), 0, 0)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    producer.produce(partition.topic, b"first", partition=0)
    assert producer.flush(WAIT_S) == 0
    options = {"bootstrap.servers": broker, "group.id": harness.prefix, "enable.partition.eof": True}
    with contextlib.closing(Consumer(options)) as consumer:
        consumer.assign([partition])
        assert read_to_end(consumer) == ["first", END]
        consumer.pause([partition])
        consumer.resume([partition])
        assert read_to_end(consumer) == [END]
        consumer.pause([partition])
        producer.produce(partition.topic, b"second", partition=0)
        assert producer.flush(WAIT_S) == 0
        consumer.resume([partition])
        assert read_to_end(consumer) == ["second", END]
