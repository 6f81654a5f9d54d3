"""Reads the newest records of a topic and follows it. Does not join a consumer group and commits no offsets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.consumer.read_compacted import MANUAL_ASSIGNMENT, READ_RECORDS
from skewless.kafka.errors import authorization_error
from skewless.kafka.reachability import QUIET
from skewless.kafka.settings import KafkaSettings
from skewless.parsing.source_records import RecordColumns

POLL_S = 0.1
STALL_S = 30.0
_IGNORED = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's local codes are named so; it reconnects by itself
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the unused group: no permission on it is needed
}


class Tail:
    """Reads committed records of all partitions, beginning `lookback` records before their ends. A context manager.

    Raises UnreachableError when no broker answers within `kafka.connect_timeout_s`, BrokerError when it refuses the
    request.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, partitions: int, lookback: int = 0) -> None:
        self._topic = topic
        self._consumer = Consumer({**QUIET, **kafka.client_options(), **MANUAL_ASSIGNMENT})
        ranges = [self._offset_range(partition, kafka.connect_timeout_s) for partition in range(partitions)]
        self.untouched = all(end == 0 for _, end in ranges)
        """Whether nothing was ever written to the topic."""
        self._ends = {partition: end for partition, (begin, end) in enumerate(ranges) if begin < end}
        starts = [
            TopicPartition(topic, partition, max(begin, end - lookback))
            for partition, (begin, end) in enumerate(ranges)
        ]
        self._consumer.assign(starts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, wait_s: float) -> list[bytes | None]:
        """Return the values of new records; waits for them at most `wait_s`."""
        return [message.value() for message in self._poll(wait_s)]

    def read_to_end(self) -> dict[int, RecordColumns]:
        """Return by partition the records up to the end at the time of construction."""
        records: dict[int, list[Message]] = {}
        advanced_at = time.monotonic()
        while not self._at_end():
            messages = self._poll(POLL_S)
            for message in messages:
                records.setdefault(message.partition() or 0, []).append(message)
            if messages:
                advanced_at = time.monotonic()
            elif time.monotonic() > advanced_at + STALL_S:
                raise UnreachableError(
                    f"no records from topic {self._topic} within {STALL_S:g} s, and its end offset was not reached"
                )
        return {partition: _columns(partition, messages) for partition, messages in records.items()}

    def _at_end(self) -> bool:
        partitions = [TopicPartition(self._topic, partition) for partition in self._ends]
        return all(
            position.offset >= self._ends[position.partition] for position in self._consumer.position(partitions)
        )

    def _offset_range(self, partition: int, timeout_s: float) -> tuple[int, int]:
        try:
            begin, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=timeout_s)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        return begin, end

    def _poll(self, wait_s: float) -> list[Message]:
        messages: list[Message] = self._consumer.consume(READ_RECORDS, wait_s)
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() not in _IGNORED:
                raise self._failed(error)
        return records

    def _failed(self, error: KafkaError) -> BrokerError:
        operation = f"reading topic {self._topic}"
        return authorization_error(error, operation, "Read") or BrokerError(f"{operation}: {error.str()}")


def _columns(partition: int, messages: Sequence[Message]) -> RecordColumns:
    return RecordColumns(
        values=[message.value() for message in messages],
        timestamps=np.array([message.timestamp()[1] for message in messages], dtype=np.int64),
        keys=[message.key() for message in messages],
        headers=[message.headers() or () for message in messages],
        partition=partition,
    )
