"""The watching port: what it serves, what it refuses, and what probes are told."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from skewless import __version__
from skewless.errors import ConfigurationError
from skewless.router import agent
from skewless.runner import Stage, wire
from skewless.settings import PipelineSettings
from skewless.step import Sample
from skewless.transport.app import Wiring
from skewless.transport.session import Taken
from skewless.watch import server
from skewless.watch.collector import ListCollector
from skewless.watch.health import Health
from skewless.watch.server import application, served
from skewless.watch.stage import Watched

Answer = tuple[int, dict[str, str], bytes]


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def settings(port: int = 0, address: str = "127.0.0.1") -> PipelineSettings:
    shown = {"port": port, "address": address}
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}, "metrics": shown})


def wiring() -> Wiring:
    return wire("router", Stage(agent.step(settings()), lambda _app: None), settings(), 0, drain=False)


@contextlib.contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[int]:
    collector = ListCollector(lambda: [Sample("skewless_tuples_total", (), 5)], {"pipeline": "p", "stage": "router"})
    with served(application(collector, {}), address=address, port=free_port(address)) as port:
        yield port


def ask(port: int, path: str, method: str = "GET", address: str = "127.0.0.1") -> Answer:
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def told(port: int, path: str) -> tuple[int, dict[str, Any]]:
    status, _, body = ask(port, path)
    return status, json.loads(body)


def raw(port: int, request: bytes) -> bytes:
    """Send bytes and tell what comes back; nothing when the connection is cut."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            while part := connection.recv(65536):
                answer += part
        return answer


def test_one_port_tells_metrics_probes_and_version() -> None:
    watched = Watched("router", settings(free_port()), 3)
    with watched.served() as port:
        assert b'skewless_ready{pipeline="p",stage="router"} 0.0' in ask(port, "/metrics")[2]
        assert b"process_resident_memory_bytes" in ask(port, "/metrics")[2]
        assert told(port, "/livez")[0] == 200
        status, body = told(port, "/readyz")
        assert (status, body["ready"], body["reasons"]) == (503, False, ["starting: Kafka has not answered yet"])
        status, body = told(port, "/version")
        assert (status, body["version"], body["stage"], body["instance"]) == (200, __version__, "router", 3)


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthz", "/../etc/passwd", "/livez/x"])
def test_there_is_nothing_else(path: str) -> None:
    with listening() as port:
        assert ask(port, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_it_can_only_be_read(method: str) -> None:
    with listening() as port:
        status, headers, _ = ask(port, "/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/nothing", 404)])
def test_head_tells_what_get_would_without_the_body(path: str, status: int) -> None:
    with listening() as port:
        got, headers, body = ask(port, path, "HEAD")
        assert (got, body) == (status, b"")
        assert headers["Content-Type"].split(";")[0] in {"text/plain", "application/json"}


def test_a_query_does_not_matter() -> None:
    with listening() as port:
        assert ask(port, "/metrics?name[]=skewless_tuples_total")[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"".join(b"h%d: %s\r\n" % (number, b"x" * 900) for number in range(20)),
        b"GET /metrics HTTP/1.1\r\n" + b"h: x\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01 no http at all\r\n\r\n",
    ],
    ids=["long path", "many bytes of headers", "many headers", "no http"],
)
def test_a_request_is_bounded(request_: bytes) -> None:
    with listening() as port:
        assert b"200 OK" not in raw(port, request_)
        assert ask(port, "/metrics")[0] == 200


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def seconds_until_closed(connection: socket.socket) -> float:
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return time.monotonic() - began


@pytest.mark.parametrize("connections", [server.MAX_SCRAPES + 16, 2 * server.MAX_CONNECTIONS])
def test_probes_slow_connections_are_open_answer_within_a_second(connections: int) -> None:
    """Twice the bound means that the oldest ones make room."""
    watched = Watched("router", settings(free_port()), 0)
    with watched.served() as port, contextlib.ExitStack() as slow:
        for _ in range(connections):
            slow.enter_context(connect(port)).sendall(b"GET /met")
        began = time.monotonic()
        assert told(port, "/livez")[0] == 200
        assert told(port, "/readyz")[0] == 503  # it has no partitions, and says so
        assert time.monotonic() - began < 1.0


def test_probes_scrapes_hang_answer_within_a_second() -> None:
    release, hanging = threading.Event(), threading.Semaphore(0)

    def hang() -> list[Sample]:
        hanging.release()
        release.wait(10)
        return []

    app = application(ListCollector(hang, {}), {"/livez": lambda: (200, {})})
    with served(app, address="127.0.0.1", port=free_port()) as port, contextlib.ExitStack() as scrapes:
        for _ in range(server.MAX_SCRAPES):
            scrapes.enter_context(connect(port)).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        for _ in range(server.MAX_SCRAPES):
            assert hanging.acquire(timeout=5)
        began = time.monotonic()
        assert ask(port, "/metrics")[0] == 503
        assert told(port, "/livez")[0] == 200
        assert time.monotonic() - began < 1.0
        release.set()


def test_connection_that_sends_nothing_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    with listening() as port, contextlib.ExitStack() as silent:
        connections = [silent.enter_context(connect(port)) for _ in range(server.MAX_CONNECTIONS)]
        assert max(map(seconds_until_closed, connections)) < 2.0
        assert ask(port, "/metrics")[0] == 200


def test_connection_that_sends_a_byte_now_and_then_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    with listening() as port, connect(port) as dripping:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < began + 5:
                dripping.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 2.0


def test_connection_that_does_not_read_its_answer_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    large = application(ListCollector(list, {}), {"/large": lambda: (200, {"text": "x" * 2**24})})
    with served(large, address="127.0.0.1", port=free_port()) as port, connect(port) as unread:
        unread.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        (thread,) = wait_for_request_threads()
        thread.join(2.0)
        assert not thread.is_alive()


def wait_for_request_threads() -> list[threading.Thread]:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if found := [each for each in threading.enumerate() if "process_request_thread" in each.name]:
            return found
        time.sleep(0.01)
    raise AssertionError("no request is being answered")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_it_listens_on_addresses_of_both_kinds(address: str) -> None:
    with listening(address) as port:
        assert ask(port, "/metrics", address=address)[0] == 200


def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    with listening("::") as port:
        assert ask(port, "/metrics", address="127.0.0.1")[0] == 200
        assert ask(port, "/metrics", address="::1")[0] == 200


def test_it_serves_as_long_as_the_block_runs() -> None:
    with listening() as port:
        assert ask(port, "/metrics")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/metrics")


def test_port_0_serves_nothing() -> None:
    with Watched("router", settings(0), 0).served() as port:
        assert port == 0


def test_who_is_started_again_takes_the_port_that_was_scraped_a_moment_ago() -> None:
    port = free_port()
    for _ in range(2):
        with Watched("router", settings(port), 0).served():
            assert ask(port, "/metrics")[0] == 200


def test_a_port_that_is_taken_is_a_mistake_of_configuration() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        watched = Watched("router", settings(port), 0)
        with pytest.raises(ConfigurationError, match=rf"metrics.port: 127.0.0.1:{port}"), watched.served():
            pass


def test_an_address_that_is_none_is_a_mistake_of_configuration() -> None:
    watched = Watched("router", settings(free_port(), "no.such.host.invalid"), 0)
    with pytest.raises(ConfigurationError, match=r"metrics.port: no\.such\.host\.invalid"), watched.served():
        pass


def test_ready_is_who_has_a_producer_and_partitions_with_their_state() -> None:
    health = Health(60.0)
    wired = health.wiring = wiring()
    session = wired.session
    assert [reason.split(":")[0] for reason in health.why_not_ready()] == [
        "no producer",
        "no partitions assigned by the group",
    ]
    wired.outbox.ready = True
    with session.counts.taking_over():
        assert health.why_not_ready() == ["restoring state"]
    session.assign({0: Taken(0, None)})
    assert health.ready
    session.revoke([0])
    assert health.why_not_ready() == ["no partitions assigned by the group"]
    session.assign({})
    assert health.ready  # more processes than partitions: this one is ready to take over
    health.stopping = True
    assert health.why_not_ready() == ["stopping"]


def test_alive_is_whose_loop_and_consumer_move() -> None:
    now = 100.0
    health = Health(60.0, clock=lambda: now)
    assert health.why_not_alive() == []

    async def begin() -> None:
        with health.beating():
            await asyncio.sleep(0)

    asyncio.run(begin())
    wired = health.wiring = wiring()
    wired.session.counts.beat = 130.0
    now = 159.0
    assert health.why_not_alive() == []
    now = 161.0
    assert health.why_not_alive() == ["the event loop has not moved for 61 s"]
    now = 191.0
    assert health.why_not_alive() == [
        "the event loop has not moved for 91 s",
        "the consumer thread has not moved for 61 s",
    ]
    with wired.session.counts.taking_over():
        assert health.why_not_alive() == ["the event loop has not moved for 91 s"]
