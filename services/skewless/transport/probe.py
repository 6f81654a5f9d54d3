"""Wait for a broker that answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from skewless.errors import BrokerError, UnreachableError

SLICE_S = 0.25
READY_S = 2.0
"""Ask a new client for the list of topics first, for at most so long. librdkafka drops its connection to a bootstrap
server once it knows the brokers; whatever else is asked in that moment waits for one to three seconds."""
QUIET = {
    "log_level": 0,
    "error_cb": lambda _: None,  # without one, every refused connection is a line on stderr
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 250,
}


def wait_until_reachable(
    options: Mapping[str, str], timeout_s: float, *, give_up: Callable[[], bool] = lambda: False
) -> None:
    """Wait until a broker answers a metadata request.

    `options` are librdkafka's, at least `bootstrap.servers`. Raises UnreachableError with the address after `timeout_s`
    seconds, or as soon as `give_up` says that waiting is in vain; BrokerError when it was refused for who we are.
    """
    refused: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001
            refused[:] = [error.str()]

    deadline = time.monotonic() + timeout_s
    client = AdminClient({**QUIET, **options, "error_cb": note})
    reason = "no answer"
    while time.monotonic() < deadline and not give_up():
        try:
            if client.list_topics(timeout=SLICE_S).brokers:
                return
        except KafkaException as error:
            reason = error.args[0].str()
        client.poll(0)
    if refused:
        # Not at once: a user that has just been made is known to one broker sooner than to another.
        raise BrokerError(
            f"Kafka at {options['bootstrap.servers']} refuses this client: {refused[0]}; "
            "correct kafka.security_protocol, kafka.sasl or kafka.tls"
        )
    raise UnreachableError(
        f"no Kafka broker answers at {options['bootstrap.servers']} ({reason}): "
        "check that it runs, that the address is right, and that this client's security settings are the listener's"
    )
