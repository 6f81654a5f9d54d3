"""Why no broker answers, with servers that are none."""

from __future__ import annotations

import logging
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from socket import create_server, socket
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, BrokerMetadata, ClusterMetadata

from skewless.errors import UnreachableError
from skewless.kafka import broker_watch, clients, reachability
from skewless.kafka.clients import connect_admin
from skewless.kafka.settings import KafkaSettings

LIMIT_S = 60.0
ATTEMPTS = 5
"""Number of attempts to connect, by which the cause is known."""
Answer = Callable[[socket], object]


@contextmanager
def listening(answer: Answer) -> Iterator[str]:
    """Answer each connection with a function until the end of the block; yields the address."""
    with create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

        def serve_one(connection: socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(LIMIT_S)
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def http(connection: socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def tls(folder: Path) -> Answer:
    """Return a function that answers the handshakes of TLS."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-keyout", str(key)]
    subprocess.run(["openssl", *new, "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def answer(connection: socket) -> None:
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as encrypted:
            encrypted.do_handshake()
            encrypted.recv(65_536)

    return answer


def error(address: str, **options: str) -> str:
    attempts = iter(range(ATTEMPTS))  # not a time: the machine may stand still
    with pytest.raises(UnreachableError) as caught:
        reachability.wait_until_reachable(
            {"bootstrap.servers": address, **options}, LIMIT_S, give_up=lambda: next(attempts, None) is None
        )
    return str(caught.value)


@pytest.mark.thorough
def test_reachability_each_cause_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "TLS_PROBE_S", LIMIT_S)
    with create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    assert error(address).startswith(
        f"no Kafka broker answers at {address} (Connect to ipv4#{address} failed: Connection "
    )
    assert error(address).endswith("refused): check that it runs, and the port")
    assert "(Failed to resolve 'kafka.invalid:9092': " in (unknown := error("kafka.invalid:9092"))
    assert unknown.endswith("): check the host name, and this machine's DNS")
    with listening(http) as address:
        assert error(address).endswith("(the answer is not Kafka's): check the port: another server listens there")
    with listening(tls(tmp_path)) as address:
        assert error(address).endswith(
            "(the listener uses TLS, and kafka.security_protocol is PLAINTEXT): set kafka.security_protocol to SSL, or "
            "name the port of a listener without TLS"
        )
    with listening(lambda connection: connection.recv(65_536)) as address:
        assert "(no answer): " in error(address)
        assert error(address, **{"security.protocol": "SSL"}).endswith(
            "(the listener does not use TLS, and kafka.security_protocol is SSL): set kafka.security_protocol to "
            "PLAINTEXT, or name the port of a listener with TLS"
        )


def test_admin_no_answer_for_two_seconds_logs_the_cause_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    later = iter(range(2))  # attempts after the line, which are not logged
    wait = partial(
        reachability.wait_until_reachable, give_up=lambda: bool(caplog.messages) and next(later, None) is None
    )
    monkeypatch.setattr(clients, "wait_until_reachable", wait)
    with pytest.raises(UnreachableError):
        connect_admin(KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_s=600))
    (line,) = caplog.messages
    # "no answer" if the machine stood still before the first connection
    cause = "Connect to ipv4#127.0.0.1:1 failed: Connection .*|no answer"
    assert re.fullmatch(rf"no Kafka broker answers at 127.0.0.1:1 yet \(({cause})\), waits up to 600 s", line)


@pytest.mark.parametrize("servers", ["kafka", "kafka:", "kafka:9092,other", ":9092", "::1"])
def test_settings_address_without_a_port_is_refused_at_once(servers: str) -> None:
    with pytest.raises(ValueError, match="is not host:port, such as broker:9092"):
        KafkaSettings(bootstrap_servers=servers)
    for valid in ("kafka:9092", "a:1, b:2", "[::1]:9092"):
        assert KafkaSettings(bootstrap_servers=valid).bootstrap_servers == valid


class Slow:
    """An admin client of two brokers: one needs three seconds for the list of topics, and perhaps one is down."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.timeouts: list[float] = []
        self._note_error = options["error_cb"]
        self._is_one_down = options["bootstrap.servers"].startswith("down")

    def list_topics(self, *, timeout: float) -> ClusterMetadata:
        self.timeouts.append(timeout)
        if self._is_one_down:
            self._note_error(KafkaError(KafkaError._TRANSPORT, "Connect failed: Connection refused"))
        if timeout < 3:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        metadata = ClusterMetadata()
        metadata.brokers = {1: BrokerMetadata()}
        return metadata

    def describe_cluster(self, *, request_timeout: float) -> Future[None]:
        assert request_timeout > 3
        return answered()

    def poll(self, timeout: float) -> None: ...


def answered() -> Future[None]:
    answer = Future[None]()
    answer.set_result(None)
    return answer


@pytest.mark.parametrize("servers", ["b:9092", "down:9092,b:9092"])
def test_reachability_brokers_need_seconds_for_the_list_of_a_large_cluster_are_waited_for(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "AdminClient", Slow)
    client = reachability.wait_until_reachable({"bootstrap.servers": servers}, 60)
    assert isinstance(client, Slow)
    assert client.timeouts == [0.25, 4]


def test_broker_watch_brokers_need_seconds_for_an_answer_are_asked_once_and_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Slow({"bootstrap.servers": "b:9092", "error_cb": lambda _: None})
    monkeypatch.setattr(broker_watch, "AdminClient", lambda _options: client)
    monkeypatch.setattr(broker_watch, "REPORTED_S", 0)
    watch = broker_watch.BrokerWatch(KafkaSettings(bootstrap_servers="b:9092"))
    assert [watch.poll(), watch.poll()] == [None, None]
    assert len(client.timeouts) == 1


class Hanging:
    """An admin client of a broker that keeps its connections, and may hang."""

    def __init__(self) -> None:
        self.hangs = False
        self.requests: list[Future[None]] = []

    def list_topics(self, *, timeout: float) -> ClusterMetadata:
        assert timeout <= reachability.ATTEMPT_S
        if self.hangs:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return ClusterMetadata()

    def describe_cluster(self, *, request_timeout: float) -> Future[None]:
        assert request_timeout == broker_watch.ANSWER_S
        self.requests.append(Future[None]() if self.hangs else answered())
        return self.requests[-1]

    def poll(self, timeout: float) -> None: ...


def test_broker_watch_broker_hangs_without_an_error_of_its_connections_is_reported_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, now = Hanging(), 1_000.0
    monkeypatch.setattr(broker_watch, "AdminClient", lambda _options: client)
    monkeypatch.setattr("time.monotonic", lambda: now)
    watch = broker_watch.BrokerWatch(KafkaSettings(bootstrap_servers="b:9092"))
    assert [watch.poll(), watch.poll(), watch.poll()] == [None, None, None]
    client.hangs = True
    now += broker_watch.CHECK_S
    assert [watch.poll(), watch.poll(), watch.is_away] == [None, None, False]
    now += broker_watch.ANSWER_S
    client.requests[-1].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert watch.poll() == "no Kafka broker answers at b:9092: the stages wait for it"
    assert (watch.poll(), watch.is_away) == (None, True)
    client.hangs = False
    now += 60
    assert watch.poll() == f"Kafka answers again, after {broker_watch.ANSWER_S + 60:.0f} s"
    assert (watch.poll(), watch.is_away) == (None, False)


def test_connect_admin_is_quiet_logs_no_warning_while_no_broker_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reachability, "AdminClient", Unreachable)
    monkeypatch.setattr(reachability, "REPORTED_S", 0)
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_s=0.1)
    for is_quiet, warnings in ((True, 0), (False, 1)):
        with pytest.raises(UnreachableError):
            connect_admin(kafka, is_quiet=is_quiet)
        assert sum(record.levelname == "WARNING" for record in caplog.records) == warnings


class Unreachable:
    """An admin client that no broker accepts."""

    def __init__(self, _options: Mapping[str, Any]) -> None: ...

    def list_topics(self, *, timeout: float) -> ClusterMetadata:
        assert timeout <= reachability.MAX_ATTEMPT_S
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, timeout: float) -> None: ...


def test_reachability_no_connection_is_given_up_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request may take longer, because nothing interrupts it."""
    monkeypatch.setattr(reachability, "AdminClient", Unreachable)
    attempts = iter(range(8))
    with pytest.raises(UnreachableError, match="no Kafka broker answers"):
        reachability.wait_until_reachable(
            {"bootstrap.servers": "127.0.0.1:1"}, 60, give_up=lambda: next(attempts, None) is None
        )
    assert next(attempts, None) is None


def test_librdkafka_no_connection_has_another_error_than_no_answer() -> None:
    """By these codes, `wait_until_reachable` knows which of the two it is."""
    client = AdminClient({**reachability.QUIET, "bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(KafkaException) as caught:
        client.list_topics(timeout=0.2)
    assert caught.value.args[0].code() == KafkaError._TRANSPORT
