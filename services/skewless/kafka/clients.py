"""Creates librdkafka clients. librdkafka reports conflicting options only when a client is created."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from skewless.errors import ConfigurationError
from skewless.kafka.reachability import wait_until_reachable
from skewless.kafka.settings import KEY_REMEDY, TLS_FILES, KafkaSettings

Client = TypeVar("Client")

log = logging.getLogger(__name__)
_IGNORED_OPTION = re.compile(r" is a (consumer|producer) property and will be ignored by this ")
LIBRDKAFKA = "skewless.librdkafka"
"""Logger of librdkafka's lines."""


def librdkafka_version() -> str:
    """Return the version of librdkafka, such as 2.16.0."""
    version: str = confluent_kafka.libversion()[0]
    return version


def _needs_attention(line: logging.LogRecord) -> bool:
    """Return whether a line is neither of these.

    - A producer whose coordinator is not ready yet, as on a new broker. librdkafka repeats this request by itself, and
      the start of the stage has a time limit.
    - A client ignores an option. `kafka.options` has those of consumers and of producers, and each client gets all.
    """
    text = line.getMessage()
    is_repeated = text.startswith("GETPID ") and text.endswith(": retrying")
    return not (is_repeated or _IGNORED_OPTION.search(text))


def librdkafka_logger() -> logging.Logger:
    """Return the logger of librdkafka's lines. In a process that has not set up its log, it has errors only.

    Such a process is a command or a task of Spark, and its user would read warnings of requests that librdkafka repeats
    by itself.
    """
    logger = logging.getLogger(LIBRDKAFKA)
    logger.addFilter(_needs_attention)
    if logger.level == logging.NOTSET and not logging.getLogger().handlers:
        logger.setLevel(logging.ERROR)
    return logger


def create_client(client_type: Callable[[dict[str, Any]], Client], options: Mapping[str, Any]) -> Client:
    """Create a client of this type. Raises ConfigurationError if librdkafka refuses its options."""
    try:
        return client_type(dict(options))
    except KafkaException as error:
        raise refused_options_error(error, options) from None


def connect_admin(kafka: KafkaSettings, *, is_quiet: bool = False) -> AdminClient:
    """Return an admin client once a broker answers. Logs a warning while it waits; commands print it on stderr.

    With `is_quiet`, it is not a warning, because the user learns of it otherwise.
    Raises UnreachableError if none does within `kafka.connect_timeout_s`, BrokerError if it refuses this client, and
    ConfigurationError if librdkafka refuses the options.
    """
    options = kafka.client_options()
    try:
        return wait_until_reachable(options, kafka.connect_timeout_s, report=log.debug if is_quiet else log.warning)
    except KafkaException as error:
        raise refused_options_error(error, options) from None


def refused_options_error(error: KafkaException, options: Mapping[str, Any]) -> ConfigurationError | OSError:
    """Return the error for options that librdkafka refuses. It names the setting and, if a file caused it, the file.

    An OSError if the options are right, but the machine has no memory or no thread for a client.
    """
    reason = error.args[0].str()
    if error.args[0].code() == KafkaError._CRIT_SYS_RESOURCE:  # noqa: SLF001 - librdkafka's own errors are named so
        return OSError(errno.ENOMEM, reason)
    # librdkafka opens the files when it creates a client. Its message names the option, but neither setting nor file.
    for option, name in TLS_FILES.items():
        if option in reason:
            remedy = f"; {KEY_REMEDY}" if name == "key" else ""
            return ConfigurationError(f"kafka.tls.{name}: {options.get(option)}: cannot be used: {reason}{remedy}")
    if "OAuth token not set" in reason:
        return ConfigurationError(f"kafka.sasl.msk_iam: {reason}: give this process credentials of AWS")
    return ConfigurationError(f"kafka.options: librdkafka refuses them: {reason}")
