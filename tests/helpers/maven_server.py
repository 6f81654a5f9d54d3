"""A local Maven repository whose responses a test chooses."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from skewless.lab.local.jars import Jar

Answer = Callable[[BaseHTTPRequestHandler], None]


def jar_of(name: str, content: bytes) -> Jar:
    """Return the lock entry of a jar with this content."""
    return Jar(f"org.example:{name}:1.0", hashlib.sha256(content).hexdigest(), len(content))


def send(content: bytes, announced: int | None = None) -> Answer:
    """Respond with a file. With `announced` the response declares more bytes than it has."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(announced or len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


class MavenServer(ThreadingHTTPServer):
    """Serves the responses of each path in order. The last one repeats."""

    daemon_threads = False
    block_on_close = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[str] = []
        """File names of the jars that were downloaded, in order."""
        self.mutex = threading.Lock()

    @property
    def address(self) -> str:
        """Base address of the repository."""
        return f"http://127.0.0.1:{self.server_port}/maven2"

    def serve(self, jar: Jar, *answers: Answer) -> None:
        """Set the responses for a jar."""
        self.answers[jar.file] = list(answers)


class _Handler(BaseHTTPRequestHandler):
    server: MavenServer

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]

    def do_HEAD(self) -> None:
        self.send_response(200 if self.file in self.server.answers else 404)
        self.end_headers()

    def do_GET(self) -> None:
        with self.server.mutex:
            self.server.requests.append(self.file)
            answers = self.server.answers[self.file]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        # A test may kill the client.
        with contextlib.suppress(ConnectionError):
            answer(self)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        pass


@contextlib.contextmanager
def run_server() -> Iterator[MavenServer]:
    """Run a server until the block ends."""
    with MavenServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
