"""Client of a schema registry. Classifies its errors: repeat, correct the settings, or an unknown schema.

No message contains a user name's password, a token or a client secret.
"""

from __future__ import annotations

import logging
import random
import ssl
import time
import weakref
from collections.abc import Callable, Container, Iterator
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from skewless.errors import (
    ConfigurationError,
    RegistryError,
    SkewlessError,
    UnavailableError,
    UnknownSchemaError,
    UnreachableError,
    how_to_add,
)
from skewless.login_settings import require_readable, system_authorities
from skewless.schema_registry.schema import Schema, SchemaId

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from skewless.schema_registry.settings import RegistryOAuthBearerSettings, RegistrySettings

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 10.0
"""Bounds of the pauses between two attempts of a request, which double."""
REPORTED_S = 2.0
"""Time without an answer after which a client reports that it waits."""
MAX_REFERENCES = 100
"""Maximum number of different schemas that a schema refers to, directly and indirectly."""
MAX_TEXT = 300
"""Characters of a registry's own words in a message."""
UNAUTHORIZED = 401
LOGIN_REFUSED = (UNAUTHORIZED, 403)
NOT_FOUND = 404
MAX_ID = 2**31 - 1
NO_CODE = -1
"""Code of the errors of Confluent's client for an answer without one."""
BUSY = frozenset((408, 425, 429, *range(500, 600)))
"""Status codes of requests that may succeed later."""
REDIRECTS = range(300, 400)
REFUSALS = range(400, 500)


def pauses(draw: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield the pauses in s between attempts: they double up to a limit. Each is drawn from the upper half.

    Otherwise the processes of a pipeline would repeat their requests at the same time.
    """
    longest = FIRST_PAUSE_S
    while True:
        yield longest * (1 + draw()) / 2
        longest = min(2 * longest, LAST_PAUSE_S)


class _ForeignAnswerError(RegistryError):
    """The answer is not a registry's. Something in front of it may have answered, or the address is wrong."""

    def __init__(self, answer: str, status: int | None, *, has_code: bool) -> None:
        super().__init__(
            f"{answer}: set registry.url to the address of its API, such as https://registry:8081 or "
            "https://registry:8080/apis/ccompat/v7"
        )
        self.answer = answer
        self.status = status
        self.has_code = has_code
        """Whether it has a code as errors of registries have one."""


class ReferencesError(RegistryError):
    """The references of a schema cannot be followed, so no record can be read with it. `reason` begins with a verb."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"schema registry at {url}: a schema {reason}")
        self.reason = reason


class RegistryClient:
    """Requests to a schema registry. Each is one attempt, unless its name says that it waits. Safe in any thread."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        try:
            import confluent_kafka.schema_registry as confluent
        except ImportError as error:
            raise ConfigurationError(
                f"registry.url: the client of the registry cannot be imported ({error}): {how_to_add('registry')}"
            ) from None
        try:
            self._tokens = None if settings.oauthbearer is None else _TokenSource(settings, settings.oauthbearer)
            self._client: SchemaRegistryClient = confluent.SchemaRegistryClient(_options(settings, self._tokens))
        except (OSError, ValueError) as error:  # also ssl.SSLError
            raise ConfigurationError(
                f"registry.tls: the certificate and key cannot be used: {_words(error)}; correct the files, or set "
                "key_password"
            ) from None
        weakref.finalize(self, self._client.close)
        self._has_guids = False
        """Whether the registry is known to find schemas by GUID."""

    @property
    def url(self) -> str:
        """Address of the registry."""
        return self._settings.url

    def check(self) -> None:
        """Check that the registry answers and accepts the login. Raises the errors of `request`."""
        types = self.request("list the types of schemas", lambda client: client.get_schema_types(), unknown=())
        if not isinstance(types, list):
            raise self._not_a_registry()

    def schema(self, schema_id: SchemaId) -> Schema:
        """Return a schema with all schemas that it refers to. Raises the errors of `request`, and ReferencesError.

        A schema of the type JSON has no references, because records are read without them. An answer that is not a
        registry's raises UnavailableError: something in front of the registry may give it.
        """
        # Ids are those of any records, also of broken ones. A registry may refuse an id that cannot exist.
        if isinstance(schema_id, int) and schema_id > MAX_ID:
            raise UnknownSchemaError(f"schema {schema_id}: ids are at most {MAX_ID}")
        try:
            return self._read(schema_id)
        except _ForeignAnswerError as error:
            if self._may_be_unknown(schema_id, error) and self._answers():
                raise UnknownSchemaError(f"schema {schema_id}: {error.answer}") from None
            raise UnavailableError(error.answer) from None

    def _read(self, schema_id: SchemaId) -> Schema:
        is_guid = isinstance(schema_id, UUID)
        get = methodcaller("get_schema_by_guid", str(schema_id)) if is_guid else methodcaller("get_schema", schema_id)
        try:
            found = self.request(f"read schema {schema_id}", get, unknown=REFUSALS)
        except UnknownSchemaError:
            self._has_guids |= is_guid
            raise
        # The client would keep each schema forever.
        self._client.clear_caches()
        self._has_guids |= is_guid
        return self._resolved(found, {})

    def _may_be_unknown(self, schema_id: SchemaId, error: _ForeignAnswerError) -> bool:
        """Return whether a registry may answer so for a schema that it does not know.

        Registries without GUIDs have no such path: they answer without a code. A code of HTTP is that of a path, too.
        """
        is_without_guids = isinstance(schema_id, UUID) and not self._has_guids
        return error.status == NOT_FOUND and (error.has_code or is_without_guids)

    def _answers(self) -> bool:
        """Return whether the registry itself answers at this address."""
        try:
            self.check()
        except (RegistryError, UnavailableError):
            return False
        return True

    def _resolved(self, found: Any, known: dict[tuple[str, int], Schema | None]) -> Schema:
        """Return a schema of the client's type with its references.

        `known` has those so far by subject and version. None: its own references are not complete yet.
        """
        if not isinstance(getattr(found, "schema_str", None), str):
            raise self._not_a_registry()
        schema_type, references = found.schema_type or "AVRO", {}
        for reference in (found.references or ()) if schema_type != "JSON" else ():
            version = reference.subject, reference.version
            if tuple(map(type, (reference.name, *version))) != (str, str, int):
                raise self._not_a_registry()
            if version not in known:
                if len(known) == MAX_REFERENCES:
                    raise ReferencesError(self.url, f"refers to more than {MAX_REFERENCES} others")
                known[version] = None
                answer = self.request(
                    f"read version {reference.version} of subject {reference.subject}",
                    # As the clients of Confluent do: a schema that was deleted softly still reads its records.
                    methodcaller("get_version", *version, deleted=True),
                )
                known[version] = self._resolved(answer.schema, known)
            if (schema := known[version]) is None:
                where = f"version {reference.version} of subject {reference.subject}"
                raise ReferencesError(self.url, f"refers to {where}, which refers to itself")
            references[reference.name] = schema
        return Schema(schema_type, found.schema_str, references)

    def request(
        self,
        operation: str,
        send: Callable[[SchemaRegistryClient], Answer],
        unknown: Container[int] = (NOT_FOUND,),
    ) -> Answer:
        """Send a request, and return the answer. `operation` completes the sentence: the registry refuses to ...

        Raises UnavailableError if the same request may succeed later, UnknownSchemaError if the schema, subject or
        version does not exist (answers of a registry with a status of `unknown`), and RegistryError if the registry
        refuses the login or the request, or if the answer is not a registry's.
        """
        from confluent_kafka.schema_registry.common._httpx_compat import httpx
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return self._sent(send)
        except SkewlessError:
            raise
        except SchemaRegistryError as error:
            raise self._answered(operation, error, unknown) from None
        except httpx.TransportError as error:
            raise self._failed(error) from None
        except httpx.InvalidURL as error:
            # The client refuses more than the settings do, such as the host 1.2.3.400.
            raise ConfigurationError(
                f"registry: url or oauthbearer.token_endpoint_url is not valid: {_words(error)}; correct it"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # The answer is not JSON, or not the JSON of a registry.
            raise self._not_a_registry() from None

    def _sent(self, send: Callable[[SchemaRegistryClient], Answer]) -> Answer:
        """Send a request, and return the answer. Raises the errors of Confluent's client."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return send(self._client)
        except SchemaRegistryError as error:
            if self._tokens is None or error.http_status_code != UNAUTHORIZED:
                raise
        # The token may have expired: not every provider says when, and it may revoke one earlier.
        self._tokens.drop()
        return send(self._client)

    def wait(self, attempt: Callable[[], Answer]) -> Answer:
        """Return the result of an attempt, which is repeated while it raises UnavailableError.

        Raises UnreachableError after `connect_timeout_s`.
        """
        started, is_reported = time.monotonic(), False
        for pause in pauses():
            try:
                return attempt()
            except UnavailableError as error:
                waited = time.monotonic() - started
                remaining = self._settings.connect_timeout_s - waited
                if remaining <= 0:
                    raise UnreachableError(f"{error}: check that it runs, its address, and the network") from None
                if waited > REPORTED_S and not is_reported:
                    is_reported = True
                    log.warning("%s, waits up to %g s", error, self._settings.connect_timeout_s)
            time.sleep(min(pause, remaining))
        raise AssertionError  # `pauses` is endless

    def _answered(self, operation: str, error: Any, unknown: Container[int]) -> SkewlessError:
        """Return the error for an answer of the registry that is not a success."""
        status, where = error.http_status_code, f"schema registry at {self.url}"
        if status in LOGIN_REFUSED:
            return RegistryError(
                f"{where} refuses this client ({status}) when it wants to {operation}: correct its login "
                "(registry.username, registry.oauthbearer or registry.tls) or its rights"
            )
        if status in BUSY:
            return UnavailableError(f"{where} answers with status {status}")
        if status in REDIRECTS:
            return RegistryError(f"{where} answers with a redirect ({status}): set registry.url to the final address")
        has_code = isinstance(error.error_code, int) and error.error_code != NO_CODE
        # The codes of registries begin with the status. The status alone is that of a path that does not exist.
        if not has_code or error.error_code == NOT_FOUND:
            return self._not_a_registry(status, has_code=has_code)
        if status in unknown:
            return UnknownSchemaError(_shortened(error.error_message))
        return RegistryError(f"{where} refuses to {operation}: {_shortened(error.error_message)} ({status})")

    def _not_a_registry(self, status: int | None = None, *, has_code: bool = False) -> _ForeignAnswerError:
        answer = "is not that of a registry" if status is None else f"has status {status}, and is not a registry's"
        return _ForeignAnswerError(f"schema registry at {self.url}: the answer {answer}", status, has_code=has_code)

    def _failed(self, error: Exception) -> SkewlessError:
        """Return the error for a request without an answer."""
        if cause := _tls_cause(error):
            return RegistryError(
                f"schema registry at {self.url}: the TLS handshake failed: {_words(cause)}; correct registry.url or "
                "registry.tls"
            )
        text = _words(error) or type(error).__name__
        return UnavailableError(f"no schema registry answers at {self.url} ({text})")


def _options(settings: RegistrySettings, tokens: _TokenSource | None) -> dict[str, Any]:
    """Return the options of Confluent's client. Raises ConfigurationError for a file that cannot be read."""
    tls = settings.tls
    options: dict[str, Any] = {
        "url": settings.url,
        "timeout": settings.request_timeout_s,
        "max.retries": 0,  # the callers wait, and can report it meanwhile
    }
    files = {} if tls is None else {name: getattr(tls, name) for name in ("ca", "certificate", "key")}
    require_readable("registry.tls", files, folders={"ca"})
    if ca := files.get("ca") or system_authorities():
        options["ssl.ca.location"] = ca
    if tls is not None and tls.certificate is not None:
        options |= {"ssl.certificate.location": tls.certificate, "ssl.key.location": tls.key}
        if tls.key_password is not None:
            options["ssl.key.password"] = tls.key_password.get_secret_value()
        else:
            # Without a password, OpenSSL would ask for one on the terminal.
            options["ssl.key.password"] = ""
    if settings.username is not None and settings.password is not None:
        options["basic.auth.user.info"] = f"{settings.username}:{settings.password.get_secret_value()}"
    if tokens is not None:
        options |= {
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": tokens.fields,
            "bearer.auth.custom.provider.config": {},
        }
    return options


class _TokenSource:
    """Gets tokens from an identity provider, and keeps each until shortly before it expires."""

    # Not the client's own: it has no time limit and no file of authorities for the provider.
    def __init__(self, settings: RegistrySettings, login: RegistryOAuthBearerSettings) -> None:
        from authlib.integrations.httpx_client import OAuth2Client

        require_readable("registry.oauthbearer", {"ca": login.ca})
        self._login = login
        self._client = OAuth2Client(
            client_id=login.client_id,
            client_secret=login.client_secret.get_secret_value(),
            scope=login.scope,
            grant_type="client_credentials",
            token_endpoint=login.token_endpoint_url,
            verify=ssl.create_default_context(cafile=login.ca or system_authorities()),
            timeout=settings.request_timeout_s,
        )
        self._where = f"no token for the schema registry from {login.token_endpoint_url}"
        # Not a method: its object would live as long as the client, which the finalizer keeps.
        self._client.register_compliance_hook("access_token_response", partial(_checked, self._where))
        weakref.finalize(self, self._client.close)

    def fields(self, _config: dict[str, Any]) -> dict[str, str]:
        """Return what Confluent's client sends with a request. Raises RegistryError or UnavailableError."""
        token = self._client.token
        if token is None or token.is_expired():
            token = self._fetched()
        fields = {
            "bearer.auth.token": token["access_token"],
            "bearer.auth.logical.cluster": self._login.logical_cluster,
        }
        if self._login.identity_pool is not None:
            fields["bearer.auth.identity.pool.id"] = self._login.identity_pool
        return fields

    def drop(self) -> None:
        """Forget the token: the next request gets a new one."""
        self._client.token = None

    def _fetched(self) -> Any:
        """Return a new token, which the client keeps."""
        from authlib.integrations.base_client import OAuthError
        from confluent_kafka.schema_registry.common._httpx_compat import httpx

        try:
            return self._client.fetch_token()
        except OAuthError as error:
            raise RegistryError(
                f"{self._where}: {_shortened(error.error)}; correct registry.oauthbearer.client_id, client_secret or "
                "scope"
            ) from None
        except httpx.TransportError as error:
            if cause := _tls_cause(error):
                raise RegistryError(f"{self._where}: {_words(cause)}; correct registry.oauthbearer.ca") from None
            raise UnavailableError(f"{self._where}: {_words(error)}") from None
        except (ValueError, TypeError):
            raise RegistryError(f"{self._where}: its expires_in is not a number; correct the provider") from None


def _checked(where: str, response: Any) -> Any:
    """Return an answer of the provider that is a token or an error of OAuth. Raises the error of any other one."""
    status = response.status_code
    if status in BUSY:
        raise UnavailableError(f"{where}: it answers with status {status}")
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        token = answer.get("access_token")
        if "error" in answer or (response.is_success and isinstance(token, str) and token):
            return response
    raise RegistryError(
        f"{where}: it answers with status {status}, and without a token; correct "
        "registry.oauthbearer.token_endpoint_url"
    )


def _tls_cause(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS that an error results from."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _words(error: BaseException) -> str:
    """Return the text of an error in one line."""
    text = getattr(error, "verify_message", "") or getattr(error, "reason", "") or getattr(error, "strerror", "")
    return _shortened(str(text or error))


def _shortened(text: object) -> str:
    # Control characters could change the terminal.
    return "".join(filter(str.isprintable, " ".join(str(text).split())))[:MAX_TEXT]
