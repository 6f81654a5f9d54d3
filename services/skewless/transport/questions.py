"""What a consumer asks the broker besides records; each question is repeated while the broker may come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from skewless.errors import SkewlessError, UnreachableError
from skewless.transport.failures import BROKER_AWAY, retriable
from skewless.transport.outbox import Outbox
from skewless.transport.settings import TransportSettings

Result = TypeVar("Result")

ASK_S = 5.0
"""Longest single question to the broker; it is repeated until its deadline."""


class Questions:
    """Of one consumer about its topic; only for the thread that owns the consumer."""

    def __init__(self, topic: str, consumer: Consumer, outbox: Outbox, transport: TransportSettings) -> None:
        self._topic = topic
        self._consumer = consumer
        self._outbox = outbox
        self._patience_s = max(60.0, 3 * transport.transaction_timeout_s)

    def partitions(self) -> int | None:
        """Count the topic's partitions; None where it cannot be read."""
        # Never of the consumer itself: this runs inside its callbacks, and after `list_topics` there the next callback
        # of the same poll aborts the process (confluent-kafka 2.16: `CallState_get: cs != NULL`).
        # And of all topics: asking for one by name may create it on brokers that make topics by themselves.
        topics = self._asked(
            f"looking for topic {self._topic}",
            lambda limit_s: self._outbox.producer.list_topics(timeout=limit_s).topics,
        )
        found = topics.get(self._topic)
        return None if found is None or found.error is not None else len(found.partitions)

    def committed(self, partitions: Iterable[int]) -> dict[int, TopicPartition]:
        """Read the group's offsets, with what was saved beside them; an offset below zero says that there is none."""
        # Of this consumer, never of an admin client: `list_consumer_group_offsets` of librdkafka 2.16 crashes the
        # process where the group has no coordinator yet.
        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        if not wanted:
            return {}
        found = self._asked(
            f"reading committed offsets of {self._topic}",
            lambda limit_s: self._consumer.committed(wanted, timeout=limit_s),
        )
        for at in found:
            if at.error is not None:
                raise SkewlessError(f"committed offset of {at.topic} partition {at.partition}: {at.error.str()}")
        return {at.partition: at for at in found}

    def _asked(self, doing: str, ask: Callable[[float], Result]) -> Result:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return ask(ASK_S)
            except KafkaException as error:
                away = error.args[0].code() in {KafkaError._TIMED_OUT, *BROKER_AWAY}  # noqa: SLF001 - a local code
                if not (away or retriable(error)) or time.monotonic() > deadline:
                    raise UnreachableError(f"{doing}: {error.args[0].str()}") from error
