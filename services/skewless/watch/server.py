"""One port for those who watch: /metrics, /livez, /readyz and /version, to be read and nothing else."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from socketserver import ThreadingMixIn
from typing import IO, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from skewless.errors import ConfigurationError
from skewless.watch.collector import ListCollector

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""Connections that are open at the same time. One more closes the oldest, so that slow ones never keep a probe out."""
MAX_SCRAPES = 8
"""Requests for /metrics at the same time; one more is refused. Probes need no such slot."""
REQUEST_BYTES = 16 * 1024
REQUEST_S = 5.0
"""Deadline of a connection, from its acceptance to the last byte of the answer."""
CHECK_S = 0.1
"""Time between two looks for connections past their deadline."""

Page = tuple[int, Mapping[str, object]]
"""HTTP status and what is told, as JSON."""

_STATUS = {200: "200 OK", 404: "404 Not Found", 405: "405 Method Not Allowed", 503: "503 Service Unavailable"}


def application(collector: ListCollector, pages: Mapping[str, Callable[[], Page]]) -> WSGIApplication:
    """Answer for /metrics and the `pages` by path."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)
    scrapes = threading.BoundedSemaphore(MAX_SCRAPES)

    def scrape(environ: WSGIEnvironment, start: StartResponse) -> Sequence[bytes]:
        if not scrapes.acquire(blocking=False):
            return _tell(start, environ["REQUEST_METHOD"], 503, {"error": "too many scrapes at the same time"})
        try:
            body = b"".join(metrics({**environ, "REQUEST_METHOD": "GET"}, start))
        finally:
            scrapes.release()
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Sequence[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method not in {"GET", "HEAD"}:
            return _tell(start, "GET", 405, {"error": "GET or HEAD only"}, [("Allow", "GET, HEAD")])
        if path == "/metrics":
            return scrape(environ, start)
        if path in pages:
            return _tell(start, method, *pages[path]())
        return _tell(start, method, 404, {"error": "not found", "paths": ["/metrics", *pages]})

    return answer


def _tell(
    start: StartResponse,
    method: str,
    status: int,
    facts: Mapping[str, object],
    headers: Sequence[tuple[str, str]] = (),
) -> list[bytes]:
    body = json.dumps(facts).encode() + b"\n"
    about = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    start(_STATUS[status], [*about, *headers])
    return [] if method == "HEAD" else [body]


class _Bounded:
    """As much of a file as a request reads, and no more bytes of it than a request needs."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = REQUEST_BYTES
        self.close = file.close

    @property
    def closed(self) -> bool:
        return self._file.closed

    def readline(self, limit: int = -1) -> bytes:
        line = self._file.readline(self._left + 1 if limit < 0 else min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise ConnectionAbortedError("the request is too long")
        return line


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _Bounded(self.rfile)

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        log.debug("%s: %s", self.address_string(), format % args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: str, port: int, app: WSGIApplication) -> None:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._deadlines: dict[socket.socket, float] = {}
        """By open connection, the oldest first. Handlers remove theirs, from threads of their own."""
        super().__init__((address, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without asking the resolver for this machine's name, which can take long and is of no use here.

        The port of a process before us is free, though connections of its last scrapes still rest on it.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "skewless", self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Open a connection; the oldest one makes room, because the path is not known before the request was read."""
        for oldest in list(self._deadlines)[: len(self._deadlines) - MAX_CONNECTIONS + 1]:
            self._cut(oldest)
        self._deadlines[request] = time.monotonic() + REQUEST_S
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Cut connections past their deadline, whether they read or write; the server's loop calls this."""
        now = time.monotonic()
        for connection in [each for each, deadline in self._deadlines.copy().items() if deadline <= now]:
            self._cut(connection)

    def _cut(self, connection: socket.socket) -> None:
        """Wake the thread that waits for the connection; it closes the connection and ends."""
        self._deadlines.pop(connection, None)
        with contextlib.suppress(OSError):  # the thread has closed it meanwhile
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's interface
        log.debug("a request of %s was cut short", client_address)


@contextlib.contextmanager
def served(app: WSGIApplication, *, address: str, port: int) -> Iterator[int]:
    """Serve while the block runs; yields the port. Nothing is served when `port` is 0.

    Raises ConfigurationError when the port cannot be had.
    """
    if port == 0:
        yield 0
        return
    try:
        server = _Server(address, port, app)
    except OSError as error:
        raise ConfigurationError(f"metrics.port: {address}:{port} cannot be listened on: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": CHECK_S}, name="watch", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
