"""The client of the schema registry, with a real one behind a gate that checks logins and answers wrongly."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from helpers.identity_provider import IdentityProvider
from helpers.registry_gate import Gate, basic
from helpers.schema_registry import RegistryServer
from helpers.waiting import WAIT_S
from integration.secured import KEY_PASSWORD, Keys, make_keys
from skewless.errors import (
    ConfigurationError,
    RegistryError,
    SkewlessError,
    UnavailableError,
    UnknownSchemaError,
    UnreachableError,
)
from skewless.lab.local.ports import find_free_ports
from skewless.schema_registry.client import LAST_PAUSE_S, RegistryClient, pauses
from skewless.schema_registry.schema import SchemaId
from skewless.schema_registry.settings import RegistrySettings

SECRET = "canary7f3a91c2"  # noqa: S105 - of servers that live as long as these tests
CLIENT = "pipelines"
COUNTRY = {"type": "enum", "name": "Country", "namespace": "acme", "symbols": ["DE", "FR"]}
CLICK = {"type": "record", "name": "Click", "fields": [{"name": "country", "type": "acme.Country"}]}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def provider(keys: Keys) -> Iterator[IdentityProvider]:
    provider = IdentityProvider({CLIENT: SECRET}, "registry", 3600)
    with provider.running(keys.server):
        yield provider


def client_of(url: str, **settings: Any) -> RegistryClient:
    patient = {"url": url, "connect_timeout_s": 0.5, "request_timeout_s": WAIT_S}
    return RegistryClient(RegistrySettings.model_validate({**patient, **settings}))


def test_client_schema_with_references_is_complete(registry_server: RegistryServer) -> None:
    registry_server.register("country", COUNTRY)
    references = [{"name": "acme.Country", "subject": "country", "version": 1}]
    schema_id = registry_server.register("click-value", CLICK, references=references)
    schema = client_of(registry_server.url).schema(schema_id)
    assert schema.type == "AVRO"
    assert "Click" in schema.text
    assert list(schema.references) == ["acme.Country"]
    assert "FR" in schema.references["acme.Country"].text


@pytest.mark.parametrize("schema_id", [0, 987_654, 2**31 - 1, 2**32 - 1, UUID(int=7)])
def test_client_unknown_id_is_no_error_of_the_registry(schema_id: SchemaId, registry_server: RegistryServer) -> None:
    with pytest.raises(UnknownSchemaError):
        client_of(registry_server.url).schema(schema_id)


def login(kind: str, keys: Keys, provider: IdentityProvider) -> dict[str, Any]:
    """Return settings of a client that the gate of this kind accepts."""
    tls = {"ca": str(keys.ca)}
    match kind:
        case "basic":
            return {"tls": tls, "username": CLIENT, "password": SECRET}
        case "certificate":
            pair = keys.client
            names = {"certificate": str(pair.certificate), "key": str(pair.key), "key_password": KEY_PASSWORD}
            return {"tls": tls | names}
        case "token":
            oauth = {"token_endpoint_url": provider.token_url, "client_id": CLIENT, "client_secret": SECRET}
            return {"tls": tls, "oauthbearer": oauth | {"ca": str(keys.ca), "scope": "schemas"}}
    return {"tls": tls}


@contextlib.contextmanager
def gate_of(kind: str, server: RegistryServer, keys: Keys, provider: IdentityProvider) -> Iterator[Gate]:
    gate = Gate(server.port)
    if kind == "basic":
        gate.accepts = basic(CLIENT, SECRET)
    if kind == "token":
        gate.accepts = lambda authorization: authorization.removeprefix("Bearer ") in provider.tokens
    with gate.running(keys.server, keys.ca if kind == "certificate" else None):
        yield gate


@pytest.mark.parametrize("kind", ["none", "basic", "certificate", "token"])
def test_client_with_its_login_reads_and_without_it_is_refused_in_one_line(
    kind: str, registry_server: RegistryServer, keys: Keys, provider: IdentityProvider
) -> None:
    schema_id = registry_server.register("country", COUNTRY)
    settings = login(kind, keys, provider)
    with gate_of(kind, registry_server, keys, provider) as gate:
        client = client_of(gate.url, **settings)
        client.check()
        assert "Country" in client.schema(schema_id).text
        if kind == "none":
            return
        stranger = client_of(gate.url, tls={"ca": str(keys.ca)})
        with pytest.raises(RegistryError) as caught:
            stranger.wait(stranger.check)
    assert gate.url in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("lifetime_s", "tokens"), [(3600, 1), (1, 2)])
def test_client_token_is_used_until_it_expires(  # noqa: PLR0913, PLR0917 - fixtures
    lifetime_s: int,
    tokens: int,
    registry_server: RegistryServer,
    keys: Keys,
    provider: IdentityProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "lifetime_s", lifetime_s)
    before = len(provider.issued)
    with gate_of("token", registry_server, keys, provider) as gate:
        client = client_of(gate.url, **login("token", keys, provider))
        client.check()
        client.check()
    assert provider.issued[before:] == [(CLIENT, "schemas")] * tokens


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"password": "wrong"}, RegistryError, "refuses this client (401)"),
        ({"tls": None}, RegistryError, "the TLS handshake failed: "),
        ({"tls": {"ca": "missing.pem"}}, ConfigurationError, "registry.tls.ca: missing.pem: cannot be read"),
    ],
)
def test_client_with_a_wrong_login_fails_with_the_setting_and_without_the_secret(  # noqa: PLR0913, PLR0917 - fixtures
    change: dict[str, Any],
    error: type[SkewlessError],
    words: str,
    registry_server: RegistryServer,
    keys: Keys,
    provider: IdentityProvider,
) -> None:
    with gate_of("basic", registry_server, keys, provider) as gate, pytest.raises(error) as caught:
        client_of(gate.url, **{**login("basic", keys, provider), **change}).check()
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_client_of_a_provider_that_refuses_or_fails_says_so(
    registry_server: RegistryServer, keys: Keys, provider: IdentityProvider
) -> None:
    settings = login("token", keys, provider)
    wrong = {**settings["oauthbearer"], "client_secret": f"{SECRET}x"}
    with gate_of("token", registry_server, keys, provider) as gate:
        with pytest.raises(RegistryError, match="invalid_client; correct registry") as caught:
            client_of(gate.url, **{**settings, "oauthbearer": wrong}).check()
        assert SECRET not in str(caught.value)
        provider.available = False
        try:
            with pytest.raises(UnavailableError, match="it answers with status 503"):
                client_of(gate.url, **settings).check()
        finally:
            provider.available = True


@pytest.mark.parametrize(
    ("status", "content", "error", "words"),
    [
        (403, b"", RegistryError, r"refuses this client \(403\)"),
        (302, b"", RegistryError, r"a redirect \(302\): set registry.url to the final address"),
        (404, b"<html>", RegistryError, "set registry.url to the address of its API"),
        (200, b"<html>", RegistryError, "set registry.url to the address of its API"),
        (429, b"", UnavailableError, "answers with status 429"),
        (503, b"<html>", UnavailableError, "answers with status 503"),
    ],
)
def test_client_answer_of_another_status_is_classified(
    status: int, content: bytes, error: type[Exception], words: str, registry_server: RegistryServer
) -> None:
    gate = Gate(registry_server.port, status=status, content=content)
    with gate.running(), pytest.raises(error, match=words):
        client_of(gate.url).check()


def test_client_waits_while_the_registry_is_down_then_gives_up(registry_server: RegistryServer) -> None:
    (port,) = find_free_ports(1)
    client = client_of(f"http://127.0.0.1:{port}", connect_timeout_s=1.5)
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=f"no schema registry answers at http://127.0.0.1:{port}"):
        client.wait(client.check)
    assert time.monotonic() - started >= 1.5, "it waits for the whole time"
    gate = Gate(registry_server.port, port=port)
    patient = client_of(f"http://127.0.0.1:{port}/apis/ccompat/v7", connect_timeout_s=WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(patient.wait, patient.check)
        with gate.running():
            assert waiting.result(WAIT_S) is None


def test_client_slow_answer_is_an_attempt_that_is_repeated(registry_server: RegistryServer) -> None:
    gate = Gate(registry_server.port)
    gate.is_open.clear()
    with gate.running(), pytest.raises(UnavailableError, match="no schema registry answers"):
        client_of(gate.url, request_timeout_s=0.2).check()


def test_pauses_double_to_a_limit_and_are_spread() -> None:
    def first(draw: Callable[[], float]) -> list[float]:
        drawn = pauses(draw)
        return [round(next(drawn), 3) for _ in range(10)]

    assert first(lambda: 1.0)[:4] == [0.1, 0.2, 0.4, 0.8]
    assert first(lambda: 1.0)[-1] == LAST_PAUSE_S
    assert first(lambda: 0.0)[:3] == [0.05, 0.1, 0.2]
