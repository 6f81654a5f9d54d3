"""What an error of librdkafka means."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError
from skewless.transport.failures import stop_or_rewind


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_a_record_that_is_too_large_ends_the_stage_and_names_topic_option_and_setting(code: int) -> None:
    found = stop_or_rewind(KafkaException(KafkaError(code)), "writing to topic p.windows")
    assert isinstance(found, BrokerError)
    assert found.exit_code == 3
    for part in ("p.windows", "max.message.bytes=8388608", "topics.options", "kafka.options.message.max.bytes"):
        assert part in str(found)
