"""BulkProducer: sends raw records to one topic for commands, idempotent and without transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from zlib import crc32

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from numpy.typing import NDArray

from skewless.errors import BrokerError, ConfigurationError, SkewlessError, UnreachableError
from skewless.kafka.admin.client import Admin
from skewless.kafka.admin.topics import EVENT_TIME_OPTIONS
from skewless.kafka.clients import create_client
from skewless.kafka.errors import ErrorClass, authorization_error, class_of
from skewless.kafka.reachability import QUIET
from skewless.kafka.settings import KafkaSettings
from skewless.wire.record import Headers

Header = tuple[str, bytes | None]

RUN = 100
"""Consecutive records that go to one partition before the next partition follows."""
WAIT_S = 0.1
_RETAINED_TOPIC_OPTIONS = {**EVENT_TIME_OPTIONS, "retention.ms": "-1"}
"""Recorded streams have timestamps of years ago, so the broker's default retention would delete them at once."""


def prepare_topic(kafka: KafkaSettings, topic: str, create: int | None, replication_factor: int | None = None) -> int:
    """Return a topic's number of partitions. A missing topic is created with `create` partitions, unless it is None.

    A replication factor of None is the brokers' default. Raises UnreachableError if no broker answers within
    `kafka.connect_timeout_s`, BrokerError if the topic is missing and is not created, and ConfigurationError if an
    existing topic does not have `create` partitions.
    """
    admin = Admin(kafka)
    existing = admin.partition_counts().get(topic)
    if existing is not None:
        if create not in (None, existing):
            raise ConfigurationError(
                f"--partitions {create}: topic {topic} exists, with {existing} partitions; "
                "leave the option out to use it as it is"
            )
        return existing
    admin.check_visible([topic])
    if create is None:
        raise BrokerError(
            f"topic {topic} does not exist at {kafka.bootstrap_servers}: "
            "create it, or let this command do so with --partitions N"
        )
    admin.create(topic, create, replication_factor, _RETAINED_TOPIC_OPTIONS)
    admin.wait_for_leaders({topic: create})
    return create


def partitions_of(
    first: int, count: int, partitions: int, keys: Sequence[bytes | None] | None = None
) -> NDArray[np.int64]:
    """Return the partition of each record from index `first` on: that of its key or, without keys, of its position."""
    if keys is None:
        return np.arange(first, first + count) // RUN % partitions
    return np.fromiter((crc32(key or b"") % partitions for key in keys), dtype=np.int64, count=count)


class BulkProducer:
    """Sends records to the partitions of a topic in a fixed order: record i to partition `(i // RUN) % partitions`.

    A record with a key goes to the partition of its key, which is that of librdkafka. So equal records produce equal
    logs. `first` is the number of the first partition.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, partitions: int, *, first: int = 0) -> None:
        self._kafka = kafka
        self._topic = topic
        self._partitions = partitions
        self._first = first
        self._failure: KafkaError | None = None
        self._undelivered = 0
        self.taken = 0
        """Records accepted for sending."""
        self._producer = create_client(Producer, self._options())

    @property
    def delivered(self) -> int:
        """Records that the broker has acknowledged."""
        return self.taken - self._undelivered - len(self._producer)

    def send(
        self,
        values: Sequence[bytes | None],
        times: Sequence[int],
        keys: Sequence[bytes | None] | None = None,
        headers: Iterable[Headers] | None = None,
    ) -> None:
        """Enqueue records with their timestamps (ms), keys and headers. Waits while the queue is full.

        Raises BrokerError as soon as a record is lost, UnreachableError if that is because the broker did not answer.
        """
        target_partitions = self._first + partitions_of(self.taken, len(values), self._partitions, keys)
        produce, topic = self._producer.produce, self._topic
        # One call per record, 2.0 us each. `produce_batch` takes 1.2 us per record, but accepts no timestamps, which
        # carry event time.
        header_lists: Iterable[list[Header] | None] = repeat(None) if headers is None else map(list, headers)
        # librdkafka replaces the timestamp 0 by the current time. 1 is the nearest one that it writes.
        timestamps = (time or 1 for time in times)
        columns = (values, target_partitions.tolist(), timestamps, keys or repeat(None), header_lists)
        try:
            for value, partition, timestamp, key, header_list in zip(*columns, strict=False):
                try:
                    produce(topic, value, key, partition=partition, timestamp=timestamp, headers=header_list)
                except BufferError:
                    self._produce_when_there_is_room(value, key, partition, timestamp, header_list)
                self.taken += 1
            self._producer.poll(0)
        except KafkaException as error:
            raise self._send_error(error.args[0]) from error
        self._raise_failure()

    def flush(self) -> None:
        """Wait until all accepted records are acknowledged. Raises the same errors as `send`."""
        while self._producer.flush(WAIT_S):
            self._raise_failure()
        self._raise_failure()

    def close(self) -> None:
        """Discard queued records."""
        self._producer.purge()
        self._producer.flush(WAIT_S)

    def _produce_when_there_is_room(
        self, value: bytes | None, key: bytes | None, partition: int, timestamp: int, headers: list[Header] | None
    ) -> None:
        while True:
            self._producer.poll(WAIT_S)
            self._raise_failure()
            try:
                self._producer.produce(self._topic, value, key, partition, timestamp=timestamp, headers=headers)
            except BufferError:
                continue
            return

    def _options(self) -> dict[str, object]:
        return {
            **QUIET,
            "linger.ms": 20,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 64 * 1024,
            "message.timeout.ms": round(max(60.0, self._kafka.connect_timeout_s) * 1000),
            **self._kafka.client_options(),
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": self._report,
        }

    def _report(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._undelivered += 1
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._send_error(self._failure)

    def _send_error(self, error: KafkaError) -> SkewlessError:
        if error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001 - librdkafka's own errors are named so
            return UnreachableError(
                f"{self._kafka.bootstrap_servers} stopped answering while records were sent to {self._topic}: "
                f"{self.delivered:,} of them were delivered; check the broker, then start again with an empty topic"
            )
        is_refused = class_of(error) is ErrorClass.UNAUTHORIZED
        refusal = authorization_error(error, f"sending to topic {self._topic}", "Write") if is_refused else None
        return refusal or BrokerError(f"cannot send to topic {self._topic}: {error.str()}")
