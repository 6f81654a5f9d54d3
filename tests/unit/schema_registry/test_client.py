"""The client of the schema registry, with answers that a real registry rarely gives."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from skewless.errors import RegistryError
from skewless.schema_registry.client import RegistryClient
from skewless.schema_registry.settings import RegistrySettings


@dataclass
class Server:
    """A registry with these answers."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    """Content by path."""
    asked: list[str] = field(default_factory=list)
    """Paths of the requests, in order."""

    def add(self, path: str, references: Sequence[str] = ()) -> None:
        """Add a schema. It has references to the version 1 of these subjects."""
        named = [{"name": subject, "subject": subject, "version": 1} for subject in references]
        version = {"subject": "s", "version": 1, "id": 1, "schema": '"int"', "references": named}
        self.answers[path] = version


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found.asked.append(path)
            content = json.dumps(found.answers[path]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        found.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        with contextlib.ExitStack() as stack:
            stack.callback(thread.join)
            stack.callback(http.shutdown)
            yield found


def client_of(server: Server, **settings: Any) -> RegistryClient:
    return RegistryClient(RegistrySettings.model_validate({"url": server.url, "connect_timeout_s": 1, **settings}))


def test_client_reference_of_many_schemas_is_counted_and_fetched_once(server: Server) -> None:
    common, entities = [f"common{number}" for number in range(4)], [f"entity{number}" for number in range(21)]
    server.add("/schemas/ids/1", entities)
    for subject in entities:
        server.add(f"/subjects/{subject}/versions/1", common)
    for subject in common:
        server.add(f"/subjects/{subject}/versions/1")
    schema = client_of(server).schema(1)
    assert list(schema.all_references()) == [*common, *entities]
    assert len(server.asked) == 1 + 4 + 21


def test_client_schema_with_too_many_references_or_with_itself_is_refused(server: Server) -> None:
    server.add("/schemas/ids/1", ["s0"])
    for number in range(101):
        server.add(f"/subjects/s{number}/versions/1", [f"s{number + 1}"])
    with pytest.raises(RegistryError, match="refers to more than 100 others"):
        client_of(server).schema(1)
    server.add("/subjects/s2/versions/1", ["s0"])
    with pytest.raises(RegistryError, match="version 1 of subject s0 refers to itself"):
        client_of(server).schema(1)
