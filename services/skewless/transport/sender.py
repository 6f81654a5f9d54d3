"""Plain producing for commands: raw records to one topic, idempotent, without transactions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from skewless.errors import BrokerError, ConfigurationError, SkewlessError, UnreachableError
from skewless.transport.admin import Admin
from skewless.transport.probe import QUIET
from skewless.transport.settings import KafkaSettings
from skewless.transport.topics import EXACT

RUN = 100
"""Records that go to one partition before the next one has its turn."""
WAIT_S = 0.1
KEPT = {**EXACT, "retention.ms": "-1"}
"""Recorded streams have timestamps of years ago: by a broker's default retention they would be deleted at once."""


def prepare_topic(kafka: KafkaSettings, topic: str, create: int | None, replication_factor: int = -1) -> int:
    """Return a topic's number of partitions; create it with `create` partitions if it is missing and that is given.

    A replication factor of -1 is the broker's default. Raises UnreachableError when no broker answers within
    `kafka.timeout_s`, BrokerError when the topic is missing, ConfigurationError when it has not `create` partitions.
    """
    admin = Admin(kafka)
    found = admin.partition_counts().get(topic)
    if found is not None:
        if create not in (None, found):
            raise ConfigurationError(
                f"--create-topic {create}: topic {topic} exists, with {found} partitions; "
                "leave the option out to use it as it is"
            )
        return found
    if create is None:
        raise BrokerError(
            f"topic {topic} does not exist at {kafka.bootstrap_servers}: "
            "create it, or let this command do so with --create-topic PARTITIONS"
        )
    admin.create(topic, create, replication_factor, KEPT)
    admin.wait_for_leaders({topic: create})
    return create


class Sender:
    """Sends records to the partitions of a topic in fixed turns: record i to partition `(i // RUN) % partitions`.

    So the same records make the same logs. Partitions are counted from `first` on.
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
        self._producer = Producer(self._options())

    @property
    def delivered(self) -> int:
        """Records that the broker has acknowledged."""
        return self.taken - self._undelivered - len(self._producer)

    def send(self, values: Sequence[bytes], times: Sequence[int]) -> None:
        """Hand over records with their timestamps (ms); waits while the queue is full.

        Raises BrokerError, or UnreachableError when the broker was silent too long, as soon as a record is lost.
        """
        turns = self._first + (self.taken + np.arange(len(values))) // RUN % self._partitions
        produce, topic = self._producer.produce, self._topic
        # Record by record, 2.0 us each: `produce_batch` takes 1.2 us but no timestamps, and those carry event time.
        for value, partition, time in zip(values, turns.tolist(), times, strict=True):
            try:
                produce(topic, value, partition=partition, timestamp=time)
            except BufferError:
                self._produce_when_there_is_room(value, partition, time)
            except KafkaException as error:
                raise self._explained(error.args[0]) from error
            self.taken += 1
        self._producer.poll(0)
        self._raise_failure()

    def flush(self) -> None:
        """Wait until everything taken is acknowledged; raises as `send` does."""
        while self._producer.flush(WAIT_S):
            self._raise_failure()
        self._raise_failure()

    def close(self) -> None:
        """Drop what is still queued."""
        self._producer.purge()
        self._producer.flush(WAIT_S)

    def _produce_when_there_is_room(self, value: bytes, partition: int, time: int) -> None:
        while True:
            self._producer.poll(WAIT_S)
            self._raise_failure()
            try:
                self._producer.produce(self._topic, value, partition=partition, timestamp=time)
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
            "message.timeout.ms": round(max(60.0, self._kafka.timeout_s) * 1000),
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
            raise self._explained(self._failure)

    def _explained(self, error: KafkaError) -> SkewlessError:
        if error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001 - librdkafka's own errors are named so
            return UnreachableError(
                f"{self._kafka.bootstrap_servers} stopped answering while records were sent to {self._topic}: "
                f"{self.delivered:,} of them have arrived; check the broker, then start again with an empty topic"
            )
        return BrokerError(f"cannot send to topic {self._topic}: {error.str()}")
