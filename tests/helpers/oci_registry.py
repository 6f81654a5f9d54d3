"""A registry that accepts what `helm push` sends: uploads of blobs in one request, and manifests (OCI distribution)."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def digest_of(content: bytes) -> str:
    """Return the address of a content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Registry(ThreadingHTTPServer):
    """What was pushed, by address."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        """By `repository:tag` and by `repository@digest`."""
        self.media_types: dict[str, str] = {}
        """Of the manifests, by address."""

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_port}"

    def layers(self, name: str) -> list[bytes]:
        """Return the contents of the layers of `repository:tag`."""
        return [self.blobs[layer["digest"]] for layer in json.loads(self.manifests[name])["layers"]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
        """Print nothing."""

    def _answer(self, status: HTTPStatus, headers: dict[str, str] | None = None, content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stored(self) -> bytes | None:
        if blob := re.fullmatch(r"/v2/(.+)/blobs/(sha256:\w+)", self.path):
            return self.server.blobs.get(blob[2])
        if manifest := re.fullmatch(r"/v2/(.+)/manifests/(.+)", self.path):
            return self.server.manifests.get(_name(manifest[1], manifest[2]))
        return b"{}" if self.path == "/v2/" else None

    def do_GET(self) -> None:
        content = self._stored()
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND)
        else:
            digest = digest_of(content)
            media_type = self.server.media_types.get(digest, "application/octet-stream")
            self._answer(HTTPStatus.OK, {"Docker-Content-Digest": digest, "Content-Type": media_type}, content)

    do_HEAD = do_GET  # noqa: N815 - name that the base class looks for

    def do_POST(self) -> None:
        self._answer(HTTPStatus.ACCEPTED, {"Location": f"{self.path.rstrip('/')}/upload"})

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        url, digest = urlsplit(self.path), digest_of(content)
        if manifest := re.fullmatch(r"/v2/(.+)/manifests/(.+)", url.path):
            self.server.media_types[digest] = self.headers["Content-Type"]
            self.server.manifests[_name(manifest[1], manifest[2])] = content
            self.server.manifests[_name(manifest[1], digest)] = content
        elif parse_qs(url.query).get("digest") == [digest]:
            self.server.blobs[digest] = content
        else:
            self._answer(HTTPStatus.BAD_REQUEST)
            return
        self._answer(HTTPStatus.CREATED, {"Location": url.path, "Docker-Content-Digest": digest})


def _name(repository: str, reference: str) -> str:
    return f"{repository}@{reference}" if reference.startswith("sha256:") else f"{repository}:{reference}"


@contextmanager
def registry() -> Iterator[Registry]:
    """Run a registry until the end of the block."""
    with Registry() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
