"""Wait for a broker that answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from skewless.errors import UnreachableError

SLICE_S = 0.25
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
    seconds, or as soon as `give_up` says that waiting is in vain.
    """
    deadline = time.monotonic() + timeout_s
    client = AdminClient({**QUIET, **options})
    reason = "no answer"
    while time.monotonic() < deadline and not give_up():
        try:
            if client.list_topics(timeout=SLICE_S).brokers:
                return
        except KafkaException as error:
            reason = error.args[0].str()
    raise UnreachableError(
        f"no Kafka broker answers at {options['bootstrap.servers']} ({reason}): "
        "check that it runs, that the address is right, and that this client's security settings are the listener's"
    )
