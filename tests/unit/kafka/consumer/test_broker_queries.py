"""Requests about partitions say whether they can be repeated."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.errors import BrokerError, SkewlessError, UnavailableError
from skewless.kafka.consumer.broker_queries import BrokerQueries
from skewless.wire.topic_partition import TopicPartition


class Consumer:
    """Answers each request with an error of librdkafka."""

    def __init__(self, code: int) -> None:
        self._code = code

    def offsets_for_times(self, partitions: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        raise KafkaException(KafkaError(self._code, f"no answer for {partitions} in {timeout} s"))


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError._UNKNOWN_PARTITION, UnavailableError),  # a broker that starts does not know all partitions yet
        (KafkaError._TIMED_OUT, UnavailableError),
        (KafkaError._UNKNOWN_TOPIC, BrokerError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokerError),
    ],
)
def test_ranges_with_an_error_say_whether_to_repeat(code: int, raised: type[SkewlessError]) -> None:
    queries = BrokerQueries(Consumer(code))
    with pytest.raises(raised, match="reading the first and last offsets of topic words"):
        queries.ranges([TopicPartition("words", 0)])
