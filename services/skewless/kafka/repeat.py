"""Repeats requests that only read, and translates the errors of requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.errors import authorization_error, is_transient
from skewless.kafka.settings import KafkaSettings

Answer = TypeVar("Answer")

PAUSE_S = 0.1
"""Pause before a request is repeated."""


def repeat_while_transient(
    kafka: KafkaSettings, request: Callable[[], Answer], operation: str, acl_operation: str, hint: str = ""
) -> Answer:
    """Send a request, and repeat it while its error is transient, for at most `kafka.connect_timeout_s`.

    Raises the error of `request_error`.
    """
    # Just after a broker has started, or has been cut off, it answers that it is not the coordinator or leader.
    deadline = time.monotonic() + kafka.connect_timeout_s
    while True:
        try:
            return request()
        except KafkaException as error:
            reason = error.args[0]
            if not is_transient(reason) or time.monotonic() > deadline:
                raise request_error(kafka, reason, operation, acl_operation, hint) from None
        time.sleep(PAUSE_S)


def request_error(
    kafka: KafkaSettings, error: KafkaError, operation: str, acl_operation: str, hint: str = ""
) -> UnreachableError | BrokerError:
    """Return the error to raise for a request that failed. `acl_operation` is the right that the operation needs.

    `hint` is what the user may also have to do if no broker answers.
    """
    address = kafka.bootstrap_servers
    if is_transient(error):
        return UnreachableError(
            f"no answer from Kafka at {address} while {operation}: {error.str()}: check that the brokers run{hint}"
        )
    operation = f"{operation} at {address}"
    return authorization_error(error, operation, acl_operation) or BrokerError(
        f"{operation} failed: {error.str()} ({error.name()})"
    )
