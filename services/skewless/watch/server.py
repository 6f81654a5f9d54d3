"""One port for those who watch: /metrics, /livez, /readyz and /version, to be read and nothing else."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from socketserver import ThreadingMixIn
from typing import IO, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from skewless.errors import ConfigurationError
from skewless.watch.collector import ListCollector

log = logging.getLogger(__name__)

MOST_REQUESTS = 16
"""At the same time; whoever comes then is turned away."""
REQUEST_BYTES = 16 * 1024
REQUEST_S = 5.0

Page = tuple[int, Mapping[str, object]]
"""HTTP status and what is told, as JSON."""

_STATUS = {200: "200 OK", 404: "404 Not Found", 405: "405 Method Not Allowed", 503: "503 Service Unavailable"}


def application(collector: ListCollector, pages: Mapping[str, Callable[[], Page]]) -> WSGIApplication:
    """Answer for /metrics and the `pages` by path."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Sequence[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method not in {"GET", "HEAD"}:
            return _tell(start, "GET", 405, {"error": "GET or HEAD only"}, [("Allow", "GET, HEAD")])
        if path == "/metrics":
            body = b"".join(metrics({**environ, "REQUEST_METHOD": "GET"}, start))
            return [] if method == "HEAD" else [body]
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
    timeout = REQUEST_S

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

    def __init__(self, address: str, port: int, app: WSGIApplication) -> None:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._room = threading.BoundedSemaphore(MOST_REQUESTS)
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
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

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
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="watch", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
