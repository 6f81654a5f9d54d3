"""Makes librdkafka's clients; it says only then which of its options do not go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from skewless.errors import ConfigurationError
from skewless.transport.settings import TLS_FILES

Client = TypeVar("Client")


def made(kind: Callable[[dict[str, Any]], Client], options: Mapping[str, Any]) -> Client:
    """Make a client of this kind; ConfigurationError when librdkafka refuses its options."""
    try:
        return kind(dict(options))
    except KafkaException as error:
        raise refused(error, options) from None


def refused(error: KafkaException, options: Mapping[str, Any]) -> ConfigurationError:
    """Return the error for options that librdkafka refuses, with the setting and, if it is about one, the file."""
    reason = error.args[0].str()
    # librdkafka opens the files when it makes a client. Its message has the option, but neither setting nor file.
    for option, name in TLS_FILES.items():
        if option in reason:
            return ConfigurationError(f"kafka.tls.{name}: {options.get(option)}: cannot be used: {reason}")
    return ConfigurationError(f"kafka.options: librdkafka refuses them: {reason}")
