"""The port of metrics and health: its pages, its refusals, and the results of probes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.engine import assign, revoke
from helpers.stage_start import in_memory
from helpers.waiting import until
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.executor import RestoredPartition
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.step import Sample
from skewless.errors import ConfigurationError
from skewless.monitoring import server
from skewless.monitoring.collector import MetricsCollector
from skewless.monitoring.health import Health
from skewless.monitoring.server import application, serve_http
from skewless.monitoring.stage_monitor import StageMonitor, served
from skewless.operations import readiness as readiness_module
from skewless.operations.readiness import readiness
from skewless.service import build_runtime
from skewless.stages.built_stage import build
from skewless.version import VERSION

Answer = tuple[int, dict[str, str], bytes]
ANSWER_S = 60.0
"""Deadline of each answer."""


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def settings(port: int = 0, address: str = "127.0.0.1", **sections: Any) -> PipelineSettings:
    shown = {"port": port, "address": address}
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}, "metrics": shown, **sections})


def wiring(stage: str = "router", **sections: Any) -> StageRuntime:
    start = in_memory(stage, settings(**sections), 1)
    return build_runtime(start, build(start), 0)


def ready() -> StageRuntime:
    runtime = wiring()
    runtime.output.ready = True
    assign(runtime.executor, {})
    return runtime


def monitor(pipeline: PipelineSettings, instance: int, stage: str = "router") -> StageMonitor:
    return StageMonitor(pipeline.metrics, pipeline=pipeline.name, stage=stage, instance=instance)


@contextlib.contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[int]:
    collector = MetricsCollector(
        (lambda: [Sample("skewless_tuples_total", (), 5)], {"pipeline": "p", "stage": "router"})
    )
    with serve_http(application(collector, {}), address=address, port=free_port(address)) as port:
        yield port


def ask(port: int, path: str, method: str = "GET", address: str = "127.0.0.1") -> Answer:
    connection = http.client.HTTPConnection(address, port, timeout=ANSWER_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def get_json(port: int, path: str) -> tuple[int, dict[str, Any]]:
    status, _, body = ask(port, path)
    return status, json.loads(body)


def raw(port: int, request: bytes) -> bytes:
    """Send bytes and return the response; empty if the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            while part := connection.recv(65536):
                answer += part
        return answer


def test_metrics_server_one_port_serves_metrics_probes_and_version() -> None:
    pipeline = settings(free_port())
    with served(pipeline.metrics, [monitor(pipeline, 3)]) as port:
        assert b'skewless_ready{pipeline="p",stage="router"} 0.0' in ask(port, "/metrics")[2]
        assert b"process_resident_memory_bytes" in ask(port, "/metrics")[2]
        assert get_json(port, "/livez")[0] == 200
        status, body = get_json(port, "/readyz")
        assert (status, body["ready"], body["reasons"]) == (503, False, ["starting: Kafka has not answered yet"])
        status, body = get_json(port, "/version")
        assert (status, body["version"], body["stage"], body["instance"]) == (200, VERSION, "router", 3)


def test_metrics_server_of_several_stages_is_ready_when_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = settings(free_port())
    router, worker = (monitor(pipeline, 0, stage) for stage in ("router", "worker"))
    router.health.runtime = ready()
    with served(pipeline.metrics, [router, worker]) as port:
        status, body = get_json(port, "/readyz")
        assert (status, body["ready"], body["stage"]) == (503, False, "all")
        assert body["reasons"] == ["worker: starting: Kafka has not answered yet"]
        assert body["stages"]["router"]["reasons"] == []
        monkeypatch.setattr(readiness_module, "ANSWER_S", ANSWER_S)
        assert readiness(pipeline, dict.fromkeys(("router-0", "worker-0", "router-1"), "127.0.0.1")) == {
            "router-0": (),
            "worker-0": ("starting: Kafka has not answered yet",),
        }
        text = ask(port, "/metrics")[2].decode()
        assert text.count("# TYPE skewless_ready gauge") == 1
        assert 'skewless_ready{pipeline="p",stage="router"} 1.0' in text
        assert 'skewless_ready{pipeline="p",stage="worker"} 0.0' in text
        worker.health.runtime = ready()
        assert get_json(port, "/readyz")[0] == 200
        worker.health.stopping = True
        assert get_json(port, "/readyz")[1]["reasons"] == ["worker: stopping"]


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthz", "/../etc/passwd", "/livez/x"])
def test_metrics_server_unknown_path_answers_404(path: str) -> None:
    with listening() as port:
        assert ask(port, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_metrics_server_writing_method_answers_405(method: str) -> None:
    with listening() as port:
        status, headers, _ = ask(port, "/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/nothing", 404)])
def test_metrics_server_head_request_answers_as_get_without_the_body(path: str, status: int) -> None:
    with listening() as port:
        got, headers, body = ask(port, path, "HEAD")
        assert (got, body) == (status, b"")
        assert headers["Content-Type"].split(";")[0] in {"text/plain", "application/json"}


def test_metrics_server_query_string_is_ignored() -> None:
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
def test_metrics_server_oversized_or_malformed_request_is_refused(request_: bytes) -> None:
    with listening() as port:
        assert b"200 OK" not in raw(port, request_)
        assert ask(port, "/metrics")[0] == 200


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)


def wait_until_closed(connection: socket.socket) -> None:
    """Raise TimeoutError if the connection stays open."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("connections", [server.MAX_SCRAPES + 16, 2 * server.MAX_CONNECTIONS])
def test_probes_slow_connections_are_open_answer_at_once(connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With twice the maximum, the oldest connections are closed."""
    monkeypatch.setattr(server, "REQUEST_S", 10 * ANSWER_S)  # a probe that waits for a slow connection gets no answer
    pipeline = settings(free_port())
    watched = monitor(pipeline, 0)
    with served(pipeline.metrics, [watched]) as port, contextlib.ExitStack() as slow:
        for _ in range(connections):
            slow.enter_context(connect(port)).sendall(b"GET /met")
        assert get_json(port, "/livez")[0] == 200
        assert get_json(port, "/readyz")[0] == 503  # it has no partitions, and reports this


def test_metrics_server_as_many_connections_as_allowed_stay_open() -> None:
    with listening() as port, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(port)) for _ in range(server.MAX_CONNECTIONS)]
        for connection in reversed(connections):  # the server has accepted all others when it answers the last one
            connection.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
            assert b"200 OK" in connection.recv(65536)


def test_probes_scrapes_hang_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 10 * ANSWER_S)
    release, hanging = threading.Event(), threading.Semaphore(0)

    def hang() -> list[Sample]:
        hanging.release()
        release.wait(10 * ANSWER_S)
        return []

    app = application(MetricsCollector((hang, {})), {"/livez": lambda: (200, {})})
    with serve_http(app, address="127.0.0.1", port=free_port()) as port, contextlib.ExitStack() as scrapes:
        for _ in range(server.MAX_SCRAPES):
            scrapes.enter_context(connect(port)).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        for _ in range(server.MAX_SCRAPES):
            assert hanging.acquire(timeout=ANSWER_S)
        assert ask(port, "/metrics")[0] == 503
        assert get_json(port, "/livez")[0] == 200
        release.set()


def test_connection_that_sends_nothing_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port, contextlib.ExitStack() as silent:
        with monkeypatch.context() as short:
            short.setattr(server, "REQUEST_S", 0.3)
            for connection in [silent.enter_context(connect(port)) for _ in range(server.MAX_CONNECTIONS)]:
                wait_until_closed(connection)
        assert ask(port, "/metrics")[0] == 200


def test_connection_that_sends_a_byte_now_and_then_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    with listening() as port, connect(port) as dripping, pytest.raises(ConnectionError):
        drip(dripping)


def drip(connection: socket.socket) -> None:
    """Send a byte now and then. Raises ConnectionError when the connection is closed."""
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        connection.sendall(b"G")
        time.sleep(0.05)


def test_connection_that_does_not_read_its_answer_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    threads, process = list[threading.Thread](), server._Server.process_request_thread

    def process_request_thread(*arguments: Any) -> None:
        threads.append(threading.current_thread())
        process(*arguments)

    monkeypatch.setattr(server._Server, "process_request_thread", process_request_thread)
    large = application(MetricsCollector((list, {})), {"/large": lambda: (200, {"text": "x" * 2**24})})
    with serve_http(large, address="127.0.0.1", port=free_port()) as port, connect(port) as unread:
        unread.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        until(lambda: threads)
        (thread,) = threads
        thread.join(ANSWER_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_metrics_server_ipv4_or_ipv6_address_is_served(address: str) -> None:
    with listening(address) as port:
        assert ask(port, "/metrics", address=address)[0] == 200


def test_metrics_server_ipv6_wildcard_address_serves_ipv4_too() -> None:
    with listening("::") as port:
        assert ask(port, "/metrics", address="127.0.0.1")[0] == 200
        assert ask(port, "/metrics", address="::1")[0] == 200


def test_metrics_server_after_its_block_refuses_connections() -> None:
    with listening() as port:
        assert ask(port, "/metrics")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/metrics")


def test_metrics_server_port_0_serves_nothing() -> None:
    pipeline = settings(0)
    with served(pipeline.metrics, [monitor(pipeline, 0)]) as port:
        assert port == 0


def test_metrics_server_restarted_after_a_scrape_binds_the_same_port() -> None:
    port = free_port()
    pipeline = settings(port)
    for _ in range(2):
        with served(pipeline.metrics, [monitor(pipeline, 0)]):
            assert ask(port, "/metrics")[0] == 200


def test_metrics_server_port_in_use_is_a_configuration_error() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        pipeline = settings(port)
        with (
            pytest.raises(ConfigurationError, match=rf"cannot listen on 127.0.0.1:{port}"),
            served(pipeline.metrics, [monitor(pipeline, 0)]),
        ):
            pass


@pytest.mark.parametrize("address", ["no.such.host.invalid", "no..host"])
def test_metrics_server_unknown_address_is_a_configuration_error(address: str) -> None:
    pipeline = settings(free_port(), address)
    with (
        pytest.raises(ConfigurationError, match=f"cannot listen on {re.escape(address)}"),
        served(pipeline.metrics, [monitor(pipeline, 0)]),
    ):
        pass


def test_readiness_without_producer_partitions_or_state_reports_each_reason() -> None:
    health = Health(60.0)
    wired = health.runtime = wiring()
    executor = wired.executor
    assert [reason.split(":")[0] for reason in health.readiness_failures()] == [
        "no producer",
        "no partitions assigned by the group",
    ]
    wired.output.ready = True
    with executor.statistics.restoring_partitions():
        assert health.readiness_failures() == ["restoring state"]
    assign(executor, {0: RestoredPartition(0, None)})
    assert health.ready
    revoke(executor, [0])
    assert health.readiness_failures() == ["no partitions assigned by the group"]
    assign(executor, {})
    assert health.ready  # more processes than partitions: this one is a ready spare
    health.stopping = True
    assert health.readiness_failures() == ["stopping"]


def test_readiness_of_a_sink_without_its_database_names_the_database() -> None:
    health = Health(60.0)
    health.runtime = wiring("sink", sink={"url": "sqlite:///x.db"})
    assert health.readiness_failures()[0] == "no connection to the database /x.db"


def test_liveness_event_loop_or_consumer_without_progress_reports_the_reason() -> None:
    now = 100.0
    health = Health(60.0, clock=lambda: now)
    assert health.liveness_failures() == []

    async def begin() -> None:
        with health.heartbeat():
            await asyncio.sleep(0)

    asyncio.run(begin())
    wired = health.runtime = wiring()
    wired.executor.statistics.last_poll_at = 130.0
    now = 159.0
    assert health.liveness_failures() == []
    now = 161.0
    assert health.liveness_failures() == ["the event loop has made no progress for 61 s"]
    now = 191.0
    assert health.liveness_failures() == [
        "the event loop has made no progress for 91 s",
        "the consumer thread has made no progress for 61 s",
    ]
    with wired.executor.statistics.restoring_partitions():
        assert health.liveness_failures() == ["the event loop has made no progress for 91 s"]
