"""Offsets of a topic and its groups, read without joining a group."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from helpers.kafka import START_MS, Record, Source
from helpers.waiting import WAIT_S
from integration.engine.harness import Harness
from skewless.errors import BrokerError
from skewless.kafka.consumer.offsets import OffsetReader


def test_offset_reader_during_an_open_transaction_returns_committed_offsets_and_metadata(broker: str) -> None:
    harness = Harness(broker)
    positions, group, topic = OffsetReader(harness.kafka), f"{harness.prefix}-copy", harness.topic("in")
    assert positions.committed(group, topic) == {}

    member = Consumer({"bootstrap.servers": broker, "group.id": group}).consumer_group_metadata()
    producer = Producer({"bootstrap.servers": broker, "transactional.id": harness.prefix})
    producer.init_transactions(WAIT_S)
    for offset in (7, 8):
        producer.begin_transaction()
        producer.produce(harness.topic("out"), b"x", partition=0)
        saved = f"at {offset}\n[2,60000]"
        producer.send_offsets_to_transaction([TopicPartition(topic, 1, offset, saved)], member, WAIT_S)
        if offset == 7:
            producer.commit_transaction(WAIT_S)
    (committed,) = positions.committed(group, topic).items()
    assert (committed[0], committed[1].offset, committed[1].checkpoint) == (1, 7, "at 7")
    producer.abort_transaction(WAIT_S)


def test_offset_reader_missing_topic_has_no_committed_offsets_and_no_end(broker: str) -> None:
    positions = OffsetReader(Harness(broker).kafka)
    assert positions.committed("any", "nowhere") == {}
    with pytest.raises(BrokerError, match="nowhere does not exist"):
        positions.end("nowhere")


@pytest.mark.parametrize("time_ms", [-1, -3_600_000], ids=["-1, the end to a broker", "1970-01-01T00:00:00+01:00"])
def test_offset_reader_at_a_time_before_1970_returns_the_first_offsets(time_ms: int, broker: str) -> None:
    source = Source(broker, 1)
    source.send_complete([Record(0, 0, START_MS, b"k", None, {})])
    assert OffsetReader(Harness(broker).kafka).at_time(source.topic, time_ms) == {0: 0}
