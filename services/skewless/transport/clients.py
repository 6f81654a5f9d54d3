"""Makes librdkafka's clients; it says only then which of its options do not go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from skewless.errors import ConfigurationError

Client = TypeVar("Client")


def made(kind: Callable[[dict[str, Any]], Client], options: Mapping[str, Any]) -> Client:
    """Make a client of this kind; ConfigurationError when librdkafka refuses its options."""
    try:
        return kind(dict(options))
    except KafkaException as error:
        raise ConfigurationError(f"kafka.options: librdkafka refuses them: {error.args[0].str()}") from None
