"""MessageBatch: the records of one partition from one poll, as they are delivered to an agent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from numpy.typing import NDArray

from skewless.wire.record import Headers, OutputRecord
from skewless.wire.topic_partition import TopicPartition


class MessageBatch:
    """A view of librdkafka's messages as columns. Each column is built when it is first read."""

    __slots__ = ("__dict__", "generation", "messages", "next_offset", "partition", "source", "topic")

    def __init__(self, source: TopicPartition, generation: int, messages: Sequence[Message]) -> None:
        self.source = source
        self.topic, self.partition = source
        self.generation = generation
        self.messages = messages
        self.next_offset: int = messages[-1].offset() + 1

    @classmethod
    def of_outputs(
        cls, source: TopicPartition, outputs: Sequence[OutputRecord], now: int, first_offset: int = 0
    ) -> MessageBatch:
        """Return the batch that a consumer would receive if it read these records, with ascending offsets.

        `now` is the timestamp in ms of the records that have none.
        """
        topic, partition = source
        messages = [
            Message(
                topic=topic,
                partition=partition,
                offset=offset,
                key=output.key,
                value=output.value,
                headers=list(output.headers),
                timestamp=(TIMESTAMP_CREATE_TIME, now if output.timestamp is None else output.timestamp),
            )
            for offset, output in enumerate(outputs, first_offset)
        ]
        return cls(source, 0, messages)

    @property
    def leader_epoch(self) -> int | None:
        """Leader epoch of the last record; None if the broker reports none."""
        epoch: int | None = self.messages[-1].leader_epoch()
        return epoch

    @property
    def first_timestamp(self) -> int:
        """Kafka timestamp in ms of the first record."""
        timestamp: int = self.messages[0].timestamp()[1]
        return timestamp

    @property
    def last_timestamp(self) -> int:
        """Kafka timestamp in ms of the last record."""
        timestamp: int = self.messages[-1].timestamp()[1]
        return timestamp

    @cached_property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, filter(None, self.values)))

    @cached_property
    def values(self) -> list[bytes | None]:
        """Values of the records."""
        return list(map(Message.value, self.messages))

    @cached_property
    def keys(self) -> list[bytes | None]:
        """Keys of the records."""
        return list(map(Message.key, self.messages))

    @cached_property
    def offsets(self) -> list[int]:
        """Offsets of the records."""
        return list(map(Message.offset, self.messages))

    @cached_property
    def timestamps(self) -> NDArray[np.int64]:
        """Kafka timestamps in ms."""
        return np.array([message.timestamp()[1] for message in self.messages], dtype=np.int64)

    @cached_property
    def headers(self) -> list[Headers]:
        """Headers of the records."""
        return [message.headers() or () for message in self.messages]

    def parts(self) -> list[MessageBatch]:
        """Split into one batch per record, for stages that spend much time on each record."""
        return [MessageBatch(self.source, self.generation, [message]) for message in self.messages]
