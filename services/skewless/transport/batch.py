"""The batch that an agent is handed: the records of one partition that one poll brought."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from skewless.records import Headers


class MessageBatch:
    """Implements `skewless.records.Batch` over librdkafka's messages; columns are taken out when they are asked for."""

    __slots__ = ("__dict__", "generation", "messages", "next_offset", "partition", "size")

    def __init__(self, partition: int, generation: int, messages: Sequence[Message]) -> None:
        self.partition = partition
        self.generation = generation
        self.messages = messages
        self.next_offset: int = messages[-1].offset() + 1
        self.size = sum(map(len, filter(None, self.values)))

    @property
    def leader_epoch(self) -> int | None:
        """Leader epoch of the last record; None where the broker reports none."""
        epoch: int | None = self.messages[-1].leader_epoch()
        return epoch

    @cached_property
    def values(self) -> list[bytes | None]:
        """Values of the records."""
        return [message.value() for message in self.messages]

    @cached_property
    def keys(self) -> list[bytes | None]:
        """Keys of the records."""
        return [message.key() for message in self.messages]

    @cached_property
    def offsets(self) -> list[int]:
        """Offsets of the records."""
        return [message.offset() for message in self.messages]

    @cached_property
    def timestamps(self) -> NDArray[np.int64]:
        """Kafka timestamps in ms."""
        return np.array([message.timestamp()[1] for message in self.messages], dtype=np.int64)

    @cached_property
    def headers(self) -> list[Headers]:
        """Headers of the records."""
        return [message.headers() or () for message in self.messages]

    def parts(self) -> list[MessageBatch]:
        """Cut into one batch per record, for stages that take their time over each."""
        return [MessageBatch(self.partition, self.generation, [message]) for message in self.messages]
