"""Reads the newest records of a topic, and those that come: for commands that look and hold no position."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from skewless.errors import BrokerError, UnreachableError
from skewless.transport.failures import refusal
from skewless.transport.probe import QUIET
from skewless.transport.reader import BY_HAND, READ_RECORDS
from skewless.transport.settings import KafkaSettings

POLL_S = 0.1
STALL_S = 30.0
_IGNORED = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's local codes are named so; it reconnects by itself
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the group that is not used, so nobody needs a right on it
}


class Tail:
    """Reads committed records of all partitions, from `back` records before their ends on. A context manager.

    Raises UnreachableError when no broker answers within `kafka.timeout_s`, BrokerError when it refuses.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, partitions: int, back: int = 0) -> None:
        self._topic = topic
        self._consumer = Consumer({**QUIET, **kafka.client_options(), **BY_HAND})
        spans = [self._span(partition, kafka.timeout_s) for partition in range(partitions)]
        self.untouched = all(end == 0 for _, end in spans)
        """Whether nothing was ever written to the topic."""
        self._ends = {partition: end for partition, (begin, end) in enumerate(spans) if begin < end}
        starts = [TopicPartition(topic, at, max(begin, end - back)) for at, (begin, end) in enumerate(spans)]
        self._consumer.assign(starts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def poll(self, wait_s: float) -> list[bytes | None]:
        """Return the values of what has come, after `wait_s` at the latest."""
        return [message.value() for message in self._poll(wait_s)]

    def read_to_end(self) -> dict[int, list[tuple[bytes | None, int]]]:
        """Return values and timestamps (ms) of all records up to what was the end at first, by partition."""
        found: dict[int, list[tuple[bytes | None, int]]] = {}
        moved = time.monotonic()
        while not self._at_end():
            messages = self._poll(POLL_S)
            for message in messages:
                found.setdefault(message.partition() or 0, []).append((message.value(), message.timestamp()[1]))
            if messages:
                moved = time.monotonic()
            elif time.monotonic() > moved + STALL_S:
                raise UnreachableError(f"topic {self._topic} gives no records for {STALL_S:g} s, and has not ended")
        return found

    def _at_end(self) -> bool:
        wanted = [TopicPartition(self._topic, partition) for partition in self._ends]
        return all(at.offset >= self._ends[at.partition] for at in self._consumer.position(wanted))

    def _span(self, partition: int, timeout_s: float) -> tuple[int, int]:
        try:
            begin, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=timeout_s)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        return begin, end

    def _poll(self, wait_s: float) -> list[Message]:
        messages: list[Message] = self._consumer.consume(READ_RECORDS, wait_s)
        good = []
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
            elif error.code() not in _IGNORED:
                raise self._failed(error)
        return good

    def _failed(self, error: KafkaError) -> BrokerError:
        doing = f"reading topic {self._topic}"
        return refusal(error, doing, "Read") or BrokerError(f"{doing}: {error.str()}")
