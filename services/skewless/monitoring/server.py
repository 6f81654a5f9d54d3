"""HTTP server for monitoring: /metrics, /livez, /readyz and /version on one port, read-only."""

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
from skewless.monitoring.collector import MetricsCollector

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""Maximum open connections. A further one closes the oldest, so that slow connections never block a probe."""
MAX_SCRAPES = 8
"""Maximum concurrent requests for /metrics; further ones get 503. Probes are not limited."""
REQUEST_BYTES = 16 * 1024
REQUEST_S = 5.0
"""Deadline of a connection, from accepting it to the last byte of the response."""
CHECK_S = 0.1
"""Interval between two checks for connections past their deadline."""

Page = tuple[int, Mapping[str, object]]
"""HTTP status and the JSON object of the response."""

_STATUS = {200: "200 OK", 404: "404 Not Found", 405: "405 Method Not Allowed", 503: "503 Service Unavailable"}


def application(collector: MetricsCollector, pages: Mapping[str, Callable[[], Page]]) -> WSGIApplication:
    """Return the WSGI application that serves /metrics and the `pages` by path."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)
    scrapes = threading.BoundedSemaphore(MAX_SCRAPES)

    def scrape(environ: WSGIEnvironment, start: StartResponse) -> Sequence[bytes]:
        if not scrapes.acquire(blocking=False):
            return _json_response(start, environ["REQUEST_METHOD"], 503, {"error": "too many concurrent scrapes"})
        try:
            body = b"".join(metrics({**environ, "REQUEST_METHOD": "GET"}, start))
        finally:
            scrapes.release()
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def respond(environ: WSGIEnvironment, start: StartResponse) -> Sequence[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method not in {"GET", "HEAD"}:
            return _json_response(start, "GET", 405, {"error": "GET or HEAD only"}, [("Allow", "GET, HEAD")])
        if path == "/metrics":
            return scrape(environ, start)
        if path in pages:
            return _json_response(start, method, *pages[path]())
        return _json_response(start, method, 404, {"error": "not found", "paths": ["/metrics", *pages]})

    return respond


def _json_response(
    start: StartResponse,
    method: str,
    status: int,
    content: Mapping[str, object],
    extra_headers: Sequence[tuple[str, str]] = (),
) -> list[bytes]:
    body = json.dumps(content).encode() + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    start(_STATUS[status], [*headers, *extra_headers])
    return [] if method == "HEAD" else [body]


class _BoundedReader:
    """Reads the lines of a request, at most REQUEST_BYTES of them. Has only the methods that the handler calls."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._remaining = REQUEST_BYTES
        self.close = file.close

    @property
    def closed(self) -> bool:
        return self._file.closed

    def readline(self, limit: int = -1) -> bytes:
        line = self._file.readline(self._remaining + 1 if limit < 0 else min(limit, self._remaining + 1))
        self._remaining -= len(line)
        if self._remaining < 0:
            raise ConnectionAbortedError("the request is too long")
        return line


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _BoundedReader(self.rfile)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        log.debug("%s: %s", self.address_string(), format % args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: str, port: int, app: WSGIApplication) -> None:
        addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = addresses[0][0]
        self._deadlines: dict[socket.socket, float] = {}
        """Deadline of each open connection, the oldest first. Handlers remove entries from their own threads."""
        super().__init__((address, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without resolving the name of this machine, which the base class does and which can take long."""
        # Without SO_REUSEADDR the port of a previous process stays blocked by its connections in TIME_WAIT.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "skewless", self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a new connection. Shuts down the oldest connections if there are too many."""
        # A probe cannot be preferred, because the path is known only after the request is read.
        for oldest in list(self._deadlines)[: max(0, len(self._deadlines) - MAX_CONNECTIONS + 1)]:
            self._shut_down(oldest)
        self._deadlines[request] = time.monotonic() + REQUEST_S
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Shut down connections past their deadline, while they read or write. The server's loop calls this method."""
        now = time.monotonic()
        for connection, deadline in self._deadlines.copy().items():
            if deadline <= now:
                self._shut_down(connection)

    def _shut_down(self, connection: socket.socket) -> None:
        """Shut a connection down. The thread that waits for it wakes up, closes it and ends."""
        self._deadlines.pop(connection, None)
        with contextlib.suppress(OSError):  # the thread has already closed it
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's interface
        log.debug("the request of %s ended early", client_address)


@contextlib.contextmanager
def serve_http(app: WSGIApplication, *, address: str, port: int) -> Iterator[int]:
    """Serve until the end of the block and yield the port. Does not serve if `port` is 0.

    Raises ConfigurationError if the port is not available.
    """
    if port == 0:
        yield 0
        return
    try:
        server = listen(app, address, port)
    except OSError as error:
        raise ConfigurationError(f"metrics.port: cannot listen on {address}:{port}: {error.strerror}") from error
    with serve(server) as used:
        yield used


def listen(app: WSGIApplication, address: str, port: int) -> WSGIServer:
    """Return a server that listens on a port; 0 is any free one. Raises OSError if the port is not available."""
    try:
        return _Server(address, port, app)
    except UnicodeError:  # a host name such as a..b
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None


@contextlib.contextmanager
def serve(server: WSGIServer) -> Iterator[int]:
    """Serve in a thread until the end of the block and yield the port. Then close the server."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": CHECK_S}, name="watch", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
