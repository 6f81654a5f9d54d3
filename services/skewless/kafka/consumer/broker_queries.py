"""Metadata requests of a consumer: partition count, committed offsets, beginning and end of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.errors import BrokerError, UnavailableError
from skewless.kafka.errors import is_transient
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

Result = TypeVar("Result")

REQUEST_TIMEOUT_S = 5.0


class LogRange(NamedTuple):
    """Offsets that the broker holds of a partition: the first one, and the one after the last stable record."""

    begin: int
    end: int


class BrokerQueries:
    """Requests of one consumer about its topics; only for the thread that owns the consumer.

    Each method makes one attempt of at most `REQUEST_TIMEOUT_S` and raises UnavailableError if the attempt can be
    repeated. No method may be called inside a callback of the consumer: after `list_topics` there, the next callback of
    the same poll aborts the process (confluent-kafka 2.16: `CallState_get: cs != NULL`).
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic that is visible."""
        # Of all topics: a request for one topic by name may create the topic on brokers that create topics.
        topics = self._request(
            "looking for topics", lambda: self._consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        )
        return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, without the partitions that have none."""
        # Of this consumer, never of an admin client: `list_consumer_group_offsets` of librdkafka 2.16 crashes the
        # process if the group has no coordinator yet.
        answers = self._by_partition(
            "reading committed offsets",
            partitions,
            lambda requested: self._consumer.committed(requested, timeout=REQUEST_TIMEOUT_S),
        )
        return {
            partition: CommittedOffset(answer.offset, answer.metadata or "", answer.leader_epoch)
            for partition, answer in answers.items()
            if answer.offset >= 0
        }

    def ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the offsets that the broker holds of each partition."""
        requested = list(partitions)
        begins, ends = (self._offsets(requested, logical) for logical in (OFFSET_BEGINNING, OFFSET_END))
        return {partition: LogRange(begins[partition], ends[partition]) for partition in requested}

    def _offsets(self, partitions: Iterable[TopicPartition], logical: int) -> Mapping[TopicPartition, int]:
        answers = self._by_partition(
            "reading the first and last offsets",
            partitions,
            # The protocol's request for offsets by time accepts the logical offsets in place of a time.
            lambda requested: self._consumer.offsets_for_times(
                [KafkaPartition(item.topic, item.partition, logical) for item in requested], timeout=REQUEST_TIMEOUT_S
            ),
        )
        return {partition: answer.offset for partition, answer in answers.items()}

    def _by_partition(
        self,
        operation: str,
        partitions: Iterable[TopicPartition],
        ask: Callable[[list[KafkaPartition]], list[KafkaPartition]],
    ) -> dict[TopicPartition, KafkaPartition]:
        requested = [KafkaPartition(*partition) for partition in partitions]
        operation += f" of topic {', '.join(sorted({item.topic for item in requested}))}"
        answers = self._request(operation, lambda: ask(requested)) if requested else []
        for answer in answers:
            if answer.error is not None:
                reason = f"{operation}, partition {answer.partition}: {answer.error.str()}"
                raise (UnavailableError(reason) if _is_repeatable(answer.error) else BrokerError(reason))
        return {TopicPartition(answer.topic, answer.partition): answer for answer in answers}

    @staticmethod
    def _request(operation: str, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except KafkaException as error:
            reason = f"{operation}: {error.args[0].str()}"
            raise UnavailableError(reason) if _is_repeatable(error.args[0]) else BrokerError(reason) from error


def _is_repeatable(error: KafkaError) -> bool:
    # The group has assigned the partitions, so they exist. A broker that stops or starts may not know them yet. If a
    # topic was created again with fewer partitions, the caller notices it by their number.
    return is_transient(error) or error.code() == KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 - librdkafka's local codes are named so
