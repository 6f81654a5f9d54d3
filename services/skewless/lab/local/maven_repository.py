"""Reads files of a Maven repository over HTTPS. The environment selects the repository and its proxy.

| variable | meaning |
| --- | --- |
| `SKEWLESS_MAVEN_REPOSITORY` | base address of a mirror, which may contain a user and a password |
| `SKEWLESS_IVY_SETTINGS` | Ivy settings file, whose first `ibiblio` resolver with a `root` is the mirror |
| `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` | proxy, as for pip |
| `JAVA_TOOL_OPTIONS` | proxy of Java: `-Dhttps.proxyHost=... -Dhttps.proxyPort=... -Dhttp.nonProxyHosts=...` |
"""

from __future__ import annotations

import base64
import fnmatch
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from skewless.errors import ConfigurationError, UnreachableError

CENTRAL = "https://repo1.maven.org/maven2"
"""Base address of Maven Central, the default repository."""
ADDRESS = "SKEWLESS_MAVEN_REPOSITORY"
IVY_SETTINGS = "SKEWLESS_IVY_SETTINGS"
TIMEOUT_S = 20.0
CHUNK_BYTES = 1 << 17
PORTS = {"http": "80", "https": "443"}
"""Default ports of Java's proxy settings, by scheme."""
BUSY = 429
NEXT_STEP = (
    f"check the network and run this again; behind a proxy set HTTPS_PROXY, with a mirror set {ADDRESS} to its base "
    "address"
)


def base_address() -> str:
    """Return the base address of the repository, without a final slash. Raises ConfigurationError if it is invalid."""
    address = os.environ.get(ADDRESS) or _address_of_ivy_settings() or CENTRAL
    if not re.match(r"https?://[^/]", address):
        raise ConfigurationError(f"{ADDRESS}: {address!r} is not an address of http or https, such as {CENTRAL}")
    return address.rstrip("/")


def _address_of_ivy_settings() -> str | None:
    """Return the mirror of the Ivy settings file; None without such a file."""
    path = os.environ.get(IVY_SETTINGS)
    if not path:
        return None
    try:
        # The user wrote the file, so it may contain what it likes.
        resolvers = list(ET.parse(path).iter("ibiblio"))  # noqa: S314
    except (OSError, ET.ParseError) as error:
        raise ConfigurationError(f"{IVY_SETTINGS}: cannot read {path}: {error}") from None
    roots = [root for resolver in resolvers if (root := resolver.get("root")) and "${" not in root]
    if not roots:
        raise ConfigurationError(
            f"{IVY_SETTINGS}: {path} has no ibiblio resolver with a plain root address: set {ADDRESS} to the base "
            "address of the mirror"
        )
    return roots[0]


class MavenRepository:
    """The repository at a base address."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
        self.address = urllib.parse.urlunsplit(parts._replace(netloc=host))
        """Base address without credentials, for messages."""
        self._authorization = _basic_authorization(parts)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(_proxies(parts.hostname or "")))

    def read(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks.

        Raises UnreachableError if another attempt may succeed: without a connection, after a lost one, and if the
        server is overloaded. Raises ConfigurationError if the server refuses the request.
        """
        url = f"{self.address}/{path}"
        request = urllib.request.Request(url)  # noqa: S310 - `base_address` checks the scheme
        if self._authorization:
            # A redirect must not send the credentials to another host.
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                yield from _chunks(response)
        except urllib.error.HTTPError as error:
            raise _refusal(url, error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise UnreachableError(f"cannot download {url} ({text}): {NEXT_STEP}") from None


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    received, announced = 0, response.headers.get("Content-Length")
    while chunk := response.read(CHUNK_BYTES):
        received += len(chunk)
        yield chunk
    # `read` with a size does not report a connection that was closed too early.
    if announced is not None and received < int(announced):
        raise ConnectionError(f"connection closed after {received} of {announced} bytes")


def _refusal(url: str, error: urllib.error.HTTPError) -> ConfigurationError | UnreachableError:
    error.close()
    text = f"{url}: the server responded with {error.code} {error.reason}"
    if error.code == BUSY or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return UnreachableError(f"{text}: {NEXT_STEP}")
    return ConfigurationError(f"{text}: check that {ADDRESS} is the base address of a Maven repository with this file")


def _basic_authorization(parts: urllib.parse.SplitResult) -> str | None:
    if parts.username is None:
        return None
    credentials = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


def _proxies(host: str) -> dict[str, str]:
    """Return the proxy of each scheme. The usual variables have precedence over Java's options."""
    options = dict(re.findall(r"-D(http\S*?)=(\S+)", os.environ.get("JAVA_TOOL_OPTIONS", "")))
    direct = options.get("http.nonProxyHosts", "localhost|127.*").split("|")
    if any(fnmatch.fnmatch(host, pattern) for pattern in direct):
        return urllib.request.getproxies()
    java = {
        scheme: f"http://{options[f'{scheme}.proxyHost']}:{options.get(f'{scheme}.proxyPort', port)}"
        for scheme, port in PORTS.items()
        if f"{scheme}.proxyHost" in options
    }
    return java | urllib.request.getproxies()
