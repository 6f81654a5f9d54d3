"""Metadata requests of a consumer: partition count, committed offsets, beginning and end of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from skewless.errors import BrokerError
from skewless.transport.failures import BrokerAwayError, is_transient
from skewless.transport.outbox import Outbox

Result = TypeVar("Result")

REQUEST_TIMEOUT_S = 5.0


class LogRange(NamedTuple):
    """Offsets that the broker holds of a partition: the first one, and the one after the last stable record."""

    begin: int
    end: int


class Questions:
    """Requests of one consumer about its topic; only for the thread that owns the consumer.

    Each method makes one attempt of at most `REQUEST_TIMEOUT_S` and raises BrokerAwayError if the attempt can be
    repeated. No method may be called inside a callback of the consumer: after `list_topics` there, the next callback of
    the same poll aborts the process (confluent-kafka 2.16: `CallState_get: cs != NULL`).
    """

    def __init__(self, topic: str, consumer: Consumer, outbox: Outbox) -> None:
        self._topic = topic
        self._consumer = consumer
        self._outbox = outbox

    def partition_count(self) -> int | None:
        """Return the topic's number of partitions; None if the topic is not visible."""
        # Of all topics: a request for one topic by name may create the topic on brokers that create topics.
        topics = self._asked(
            f"looking for topic {self._topic}",
            lambda: self._outbox.producer.list_topics(timeout=REQUEST_TIMEOUT_S).topics,
        )
        found = topics.get(self._topic)
        return None if found is None or found.error is not None else len(found.partitions)

    def committed(self, partitions: Iterable[int]) -> dict[int, TopicPartition]:
        """Return the group's committed offsets with their metadata; an offset below zero means that there is none."""
        # Of this consumer, never of an admin client: `list_consumer_group_offsets` of librdkafka 2.16 crashes the
        # process where the group has no coordinator yet.
        return self._by_partition(
            f"reading committed offsets of topic {self._topic}",
            partitions,
            lambda wanted: self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S),
        )

    def ranges(self, partitions: Iterable[int]) -> dict[int, LogRange]:
        """Return the offsets that the broker holds of each partition."""
        wanted = list(partitions)
        begins, ends = (self._offsets(wanted, logical) for logical in (OFFSET_BEGINNING, OFFSET_END))
        return {partition: LogRange(begins[partition], ends[partition]) for partition in wanted}

    def _offsets(self, partitions: Iterable[int], logical: int) -> Mapping[int, int]:
        found = self._by_partition(
            f"reading the first and last offsets of topic {self._topic}",
            partitions,
            # The protocol's request for offsets by time takes the logical offsets in place of a time.
            lambda wanted: self._consumer.offsets_for_times(
                [TopicPartition(at.topic, at.partition, logical) for at in wanted], timeout=REQUEST_TIMEOUT_S
            ),
        )
        return {partition: at.offset for partition, at in found.items()}

    def _by_partition(
        self, doing: str, partitions: Iterable[int], ask: Callable[[list[TopicPartition]], list[TopicPartition]]
    ) -> dict[int, TopicPartition]:
        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        found = self._asked(doing, lambda: ask(wanted)) if wanted else []
        for at in found:
            if at.error is not None:
                doing_partition = f"{doing}, partition {at.partition}: {at.error.str()}"
                raise BrokerAwayError(doing_partition) if is_transient(at.error) else BrokerError(doing_partition)
        return {at.partition: at for at in found}

    @staticmethod
    def _asked(doing: str, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except KafkaException as error:
            reason = f"{doing}: {error.args[0].str()}"
            raise BrokerAwayError(reason) if is_transient(error.args[0]) else BrokerError(reason) from error
