"""What an error of librdkafka means."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError
from skewless.transport.failures import is_transient, stop_or_rewind


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_a_record_that_is_too_large_ends_the_stage_and_names_topic_option_and_setting(code: int) -> None:
    found = stop_or_rewind(KafkaException(KafkaError(code)), "writing to topic p.windows")
    assert isinstance(found, BrokerError)
    assert found.exit_code == 3
    for part in ("p.windows", "max.message.bytes=8388608", "topics.options", "kafka.options.message.max.bytes"):
        assert part in str(found)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._DESTROY_BROKER,
        KafkaError._FAIL,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    ],
)
def test_error_of_a_broker_that_restarts_is_transient(code: int) -> None:
    """Runs that kill the broker met these; a stage that ends of one is restarted for nothing."""
    assert is_transient(KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_AUTHORIZATION_FAILED],
)
def test_error_that_only_a_change_cures_is_not_transient(code: int) -> None:
    assert not is_transient(KafkaError(code))
