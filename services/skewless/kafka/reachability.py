"""Waits until a broker answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from skewless.errors import BrokerError, UnreachableError

ATTEMPT_S = 0.25
"""Timeout of one metadata request."""
READY_S = 2.0
"""Timeout of the list of topics, which must be the first request of a new client. librdkafka drops its connection to a
bootstrap server once it knows the brokers. Any other request at that moment waits for one to three seconds."""
REFUSED_S = 5.0
"""Time for which brokers must refuse a client's login before it is an error. A new user does not reach all brokers at
the same time."""
WITHOUT_LOGIN = "Failed to acquire SASL OAUTHBEARER token: "
"""Beginning of librdkafka's error if the identity provider gives no token."""
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
    seconds, or as soon as `give_up()` returns True. Raises BrokerError if authentication or the TLS handshake failed;
    if it was the brokers that refused the login, after `REFUSED_S` seconds at most.
    """
    refusal: list[str] = []
    started = time.monotonic()
    deadline = started + timeout_s

    def note_refusal(error: KafkaError) -> None:
        nonlocal deadline
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001
            refusal[:] = [error.str()]
        if error.code() == KafkaError._AUTHENTICATION and not error.str().startswith(WITHOUT_LOGIN):  # noqa: SLF001
            deadline = min(deadline, started + REFUSED_S)

    _check_tls(options)
    client = AdminClient({**QUIET, **options, "error_cb": note_refusal})
    reason = "no answer"
    while time.monotonic() < deadline and not give_up():
        try:
            if client.list_topics(timeout=ATTEMPT_S).brokers:
                return
        except KafkaException as error:
            reason = error.args[0].str()
        client.poll(0)
    if refusal and refusal[0].startswith(WITHOUT_LOGIN):
        raise BrokerError(
            f"no token for Kafka at {options['bootstrap.servers']}: {refusal[0].removeprefix(WITHOUT_LOGIN)}; "
            "check that the identity provider runs, and correct kafka.sasl.oauthbearer"
        )
    if refusal:
        raise BrokerError(
            f"Kafka at {options['bootstrap.servers']} refuses this client: {refusal[0]}; "
            "correct kafka.security_protocol, kafka.sasl or kafka.tls"
        )
    raise UnreachableError(
        f"no Kafka broker answers at {options['bootstrap.servers']} ({reason}): "
        "check that it runs, that the address is right, and that this client's security settings are the listener's"
    )


def _check_tls(options: Mapping[str, str]) -> None:
    """Raise KafkaException if librdkafka refuses the TLS options of a client that logs in with tokens.

    Such a client with such options aborts the whole process (librdkafka 2.16). A client without the login raises.
    """
    if options.get("sasl.oauthbearer.method") == "oidc":
        tls = {name: value for name, value in options.items() if name.startswith("ssl.")}
        Producer({"security.protocol": "SSL", "log_level": 0, **tls})
