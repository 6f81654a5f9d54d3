"""Leaving a group, by a consumer that another process has replaced."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.kafka.consumer.leave_group import leave_group


class FailedConsumer:
    """Consumer whose calls fail with one error."""

    def __init__(self, code: int) -> None:
        self.code = code

    def unsubscribe(self) -> None:
        raise KafkaException(KafkaError(self.code))

    def memberid(self) -> str:
        return "still a member"


def test_leave_group_of_a_consumer_that_was_replaced_does_nothing() -> None:
    assert leave_group(FailedConsumer(KafkaError._FATAL), 0.0)


def test_leave_group_of_a_consumer_with_another_error_raises_it() -> None:
    with pytest.raises(KafkaException):
        leave_group(FailedConsumer(KafkaError._INVALID_ARG), 0.0)
