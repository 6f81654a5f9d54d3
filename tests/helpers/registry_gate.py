"""A gate in front of a schema registry, as companies have one: TLS, logins, and faults that a test chooses."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from helpers.schema_registry import API
from helpers.waiting import WAIT_S

Accepts = Callable[[str], bool]
"""Returns whether a header `Authorization` is accepted."""


def basic(username: str, password: str) -> Accepts:
    """Accept this user name and password."""
    expected = base64.b64encode(f"{username}:{password}".encode()).decode()
    return lambda authorization: authorization == f"Basic {expected}"


@dataclass
class Gate:
    """The gate of one test. Its attributes may change while it runs."""

    target: int
    """Port of the registry."""
    accepts: Accepts = lambda _authorization: True
    status: int | None = None
    """Status of all answers, or of those to requests of `part`. None: those of the registry."""
    part: str = ""
    """Part of the paths of requests whose answer has `status`."""
    content: bytes = b""
    """Content of the answers with `status`."""
    is_open: threading.Event = field(default_factory=threading.Event)
    """While it is not set, requests get no answer."""
    asked: list[str] = field(default_factory=list)
    """Paths of the requests, in order."""
    url: str = ""
    port: int = 0

    def __post_init__(self) -> None:
        self.is_open.set()

    @contextlib.contextmanager
    def running(self, certificate: Path | None = None, clients: Path | None = None) -> Iterator[None]:
        """Serve at 127.0.0.1, on `port` if it is set. `certificate`: file (PEM) with key and certificate of the server.

        `clients`: authority of the certificates that clients need.
        """
        gate = self

        class Handler(_Handler):
            def do_GET(self) -> None:
                self.forward(gate, "GET")

            def do_POST(self) -> None:
                self.forward(gate, "POST")

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            if clients is not None:
                context.load_verify_locations(clients)
                context.verify_mode = ssl.CERT_REQUIRED
            # The handshake must not block the thread that accepts connections.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_port
        self.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self.port}{API}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.is_open.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def forward(self, gate: Gate, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        gate.asked.append(self.path)
        gate.is_open.wait()
        if gate.status is not None and gate.part in self.path:
            self._send(gate.status, "text/html", gate.content)
        elif not gate.accepts(self.headers.get("Authorization", "")):
            self._send(401, "application/json", b'{"error_code": 401, "message": "Unauthorized"}')
        else:
            connection = http.client.HTTPConnection("127.0.0.1", gate.target, timeout=WAIT_S)
            with contextlib.closing(connection):
                kind = self.headers.get("Content-Type", "application/json")
                connection.request(method, self.path, body, {"Content-Type": kind})
                answer = connection.getresponse()
                self._send(answer.status, answer.headers.get("Content-Type", ""), answer.read())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        with contextlib.suppress(OSError):  # the client may have given up
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if 300 <= status < 400:
                self.send_header("Location", "https://elsewhere.example/")
            self.end_headers()
            self.wfile.write(content)

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # also of a failed handshake
            super().handle()

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""
