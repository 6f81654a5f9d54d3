"""Waits until a broker answers, and says why none does."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from skewless.errors import BrokerError, SkewlessError, UnreachableError

ATTEMPT_S = 0.25
"""Timeout of the first metadata request. It is doubled with each one that finds no connection."""
MAX_ATTEMPT_S = 1.0
"""Maximum of this timeout. Nothing interrupts a request, not even Ctrl-C."""
SLOW_ATTEMPT_S = 4.0
"""Timeout once a broker is connected: the list of all topics of a large cluster takes more than a second."""
REFUSED_S = 1.5
"""Time for which brokers must refuse a client's login before it is an error. A new user does not reach all brokers at
the same time."""
REPORTED_S = 2.0
"""Time without an answer after which this client reports that it waits."""
TLS_PROBE_S = 1.0
WITHOUT_LOGIN = "Failed to acquire SASL OAUTHBEARER token: "
"""Beginning of librdkafka's error if the identity provider gives no token."""
WITHOUT_TLS = "connecting to a PLAINTEXT broker listener"
"""Part of librdkafka's error if a listener without TLS closes the connection of a client with TLS."""
UNVERIFIED = "certificate verify failed"
"""Part of librdkafka's error if a client does not accept a listener's certificate. It does not say why."""
UNVERIFIED_CAUSES = (
    "cannot be verified: kafka.tls.ca lacks its authority, or it has expired, or it is not for this host name"
)
"""Text in place of that error, after the certificate as the subject."""
TLS_ALERT = "SSL alert"
"""Part of librdkafka's error if a listener ends the TLS handshake, for example because of the client's certificate."""
REMEDY_OF_ALERT = "correct kafka.tls or kafka.security_protocol: the listener refuses this client's certificate"
QUIET = {
    "log_level": 0,
    "error_cb": lambda _: None,  # without one, every refused connection is a line on stderr
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 250,
}
CREATE_NO_TOPIC = {"allow.auto.create.topics": False}
"""Option of a client that asks for one topic by name, on brokers that create topics automatically."""


_ERROR = re.compile(r"(?:\w+://)?[^/]+/\w+: (?P<text>.*?)(?: \(after .*)?", re.DOTALL)
"""An error of librdkafka's connection to a broker."""
_CAUSES: Mapping[int, tuple[str, str]] = {
    # librdkafka's local error codes have names of private members.
    KafkaError._RESOLVE: ("{text}", "check the host name, and this machine's DNS"),  # noqa: SLF001
    KafkaError._BAD_MSG: ("the answer is not Kafka's", "check the port: another server listens there"),  # noqa: SLF001
    KafkaError._TRANSPORT: ("{text}", "check that it runs, and the port"),  # noqa: SLF001
}
"""Cause and remedy by error of the connections. The first one that occurred counts."""


def wait_until_reachable(
    options: Mapping[str, Any],
    timeout_s: float,
    *,
    give_up: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda _: None,
) -> AdminClient:
    """Wait until a broker answers a metadata request, and return the client that it has answered.

    `options` are librdkafka's, at least `bootstrap.servers`. Calls `report` once, with the cause, if no broker has
    answered for `REPORTED_S` seconds. Raises UnreachableError with the address and the cause after `timeout_s` seconds,
    or as soon as `give_up()` returns True. Raises BrokerError if authentication or the TLS handshake failed; if it was
    the brokers that refused the login, `REFUSED_S` seconds after the first refusal.
    """
    refusal: list[str] = []
    errors: dict[int, str] = {}
    started = time.monotonic()
    deadline = started + timeout_s

    def note_error(error: KafkaError) -> None:
        nonlocal deadline
        if WITHOUT_TLS not in errors.get(error.code(), ""):
            errors[error.code()] = error.str()
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001
            refusal[:] = [f"its certificate {UNVERIFIED_CAUSES}" if UNVERIFIED in error.str() else error.str()]
        if error.code() == KafkaError._AUTHENTICATION and not error.str().startswith(WITHOUT_LOGIN):  # noqa: SLF001
            deadline = min(deadline, time.monotonic() + REFUSED_S)

    _check_tls(options)
    client = AdminClient({**QUIET, **options, "error_cb": note_error})
    is_reported, attempt_s = False, ATTEMPT_S
    while (now := time.monotonic()) < deadline and not give_up():
        try:
            # The list of topics must be the first request of a new client. librdkafka drops its connection to a
            # bootstrap server once it knows the brokers. Any other request at that moment waits one to three seconds.
            if client.list_topics(timeout=min(attempt_s, max(ATTEMPT_S, deadline - now))).brokers:
                return client
        except KafkaException as error:
            # Without a connection its code is _TRANSPORT, for all causes. The errors may be those of another server.
            # Not doubled if a broker is connected: it answers one request after the other.
            is_connected = error.args[0].code() == KafkaError._TIMED_OUT  # noqa: SLF001
            attempt_s = SLOW_ATTEMPT_S if is_connected else min(2 * attempt_s, MAX_ATTEMPT_S)
        client.poll(0)
        if not is_reported and REPORTED_S < time.monotonic() - started < timeout_s:
            is_reported = True
            cause = refusal[0] if refusal else _cause(errors, options)[0]
            report(
                f"no Kafka broker answers at {options['bootstrap.servers']} yet ({cause}), waits up to {timeout_s:g} s"
            )
    raise _error(refusal, errors, options)


def _error(refusal: Sequence[str], errors: Mapping[int, str], options: Mapping[str, str]) -> SkewlessError:
    servers = options["bootstrap.servers"]
    if refusal and refusal[0].startswith(WITHOUT_LOGIN):
        return BrokerError(
            f"no token for Kafka at {servers}: {refusal[0].removeprefix(WITHOUT_LOGIN)}; "
            "check that the identity provider runs, and correct kafka.sasl.oauthbearer"
        )
    if refusal and UNVERIFIED_CAUSES in refusal[0]:
        return BrokerError(
            f"the certificate of Kafka at {servers} {UNVERIFIED_CAUSES}; correct kafka.tls.ca or "
            "kafka.bootstrap_servers, or set kafka.tls.verify_hostname to false"
        )
    if refusal:
        return refused_error(refusal[0], servers)
    cause, remedy = _cause(errors, options)
    return UnreachableError(f"no Kafka broker answers at {servers} ({cause}): {remedy}")


def refused_error(reason: str, servers: str) -> BrokerError:
    """Return the error for brokers that refuse a client's login."""
    return BrokerError(
        f"Kafka at {servers} refuses this client: {reason}; correct kafka.security_protocol, kafka.sasl or kafka.tls"
    )


def _cause(errors: Mapping[int, str], options: Mapping[str, str]) -> tuple[str, str]:
    """Return why no broker answers, and what to do. `errors` are those of the connections, by code."""
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if any(WITHOUT_TLS in error for error in errors.values()):
        plaintext = protocol.replace("SASL_SSL", "SASL_PLAINTEXT").replace("SSL", "PLAINTEXT")
        return (
            f"the listener does not use TLS, and kafka.security_protocol is {protocol}",
            f"set kafka.security_protocol to {plaintext}, or name the port of a listener with TLS",
        )
    for code, (cause, remedy) in _CAUSES.items():
        if code in errors and (found := _ERROR.fullmatch(errors[code])):
            text = found["text"]
            return cause.format(text=text), REMEDY_OF_ALERT if TLS_ALERT in text else remedy
    # librdkafka reports nothing if a listener with TLS closes its connection.
    if protocol.endswith("PLAINTEXT") and any(map(_uses_tls, options["bootstrap.servers"].split(","))):
        encrypted = protocol.replace("PLAINTEXT", "SSL")
        return (
            f"the listener uses TLS, and kafka.security_protocol is {protocol}",
            f"set kafka.security_protocol to {encrypted}, or name the port of a listener without TLS",
        )
    return (
        "no answer",
        "check that it runs, that the address is right, and that this client's security settings are the listener's",
    )


def _uses_tls(server: str) -> bool:
    """Return whether what listens at host:port answers the beginning of a TLS handshake with one."""
    host, _, port = server.strip().rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TLS_PROBE_S) as connection:
            connection.settimeout(TLS_PROBE_S)
            context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return error.reason is not None and "ALERT" in error.reason  # it requires another version, or a certificate
    except (OSError, ValueError):
        return False
    return True


def _check_tls(options: Mapping[str, str]) -> None:
    """Raise KafkaException if librdkafka refuses the TLS options of a client that logs in with tokens.

    Such a client with such options aborts the whole process (librdkafka 2.16). A client without the login raises.
    """
    if options.get("sasl.oauthbearer.method") == "oidc":
        tls = {name: value for name, value in options.items() if name.startswith("ssl.")}
        Producer({"security.protocol": "SSL", "log_level": 0, **tls})
