"""Options and records that librdkafka refuses to a producer of a command."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, ConfigurationError
from skewless.kafka.producer.bulk import BulkProducer
from skewless.kafka.settings import KafkaSettings


@pytest.mark.parametrize(("option", "value"), [("retries", 0), ("message.timeout.ms", 3)])
def test_bulk_producer_options_that_librdkafka_refuses_are_named(option: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=f"kafka.options: librdkafka refuses them: .*{option}"):
        BulkProducer(KafkaSettings(options={option: value}), "t", 1)


class Full:
    """A producer whose queue is full when a record is sent. The second attempt is refused."""

    def __init__(self) -> None:
        self._answers: list[Exception] = [
            BufferError(),
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
        ]

    def produce(self, *_arguments: object, **_options: object) -> None:
        raise self._answers.pop(0)

    def poll(self, _timeout: float) -> None: ...

    def __len__(self) -> int:
        return 0


def test_bulk_producer_record_that_is_refused_when_there_is_room_names_the_missing_right() -> None:
    producer = BulkProducer(KafkaSettings(), "t", 1)
    producer._producer = Full()
    with pytest.raises(BrokerError, match=r"sending to topic t.* grant Write on the topic"):
        producer.send([b"x"], [0])
