"""Options that librdkafka takes for an admin client, and refuses for those that a stage makes."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from skewless.errors import ConfigurationError
from skewless.transport.clients import made
from skewless.transport.consumer_options import consumer_options
from skewless.transport.failures import consumer_failure
from skewless.transport.options_check import check_options
from skewless.transport.settings import KafkaSettings, TransportSettings
from skewless.transport.transactional_outbox import TransactionalOutbox

EXACT = TransportSettings()
PLAIN = TransportSettings(guarantee="at_least_once")


def kafka(**options: Any) -> KafkaSettings:
    return KafkaSettings(options={name.replace("_", "."): value for name, value in options.items()})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"message_timeout_ms": 60_000}, "message.timeout.ms"),
        ({"retries": 0}, "retries"),
        ({"max_poll_interval_ms": 5_000}, "max.poll.interval.ms"),
        ({"fetch_max_bytes": 1_000}, "fetch.max.bytes"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_options_that_a_client_refuses_are_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        check_options(kafka(**options), EXACT)
    assert [problem for problem in caught.value.problems if not problem.startswith("kafka.options: ")] == []


def test_every_client_is_asked_and_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_options(kafka(max_poll_interval_ms=5_000, retries=0), EXACT)
    assert len(caught.value.problems) == 2
    assert capfd.readouterr() == ("", "")


def test_good_options_pass_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    for transport in (EXACT, PLAIN):
        check_options(KafkaSettings(), transport)
        check_options(kafka(linger_ms=20, fetch_wait_max_ms=10), transport)
    check_options(kafka(message_timeout_ms=60_000), PLAIN)
    assert capfd.readouterr() == ("", "")


def test_files_and_secrets_of_another_machine_are_not_looked_for() -> None:
    secure = KafkaSettings.model_validate(
        {"security_protocol": "SSL", "tls": {"ca": "/nowhere/ca.pem"}, "options": {"ssl.crl.location": "/nowhere"}}
    )
    check_options(secure, EXACT)


def test_a_stages_own_clients_name_the_setting_too() -> None:
    refused = kafka(max_poll_interval_ms=5_000)
    with pytest.raises(ConfigurationError, match=r"kafka\.options: .*max\.poll\.interval\.ms"):
        made(Consumer, consumer_options(refused, EXACT, "g", "m", end_of_partition=False))
    outbox = TransactionalOutbox(kafka(retries=0), EXACT, str, "m")
    with pytest.raises(ConfigurationError, match=r"kafka\.options: .*retries"):
        outbox.open(0.1)


def test_a_session_timeout_that_the_brokers_refuse_names_the_setting() -> None:
    failure = consumer_failure(KafkaError(KafkaError.INVALID_SESSION_TIMEOUT), "reading topic t as group g")
    assert isinstance(failure, ConfigurationError)
    assert str(failure).startswith("transport.session_timeout_s: ")
    assert "group.min.session.timeout.ms" in str(failure)
