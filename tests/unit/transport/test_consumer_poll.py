"""One poll of the consumer's thread, its consumer a stand-in that fails where a real one does once in a long while."""

from __future__ import annotations

from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from laws.model_process import EagerLoop, Ledger
from skewless.transport.batch import MessageBatch
from skewless.transport.consumer import ConsumerThread
from skewless.transport.flushing_outbox import FlushingOutbox
from skewless.transport.membership import GroupMembership
from skewless.transport.session import Session
from skewless.transport.settings import KafkaSettings, TransportSettings


class Message:
    """The first record of a poll."""

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def value(self) -> bytes:
        return b"x"


class Failing:
    """Gives one record, and then an error that librdkafka mends by itself."""

    def poll(self, _timeout: float) -> Message:
        return Message()

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...


def test_a_record_that_was_read_is_handed_over_whatever_comes_behind_it() -> None:
    delivered: list[MessageBatch] = []
    transport = TransportSettings(guarantee="at_least_once")
    thread = ConsumerThread(
        loop=cast("Any", EagerLoop()),
        session=Session(Ledger(drain=False)),
        outbox=FlushingOutbox(KafkaSettings(), transport, str),
        topic="in",
        options={"group.id": "g"},
        transport=transport,
        connect_timeout_s=1,
        deliver=delivered.append,
        assigned=lambda _partitions: None,
        stopped=lambda _failure: None,
        restore=lambda _positions: {},
        membership=GroupMembership({}, "g", "i"),
    )
    thread._consumer = cast("Any", Failing())
    thread._poll()
    assert [batch.next_offset for batch in delivered] == [8]
