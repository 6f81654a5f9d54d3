"""The client of the schema registry, with answers that a real registry rarely gives."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest

from skewless.errors import RegistryError, UnavailableError, UnknownSchemaError
from skewless.schema_registry.client import RegistryClient
from skewless.schema_registry.schema import Schema, SchemaId
from skewless.schema_registry.settings import RegistrySettings

Answer = Callable[[str], tuple[int, Any]]
"""Returns status and content of the answer to a request with a header `Authorization`."""


@dataclass
class Server:
    """A registry with these answers, and a provider of tokens at the path `/token`."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    """By path, with a query or for any. A registry has at least the types of its schemas."""
    asked: list[str] = field(default_factory=list)
    """Paths of the requests, in order."""
    headers: dict[str, Message] = field(default_factory=dict)
    """Headers of the last request of each path."""

    def add(self, path: str, references: Sequence[str] = ()) -> None:
        """Add a schema. It has references to the version 1 of these subjects."""
        named = [{"name": subject, "subject": subject, "version": 1} for subject in references]
        version = {"subject": "s", "version": 1, "id": 1, "schema": '"int"', "references": named}
        self.answers[path] = lambda _authorization: (200, version)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(answers={"/schemas/types": lambda _authorization: (200, ["AVRO"])})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found.asked.append(path)
            found.headers[path] = self.headers
            answer_of = found.answers.get(self.path, found.answers.get(path))
            assert answer_of is not None, path
            status, answer = answer_of(self.headers.get("Authorization", ""))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

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
    with pytest.raises(RegistryError, match="refers to version 1 of subject s0, which refers to itself"):
        client_of(server).schema(1)


def test_client_references_of_a_json_schema_are_not_fetched(server: Server) -> None:
    references = [{"name": "s", "subject": "s", "version": 1}]
    found = {"schema": "{}", "schemaType": "JSON", "references": references}
    server.answers["/schemas/ids/1"] = lambda _authorization: (200, found)
    assert client_of(server).schema(1) == Schema("JSON", "{}")
    assert server.asked == ["/schemas/ids/1"]


GUID = UUID(int=7)
HTML = b"<html><h1>404 page not found</h1></html>"
NO_SCHEMA = {"error_code": 40403, "message": "Schema not found"}
NO_PATH = {"error_code": 404, "message": "HTTP 404 Not Found"}
REFERRING = {"schema": '"int"'}
REFERENCE = {"name": "a", "subject": "b", "version": 1}
NO_ROUTE = {"message": "no Route matched with those values"}


@pytest.mark.parametrize(
    ("schema_id", "status", "content", "error"),
    [
        (1, 404, NO_SCHEMA, UnknownSchemaError),
        (1, 404, NO_PATH, UnknownSchemaError),
        (1, 422, {"error_code": 422, "message": "invalid id"}, UnknownSchemaError),
        (GUID, 404, NO_SCHEMA, UnknownSchemaError),
        (GUID, 404, b"", UnknownSchemaError),
        (GUID, 404, "Not Found", UnknownSchemaError),
        (1, 404, HTML, UnavailableError),
        (1, 404, b"", UnavailableError),
        (1, 404, NO_ROUTE, UnavailableError),
        (1, 404, "Not Found", UnavailableError),
        (1, 404, {"error_code": "NOT_FOUND", "message": "no path"}, UnavailableError),
        (1, 400, HTML, UnavailableError),
        (1, 421, b"", UnavailableError),
        (1, 200, HTML, UnavailableError),
        (1, 200, {"status": "ok"}, UnavailableError),
        (GUID, 200, {"status": "ok"}, UnavailableError),
        (1, 200, b"[" * 100_000, UnavailableError),
        (1, 200, REFERRING | {"references": [REFERENCE | {"name": ["a"]}]}, UnavailableError),
        (1, 200, REFERRING | {"references": [REFERENCE | {"subject": ["b"]}]}, UnavailableError),
        (1, 200, REFERRING | {"references": [REFERENCE | {"version": {}}]}, UnavailableError),
        (GUID, 400, HTML, UnavailableError),
    ],
)
def test_client_schema_is_unknown_only_if_the_registry_says_so(
    schema_id: SchemaId, status: int, content: Any, error: type[Exception], server: Server
) -> None:
    """An ingress without its route answers, too. A registry without GUIDs has no code for them, as Apicurio's."""
    kind = "guids" if schema_id == GUID else "ids"
    server.answers[f"/schemas/{kind}/{schema_id}"] = lambda _authorization: (status, content)
    with pytest.raises(error) as caught:
        client_of(server).schema(schema_id)
    if error is UnavailableError:
        assert f"schema registry at {server.url}: the answer " in str(caught.value)
        assert "set registry.url" not in str(caught.value)


@pytest.mark.parametrize("status", [429, 500, 501, 505, 521])
def test_client_waits_for_a_registry_that_answers_with_an_error_of_its_own(status: int, server: Server) -> None:
    content = {"error_code": status * 100, "message": "not now"}
    server.answers["/schemas/ids/1"] = lambda _authorization: (status, content)
    with pytest.raises(UnavailableError, match=f"answers with status {status}"):
        client_of(server).schema(1)


@pytest.mark.parametrize("content", [HTML, NO_PATH])
@pytest.mark.parametrize("schema_id", [1, GUID])
def test_client_schema_is_not_unknown_while_no_path_leads_to_the_registry(
    schema_id: SchemaId, content: Any, server: Server
) -> None:
    kind = "guids" if schema_id == GUID else "ids"
    for path in (f"/schemas/{kind}/{schema_id}", "/schemas/types"):
        server.answers[path] = lambda _authorization: (404, content)
    with pytest.raises(UnavailableError, match="the answer has status 404, and is not a registry's"):
        client_of(server).schema(schema_id)


def test_client_words_of_the_registry_are_printable_in_its_error(server: Server) -> None:
    content = {"error_code": 40403, "message": "\x1b[2Jno\nschema\x9b\x07"}
    server.answers["/schemas/ids/1"] = lambda _authorization: (404, content)
    with pytest.raises(UnknownSchemaError, match=r"^\[2Jno schema$"):
        client_of(server).schema(1)


def test_client_registry_that_has_guids_answers_with_a_code_for_an_unknown_one(server: Server) -> None:
    server.add(f"/schemas/guids/{GUID}")
    client = client_of(server)
    assert client.schema(GUID).text == '"int"'
    server.answers[f"/schemas/guids/{GUID}"] = lambda _authorization: (404, HTML)
    with pytest.raises(UnavailableError):
        client.schema(GUID)


def test_client_reference_is_unknown_only_if_the_registry_says_so(server: Server) -> None:
    server.add("/schemas/ids/1", ["country"])
    server.add(f"/schemas/guids/{GUID}", ["country"])
    server.answers["/subjects/country/versions/1"] = lambda _authorization: (404, HTML)
    for schema_id in (1, GUID):
        with pytest.raises(UnavailableError):
            client_of(server).schema(schema_id)
    server.answers["/subjects/country/versions/1"] = lambda _authorization: (404, {**NO_SCHEMA, "error_code": 40402})
    with pytest.raises(UnknownSchemaError):
        client_of(server).schema(1)


def test_client_reference_to_a_version_that_was_deleted_softly_is_found(server: Server) -> None:
    server.add("/schemas/ids/1", ["country"])
    server.add("/subjects/country/versions/1?deleted=true")
    server.answers["/subjects/country/versions/1"] = lambda _authorization: (404, {**NO_SCHEMA, "error_code": 40402})
    assert client_of(server).schema(1).references["country"].text == '"int"'


def client_with_tokens(server: Server, **of_cloud: str) -> RegistryClient:
    login = {"token_endpoint_url": f"{server.url}/token", "client_id": "a", "client_secret": "b", **of_cloud}
    return client_of(server, oauthbearer=login, allow_unencrypted=True)


@pytest.mark.parametrize(
    ("status", "content", "error", "words"),
    [
        (404, {"message": "not found"}, RegistryError, "status 404, and without a token; correct registry.oauthbearer"),
        (302, b"", RegistryError, "status 302, and without a token; correct registry.oauthbearer.token_endpoint_url"),
        (403, {"access_token": "t"}, RegistryError, "status 403, and without a token"),
        (200, {"token": "t"}, RegistryError, "status 200, and without a token"),
        (200, {"access_token": ""}, RegistryError, "status 200, and without a token"),
        (200, {"access_token": 7}, RegistryError, "status 200, and without a token"),
        (200, ["t"], RegistryError, "status 200, and without a token"),
        (200, b"<html>", RegistryError, "status 200, and without a token"),
        (200, {"access_token": "t", "expires_in": "soon"}, RegistryError, "its expires_in is not a number"),
        (400, {"error": "invalid_scope"}, RegistryError, "invalid_scope; correct registry.oauthbearer.client_id"),
        (429, {"message": "slow down"}, UnavailableError, "it answers with status 429"),
        (503, {"error": "temporarily_unavailable"}, UnavailableError, "it answers with status 503"),
        (599, b"", UnavailableError, "it answers with status 599"),
    ],
)
def test_client_answer_of_the_provider_without_a_token_is_its_error(
    status: int, content: Any, error: type[Exception], words: str, server: Server
) -> None:
    server.answers["/token"] = lambda _authorization: (status, content)
    with pytest.raises(error) as caught:
        client_with_tokens(server).check()
    assert f"no token for the schema registry from {server.url}/token: " in str(caught.value)
    assert words in str(caught.value)
    assert server.asked == ["/token"]


def test_client_with_tokens_names_its_cluster_and_its_pool_in_each_request(server: Server) -> None:
    server.answers["/token"] = lambda _authorization: (200, {"access_token": "t", "token_type": "Bearer"})
    client_with_tokens(server, logical_cluster="lsrc-1", identity_pool="pool-1").check()
    headers = server.headers["/schemas/types"]
    assert (headers["target-sr-cluster"], headers["Confluent-Identity-Pool-Id"]) == ("lsrc-1", "pool-1")


def test_client_token_that_the_registry_refuses_is_replaced_once(server: Server) -> None:
    issued: list[str] = []
    valid = {"Bearer t1"}

    def token(_authorization: str) -> tuple[int, Any]:
        issued.append(f"t{len(issued) + 1}")
        return 200, {"access_token": issued[-1], "token_type": "Bearer"}

    def types(authorization: str) -> tuple[int, Any]:
        return (200, ["AVRO"]) if authorization in valid else (401, {"error_code": 401, "message": "expired"})

    server.answers |= {"/token": token, "/schemas/types": types}
    client = client_with_tokens(server)
    client.check()
    client.check()
    assert issued == ["t1"]
    valid.clear()
    valid.add("Bearer t2")
    client.check()
    assert issued == ["t1", "t2"]
    valid.clear()
    with pytest.raises(RegistryError, match=r"refuses this client \(401\)"):
        client.check()
    assert issued == ["t1", "t2", "t3"]
    # Each token was used until it was refused, and the last one only once.
    assert server.asked.count("/schemas/types") == 2 + 2 + 2
