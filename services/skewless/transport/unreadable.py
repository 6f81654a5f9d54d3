"""Records that cannot be read: one retry from the committed offset, then the end of the process."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from skewless.errors import BrokerError, SkewlessError
from skewless.transport.failures import RewindError

_OUT_OF_RANGE = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - librdkafka's local error codes are named so
    KafkaError._LOG_TRUNCATION,  # noqa: SLF001
    KafkaError.OFFSET_OUT_OF_RANGE,
}
UNREADABLE = _OUT_OF_RANGE | {
    KafkaError._BAD_MSG,  # noqa: SLF001
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
    KafkaError._UNDERFLOW,  # noqa: SLF001
    KafkaError.INVALID_MSG,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
}
"""Errors of a partition that librdkafka reports again and again, or reports once and then skips records."""


class RetriedRecords:
    """Places in a topic that were read a second time because their records could not be read."""

    def __init__(self, topic: str, group: str, *, skippable: bool) -> None:
        self._topic = topic
        self._group = group
        self._skippable = skippable
        self._retried: set[tuple[int, int]] = set()

    def failure_of(self, message: Message) -> SkewlessError | RewindError:
        """Return what follows from an error message: a reset the first time, the end of the process the second time."""
        place = (message.partition(), message.offset())
        error: KafkaError = message.error()
        if place not in self._retried:
            self._retried.add(place)
            return RewindError(f"{self._described(place)} cannot be read, trying once more: {error.str()}")
        if error.code() in _OUT_OF_RANGE:
            return BrokerError(
                f"{self._described(place)} is not available: {error.str()}. The records were deleted before group "
                f"{self._group} had read them, or the topic was created again"
            )
        remedy = (
            f"to leave the batch out, set source.skip_to to {{{place[0]}: OFFSET}} with the first offset after it, and "
            "start again"
            if self._skippable
            else "restore the topic from a healthy replica, or start the pipeline under another name"
        )
        return BrokerError(
            f"{self._described(place)} cannot be decoded: {error.str()}. The record batch is damaged, or its "
            f"compression is one that this client refuses. Group {self._group} has committed everything before it; "
            f"{remedy}"
        )

    def _described(self, place: tuple[int, int]) -> str:
        partition, offset = place
        return f"topic {self._topic} partition {partition} offset {offset}"
