"""Options that librdkafka accepts for an admin client, and refuses for the clients of a stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from pydantic import ValidationError

from skewless.errors import ConfigurationError
from skewless.kafka.clients import create_client
from skewless.kafka.consumer.offsets import offset_consumer
from skewless.kafka.consumer.options import consumer_options
from skewless.kafka.consumer.topic_reader import TopicReader
from skewless.kafka.errors import classify_consumer_error
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.kafka.validate_options import validate_client_options

EXACT = TransportSettings()
PLAIN = TransportSettings(guarantee="at_least_once")


def kafka(**options: Any) -> KafkaSettings:
    return KafkaSettings(options={name.replace("_", "."): value for name, value in options.items()})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"message_timeout_ms": 60_000}, "message.timeout.ms"),
        ({"retries": 0}, "retries"),
        ({"max_poll_interval_ms": 5_000}, "max.poll.interval.ms"),
        ({"fetch_max_bytes": 1_000}, "fetch.max.bytes"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_client_options_refused_by_librdkafka_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        validate_client_options(kafka(**options), EXACT)
    assert [problem for problem in caught.value.problems if not problem.startswith("kafka.options: ")] == []


def test_client_options_refused_by_several_clients_are_reported_once_each(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate_client_options(kafka(max_poll_interval_ms=5_000, retries=0), EXACT)
    assert len(caught.value.problems) == 2
    assert capfd.readouterr() == ("", "")


def test_client_options_that_are_valid_pass_and_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for transport in (EXACT, PLAIN):
        validate_client_options(KafkaSettings(), transport)
        validate_client_options(kafka(linger_ms=20, fetch_wait_max_ms=10), transport)
    validate_client_options(kafka(message_timeout_ms=60_000), PLAIN)
    assert capfd.readouterr() == ("", "")


def test_client_options_that_would_replace_the_compression_are_refused() -> None:
    options = TransactionalProducer(KafkaSettings(), TransportSettings(compression="gzip"), str, "m").options()
    (codec,) = (name for name, value in options.items() if value == "gzip")
    with pytest.raises(ValidationError, match=rf"{codec}: use transport\.compression, or mirror\.compression"):
        KafkaSettings(options={codec: "zstd"})


def test_client_options_files_of_another_machine_are_not_read() -> None:
    secure = KafkaSettings.model_validate(
        {"security_protocol": "SSL", "tls": {"ca": "/nowhere/ca.pem"}, "options": {"ssl.crl.location": "/nowhere"}}
    )
    validate_client_options(secure, EXACT)


def test_create_client_refused_option_raises_with_its_setting() -> None:
    refused = kafka(max_poll_interval_ms=5_000)
    with pytest.raises(ConfigurationError, match=r"kafka\.options: .*max\.poll\.interval\.ms"):
        create_client(Consumer, consumer_options(refused, EXACT, "g", "m", end_of_partition=False))
    producer = TransactionalProducer(kafka(retries=0), EXACT, str, "m")
    with pytest.raises(ConfigurationError, match=r"kafka\.options: .*retries"):
        producer.open(0.1)


@pytest.mark.parametrize(
    "create", [lambda kafka: offset_consumer(kafka, "g"), lambda kafka: TopicReader(kafka, "t", {0: 0})._consumer]
)
def test_consumer_that_joins_no_group_accepts_each_poll_interval_of_a_stage(
    create: Callable[[KafkaSettings], Consumer],
) -> None:
    shorter_than_a_default_session = kafka(max_poll_interval_ms=6_000)
    validate_client_options(shorter_than_a_default_session, EXACT)
    create(shorter_than_a_default_session).close()


def test_consumer_error_session_timeout_refused_by_the_broker_names_the_setting() -> None:
    failure = classify_consumer_error(KafkaError(KafkaError.INVALID_SESSION_TIMEOUT), "reading topic t as group g")
    assert isinstance(failure, ConfigurationError)
    assert str(failure).startswith("transport.session_timeout_s: ")
    assert "group.min.session.timeout.ms" in str(failure)
