"""Serves the page. It is read-only, and asks for a token unless only this machine can reach it."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from wsgiref.types import StartResponse, WSGIEnvironment

import msgspec

from skewless.errors import UnreachableError
from skewless.login_settings import is_loopback
from skewless.monitoring.server import listen, serve
from skewless.operations.live_page.cards import Card

FOLDER = Path(__file__).parent
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""Files of the page by path, with their types."""
COOKIE = "skewless"
LOOPBACK = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = [
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", POLICY),
]


class LivePage:
    """Content of the page. Viewers ask for it every `interval_s` seconds."""

    def __init__(self, title: str, interval_s: float) -> None:
        self._title = title
        self._interval_s = interval_s
        self._viewed = threading.Event()
        self.state = b""
        self.show(())

    def show(self, cards: Sequence[Card], error: str | None = None) -> None:
        """Replace the content: pipelines, and an error that is shown above them."""
        content = {"title": self._title, "interval_ms": round(1000 * self._interval_s), "error": error, "cards": cards}
        self.state = msgspec.json.encode(content)

    def request(self) -> bytes:
        """Return the content as JSON, for a viewer."""
        self._viewed.set()
        return self.state

    def wait_for_viewer(self) -> None:
        """Wait until a viewer has asked for the content since the last call."""
        self._viewed.wait()
        self._viewed.clear()


class Application:
    """WSGI application of a page.

    With a token, only requests with its cookie are answered. The address with the token sets the cookie. Without one,
    only requests to names of this machine are answered, so that no web site can read the page by a name of its own
    that leads here (DNS rebinding).
    """

    def __init__(self, page: LivePage, token: str | None) -> None:
        self._page = page
        self._token = token

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Sequence[bytes]:
        """Answer a request."""
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return _answer(environ, start, "405 Method Not Allowed", b"GET or HEAD only\n", [("Allow", "GET, HEAD")])
        if self._token is None:
            if not _names_this_machine(environ.get("HTTP_HOST", "")):
                return _answer(environ, start, "403 Forbidden", b"open the page as localhost or 127.0.0.1\n")
        elif not _is_equal(_cookie(environ), self._token):
            return _log_in(environ, start, self._token)
        path = environ["PATH_INFO"]
        if path == "/state":
            return _answer(environ, start, "200 OK", self._page.request(), kind="application/json")
        if path in FILES:
            name, kind = FILES[path]
            return _answer(environ, start, "200 OK", (FOLDER / name).read_bytes(), kind=kind)
        return _answer(environ, start, "404 Not Found", b"not found\n")


def _log_in(environ: WSGIEnvironment, start: StartResponse, token: str) -> Sequence[bytes]:
    """Set the cookie if the address has the token."""
    given = parse_qs(environ.get("QUERY_STRING", "")).get("token", [""])[0]
    if not _is_equal(given, token):
        return _answer(environ, start, "403 Forbidden", b"open the address with the token that was printed\n")
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    return _answer(environ, start, "303 See Other", b"", [("Location", "/"), ("Set-Cookie", cookie)])


def _answer(  # noqa: PLR0913 - the parts of a response
    environ: WSGIEnvironment,
    start: StartResponse,
    status: str,
    body: bytes,
    headers: Sequence[tuple[str, str]] = (),
    *,
    kind: str = "text/plain; charset=utf-8",
) -> Sequence[bytes]:
    start(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *HEADERS, *headers])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


@contextlib.contextmanager
def served(page: LivePage, *, address: str = LOOPBACK, port: int = 0) -> Iterator[str]:
    """Serve a page until the end of the block, and yield its URL. Port 0 is any free one.

    The URL has a token if other machines can reach the address. Raises UnreachableError if the port is not available.
    """
    token = None if is_loopback(address) else secrets.token_urlsafe(24)
    try:
        server = listen(Application(page, token), address, port)
    except OSError as error:
        raise UnreachableError(f"cannot listen on {address}:{port}: {error.strerror}; choose another port") from error
    with serve(server) as used:
        host = socket.gethostname() if address in {"", "0.0.0.0", "::"} else address  # noqa: S104 - compared only
        host = f"[{host}]" if ":" in host else host
        yield f"http://{host}:{used}/" + (f"?token={token}" if token else "")


def _names_this_machine(host: str) -> bool:
    """Return whether the header `Host` of a request names this machine."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _cookie(environ: WSGIEnvironment) -> str:
    """Return the token in the cookies of a request; empty if there is none."""
    try:
        found = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
