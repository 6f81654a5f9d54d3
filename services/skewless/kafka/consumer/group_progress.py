"""GroupProgress: reports offsets that are stored elsewhere to the consumer group, for tools that show its lag."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.errors import UnavailableError
from skewless.wire.topic_partition import TopicPartition

CLUSTER_ID_S = 5.0
"""Time limit of the request for the id of the cluster."""


class GroupProgress:
    """Commits offsets through the consumer of a process. Nothing depends on them, so no error matters."""

    def __init__(self) -> None:
        self._consumer: Consumer = None
        self._cluster_id: str | None = None

    def attach(self, consumer: Consumer) -> None:
        """Use this consumer from now on."""
        self._consumer = consumer

    def cluster_id(self) -> str:
        """Return the id of the Kafka cluster. Raises UnavailableError if no broker answers."""
        if self._cluster_id is None:
            try:
                self._cluster_id = self._consumer.list_topics(timeout=CLUSTER_ID_S).cluster_id or ""
            except KafkaException as error:
                raise UnavailableError(f"reading the id of the cluster: {error.args[0].str()}") from error
        return self._cluster_id

    def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Send offsets to the group, and do not wait for an answer."""
        with suppress(KafkaException):
            self._consumer.commit(
                offsets=[KafkaPartition(*partition, offset) for partition, offset in offsets.items()],
                asynchronous=True,
            )
