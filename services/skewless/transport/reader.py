"""Reads a compacted topic's partition from its beginning to its end: how state is restored."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from skewless.errors import BrokerError, UnreachableError
from skewless.transport.failures import refusal
from skewless.transport.probe import QUIET, READY_S
from skewless.transport.settings import KafkaSettings

READ_RECORDS = 10_000
STALL_S = 60.0
"""Longest wait for records that must come: an open transaction holds them back until the broker aborts it."""

UNUSED_GROUP = "unused"
"""librdkafka wants a group and asks for its coordinator, though partitions are assigned by hand."""
BY_HAND = {
    "group.id": UNUSED_GROUP,
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}
"""Options of a consumer that reads committed records, and is in no group."""

_MOVING = {
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TIMED_OUT,  # noqa: SLF001 - librdkafka's local codes are named so
    KafkaError._TRANSPORT,  # noqa: SLF001
}

_IGNORED = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - it reconnects by itself
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the group that is not used, so nobody needs a right on it
}


def read_latest(
    kafka: KafkaSettings, topic: str, partition: int, wanted: Callable[[bytes], bool]
) -> list[tuple[bytes, bytes]]:
    """Latest value of every key; values of keys that are not `wanted` are left empty. Keys that were deleted are gone.

    Everything that was written when the call began is seen: a commit's markers reach its partitions after the commit
    returned, so it is not enough to read what is stable now.
    """
    options = {**QUIET, **kafka.client_options()}
    begin, end = _span(options, topic, partition)
    latest: dict[bytes, bytes] = {}
    if begin == end:
        return []
    consumer = Consumer({**options, **BY_HAND, "fetch.wait.max.ms": 20})
    try:
        # Not OFFSET_BEGINNING: to look that up librdkafka waits half a second when it does not know the leader yet.
        consumer.assign([TopicPartition(topic, partition, begin)])
        _read_to(consumer, topic, partition, end, lambda key, value: _take(key, value, wanted, latest))
    finally:
        consumer.close()
    return list(latest.items())


def _span(options: dict[str, object], topic: str, partition: int) -> tuple[int, int]:
    """First offset, and the one behind the last record."""
    at = TopicPartition(topic, partition)
    admin = AdminClient(options)  # must outlive its futures
    deadline = time.monotonic() + STALL_S
    while True:
        try:
            admin.list_topics(timeout=READY_S)
            futures = [
                admin.list_offsets({at: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30)[at]
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            ]
            begin, end = (int(future.result(timeout=60).offset) for future in futures)
        except KafkaException as error:
            # Right after a broker has come back, its leaders are not who the client thinks.
            reason = error.args[0]
            doing = f"reading the end of topic {topic} partition {partition}"
            if reason.code() not in _MOVING:
                raise refusal(reason, doing, "Read") or BrokerError(f"{doing}: {reason.str()}") from error
            if time.monotonic() > deadline:
                raise UnreachableError(f"{doing}: {reason.str()}") from error
            time.sleep(0.2)
        else:
            return begin, end


def _read_to(
    consumer: Consumer, topic: str, partition: int, end: int, take: Callable[[bytes, bytes | None], None]
) -> None:
    moved = time.monotonic()
    position = 0
    while position < end:
        for message in consumer.consume(READ_RECORDS, 0.05):
            error = message.error()
            if error is not None:
                if error.code() in _IGNORED:
                    continue
                doing = f"reading topic {topic} partition {partition}"
                raise refusal(error, doing, "Read") or BrokerError(f"{doing}: {error.str()}")
            take(message.key(), message.value())
        at = consumer.position([TopicPartition(topic, partition)])[0].offset
        if at > position:
            position, moved = at, time.monotonic()
        elif time.monotonic() - moved > STALL_S:
            raise UnreachableError(
                f"{topic} partition {partition} gives no records beyond {position}, its end is {end}"
            )


def _take(key: bytes, value: bytes | None, wanted: Callable[[bytes], bool], latest: dict[bytes, bytes]) -> None:
    if value is None:
        latest.pop(key, None)
    else:
        latest[key] = value if wanted(key) else b""
