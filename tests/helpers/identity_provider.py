"""An identity provider for tests: a token endpoint for client credentials, and the public key of its signatures."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER = "https://identity.example"
KEY_ID = "of-the-tests"


class IdentityProvider:
    """Issues signed tokens (JWT) to clients that know their secret. `secrets`: client id -> secret."""

    def __init__(self, secrets: Mapping[str, str], audience: str, lifetime_s: int) -> None:
        self.secrets = secrets
        self.lifetime_s = lifetime_s
        self.available = True
        """If False, each request for a token fails with status 503."""
        self.issued: list[tuple[str, str]] = []
        """Client id and scope of each token."""
        self.tokens: list[str] = []
        """The tokens."""
        self.refused = 0
        """Number of requests for a token that failed."""
        self.url = ""
        """Address of the server; it is set while the server runs."""
        self._audience = audience
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def token_url(self) -> str:
        """Address of the token endpoint."""
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        """Address of the public keys (JWKS)."""
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        """Return the public keys as JWKS."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": KEY_ID,
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        return {"keys": [key]}

    def token(self, client: str, scope: str) -> dict[str, Any]:
        """Return the answer of the token endpoint for a client."""
        now = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        times = {"iat": now, "exp": now + self.lifetime_s}
        given = {"scope": scope} if scope else {}
        claims = {"iss": ISSUER, "aud": self._audience, "sub": client, **given, **times}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued.append((client, scope))
        token = f"{signed}.{_base64(signature)}"
        self.tokens.append(token)
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s, **given}

    def answer(self, credentials: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Return status and content of the answer to a request with these credentials (HTTP Basic)."""
        client, _, secret = base64.b64decode(credentials.removeprefix("Basic ")).decode().partition(":")
        if self.available and form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if self.available and self.secrets.get(client) == secret:
            return 200, self.token(client, "".join(form.get("scope", [])))
        self.refused += 1
        return (401, {"error": "invalid_client"}) if self.available else (503, {"error": "temporarily_unavailable"})

    @contextlib.contextmanager
    def running(self, certificate: Path) -> Iterator[None]:
        """Serve with HTTPS at 127.0.0.1. `certificate`: file (PEM) with the key and the certificate of the server."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                self._send(*provider.answer(self.headers.get("Authorization", ""), parse_qs(body)))

            def do_GET(self) -> None:
                self._send(200, provider.keys())

            def _send(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The thread of a request does the handshake, and closes its socket if it fails.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))
