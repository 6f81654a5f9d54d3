"""Reads a range of offsets of each partition of a topic. Does not join a consumer group and commits no offsets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.clients import create_client
from skewless.kafka.consumer.read_compacted import MANUAL_ASSIGNMENT, READ_RECORDS, STALL_TIMEOUT_S
from skewless.kafka.errors import authorization_error
from skewless.kafka.reachability import QUIET
from skewless.kafka.settings import KafkaSettings

POLL_S = 0.2


class ReadAhead(NamedTuple):
    """Limits of what is read before it is needed. They bound the memory for any number of partitions.

    In memory, small records take about ten times their size.
    """

    batch_records: int = READ_RECORDS
    """Largest number of records of a batch."""
    fetch_bytes: int = 2**20
    """Largest response of a broker for one partition, unless a record is larger."""
    queue_bytes: int = 2**23
    """Size of the records in librdkafka's queue above which it fetches no more."""
    queued_records: int = 10_000
    """Number of records of a partition in the queue from which on librdkafka fetches no more of this partition."""

    def client_options(self) -> dict[str, int]:
        """Return librdkafka's options."""
        return {
            "fetch.message.max.bytes": self.fetch_bytes,
            "queued.max.messages.kbytes": self.queue_bytes // 1024,
            "queued.min.messages": self.queued_records,
            "fetch.queue.backoff.ms": 20,
        }


DEFAULT_READ_AHEAD = ReadAhead()
_FETCH_FIRST = {**ReadAhead(fetch_bytes=2**16, queued_records=1).client_options(), "fetch.wait.max.ms": 20}
"""Options for reads of one record of each partition."""
_IGNORED = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's local codes are named so; it reconnects by itself
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the unused group: no permission on it is needed
}


def read_ranges(
    kafka: KafkaSettings,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
    read_ahead: ReadAhead = DEFAULT_READ_AHEAD,
) -> Iterator[tuple[int, list[Message]]]:
    """Yield the committed records of each range (first offset, end offset exclusive) in batches of one partition.

    Batches of a partition are in the order of their offsets. Their sizes, and their order among those of other
    partitions, depend on the broker's responses.

    Raises BrokerError if the broker refuses the reads, and UnreachableError if no record arrives for a minute although
    a range is not read to its end.
    """
    unread = {partition: end for partition, (begin, end) in ranges.items() if begin < end}
    if not unread:
        return
    consumer = create_client(
        Consumer, {**QUIET, **read_ahead.client_options(), **kafka.client_options(), **MANUAL_ASSIGNMENT}
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in unread])
        advanced_at = time.monotonic()
        while unread:
            batches = _by_partition(consumer.consume(read_ahead.batch_records, POLL_S), topic)
            for partition, messages in batches.items():
                if records := [message for message in messages if message.offset() < ranges[partition][1]]:
                    yield partition, records
            finished = _finished(consumer, topic, unread)
            if batches or finished:
                advanced_at = time.monotonic()
            elif time.monotonic() > advanced_at + STALL_TIMEOUT_S:
                raise _no_records(kafka, topic)
            if finished:
                for partition in finished:
                    del unread[partition]
                consumer.incremental_unassign([TopicPartition(topic, partition) for partition in finished])


def first_records(kafka: KafkaSettings, topic: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, Message]:
    """Return the first committed record of each range, without the ranges that contain none.

    Raises the errors of `read_ranges`.
    """
    unread = {partition: end for partition, (begin, end) in ranges.items() if begin < end}
    found: dict[int, Message] = {}
    if not unread:
        return found
    consumer = create_client(Consumer, {**QUIET, **_FETCH_FIRST, **kafka.client_options(), **MANUAL_ASSIGNMENT})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in unread])
        deadline = time.monotonic() + STALL_TIMEOUT_S
        while unread:
            for partition, messages in _by_partition(consumer.consume(READ_RECORDS, POLL_S), topic).items():
                if partition in unread and messages[0].offset() < unread[partition]:
                    found[partition] = messages[0]
            if finished := {*_finished(consumer, topic, unread), *(found.keys() & unread)}:
                for partition in finished:
                    del unread[partition]
                consumer.incremental_unassign([TopicPartition(topic, partition) for partition in finished])
            elif time.monotonic() > deadline:
                raise _no_records(kafka, topic)
    return found


def _no_records(kafka: KafkaSettings, topic: str) -> UnreachableError:
    return UnreachableError(
        f"no records from topic {topic} at {kafka.bootstrap_servers} within {STALL_TIMEOUT_S:g} s, and its end offset "
        "was not reached"
    )


def _by_partition(messages: list[Message], topic: str) -> dict[int, list[Message]]:
    batches: dict[int, list[Message]] = {}
    for message in messages:
        error = message.error()
        if error is None:
            batches.setdefault(message.partition(), []).append(message)
        elif error.code() not in _IGNORED:
            operation = f"reading topic {topic}"
            raise authorization_error(error, operation, "Read") or BrokerError(f"{operation}: {error.str()}")
    return batches


def _finished(consumer: Consumer, topic: str, ends: Mapping[int, int]) -> list[int]:
    positions = consumer.position([TopicPartition(topic, partition) for partition in ends])
    return [position.partition for position in positions if position.offset >= ends[position.partition]]
