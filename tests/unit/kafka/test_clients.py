"""Errors of clients that librdkafka cannot create."""

from __future__ import annotations

import errno

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import ConfigurationError
from skewless.kafka.clients import create_client


@pytest.mark.parametrize(
    ("code", "error_type", "message"),
    [
        (KafkaError._CRIT_SYS_RESOURCE, OSError, "Failed to create thread"),
        (
            KafkaError._INVALID_ARG,
            ConfigurationError,
            "kafka.options: librdkafka refuses them: Failed to create thread",
        ),
    ],
)
def test_client_that_lacks_a_thread_is_no_configuration_error(
    code: int, error_type: type[Exception], message: str
) -> None:
    def create(_: object) -> None:
        raise KafkaException(KafkaError(code, "Failed to create thread: Cannot allocate memory (12)"))

    with pytest.raises(error_type, match=message) as raised:
        create_client(create, {})
    assert getattr(raised.value, "errno", None) == (errno.ENOMEM if error_type is OSError else None)
