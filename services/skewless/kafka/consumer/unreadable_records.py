"""Handles records that cannot be read: one retry from the committed offset, then the end of the process."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, Message

from skewless.errors import BrokerError, SkewlessError, TransactionAbortedError
from skewless.kafka.errors import UNREADABLE, ErrorClass, class_of


def is_unreadable(error: KafkaError) -> bool:
    """Return whether librdkafka reports this error of a partition repeatedly, or once and then skips records."""
    return class_of(error) in UNREADABLE


class RetriedRecords:
    """Offsets that were read a second time because their records could not be read."""

    def __init__(self, group: str, skippable: Mapping[str, str]) -> None:
        self._group = group
        self._skippable = skippable
        """Topics of which the user may leave out records, with the prefix of their partitions in `source.skip_to`."""
        self._retried: set[tuple[str, int, int]] = set()

    def failure_of(self, message: Message) -> SkewlessError:
        """Return the error to raise: the first time one that causes a reset, the second time one that is final."""
        place = (message.topic(), message.partition(), message.offset())
        error: KafkaError = message.error()
        if place not in self._retried:
            self._retried.add(place)
            return TransactionAbortedError(f"{_place_text(place)} cannot be read, trying once more: {error.str()}")
        if class_of(error) is ErrorClass.OUT_OF_RANGE:
            return BrokerError(
                f"{_place_text(place)} is not available: {error.str()}. The records were deleted before group "
                f"{self._group} had read them, or the topic was created again"
            )
        remedy = (
            f"to leave the batch out, set source.skip_to to {{{self._skippable[place[0]]}{place[1]}: OFFSET}} with the "
            "first offset after it, and start again"
            if message.topic() in self._skippable
            else "restore the topic from a healthy replica, or start the pipeline under another name"
        )
        return BrokerError(
            f"{_place_text(place)} cannot be decoded: {error.str()}. The record batch is damaged, or its "
            f"compression is one that this client refuses. Group {self._group} has committed everything before it; "
            f"{remedy}"
        )


def _place_text(place: tuple[str, int, int]) -> str:
    topic, partition, offset = place
    return f"topic {topic} partition {partition} offset {offset}"
