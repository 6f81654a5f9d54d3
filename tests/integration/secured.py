"""Brokers with authentication and ACLs: TLS with a test authority, a kind of login, and no access by default."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from helpers.identity_provider import ISSUER, IdentityProvider
from helpers.waiting import WAIT_S
from skewless.config import acls, topic_plan
from skewless.config.acls import Operation
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, SkewlessError, UnreachableError
from skewless.lab.local.broker import Broker
from skewless.lab.local.ports import find_free_ports

ADMIN = "admin"
ADMIN_PASSWORD = "of-the-tests"  # noqa: S105 - of a broker that lives as long as a test
KEY_PASSWORD = "of-a-key"  # noqa: S105 - as above
AUDIENCE = "kafka"
"""Audience of the tokens that a broker accepts."""
REAUTHENTICATION_MS = 3000
"""Time after which a broker closes a connection at its listener with client certificates, unless the client logs in
with its password again."""
_NEW = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, which is encrypted with a password."""

    certificate: Path
    key: Path
    key_password: str

    def settings(self) -> dict[str, str]:
        """Return these files as the section `kafka.tls`."""
        return {name: str(value) for name, value in vars(self).items()}

    def options(self) -> dict[str, str]:
        """Return these files as librdkafka's options."""
        return {
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.key),
            "ssl.key.password": self.key_password,
        }


@dataclass(frozen=True)
class Keys:
    """Files of an authority, and of a server and two clients whose certificates it has signed."""

    ca: Path
    server: Path
    """Key, certificate and authority."""
    client: Pair
    admin: Pair


@dataclass(frozen=True)
class Secured:
    """A running broker, and its addresses."""

    bootstrap: str
    ca: Path
    administrator: Mapping[str, str]
    """Options of librdkafka with which the administrator logs in."""
    client: Pair | None = None
    """Client certificate, if the broker requires one."""
    mutual: Secured | None = None
    """The same broker at a listener that requires client certificates, if it has one."""

    def kafka(self, user: str, password: str) -> dict[str, object]:
        """Return the section `kafka` of a pipeline's file, for a user."""
        return {
            "bootstrap_servers": self.bootstrap,
            "connect_timeout_s": WAIT_S,
            "security_protocol": "SASL_SSL",
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": user, "password": password},
            "tls": {"ca": str(self.ca)} | (self.client.settings() if self.client else {}),
        }

    def admin_options(self) -> dict[str, str | int]:
        """Return the client options of the administrator."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **self.administrator}

    def add_users(self, passwords: Mapping[str, str]) -> None:
        """Add users with SCRAM passwords; few iterations, so that many of them log in quickly."""
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        expected = [UserScramCredentialUpsertion(user, scram, word.encode()) for user, word in passwords.items()]
        admin = AdminClient(self.admin_options())  # the client must outlive its futures
        for future in admin.alter_user_scram_credentials(expected).values():
            future.result(WAIT_S)

    def allow(self, rights: Mapping[str, Iterable[acls.AclBinding]]) -> None:
        """Allow users these operations, by their name."""
        expected = [
            AclBinding(*_entry(user, right, operation))
            for user, allowed in rights.items()
            for right in allowed
            for operation in right.operations
        ]
        admin = AdminClient(self.admin_options())  # the client must outlive its futures
        for future in admin.create_acls(expected).values():
            future.result(WAIT_S)

    def withdraw(self, user: str, right: acls.AclBinding) -> None:
        """Delete an ACL of a user."""
        admin = AdminClient(self.admin_options())  # the client must outlive its futures
        filters = [AclBindingFilter(*_entry(user, right, operation)) for operation in right.operations]
        for future in admin.delete_acls(filters).values():
            assert future.result(WAIT_S)


def refusal(kafka: Mapping[str, object], *, may_be_silent: bool = False) -> SkewlessError:
    """Return the error of a command with this section `kafka`. `may_be_silent`: the client may get no reason."""
    document = {"name": "p", "source": {"topic": "raw"}, "kafka": {**kafka, "connect_timeout_s": 5}}
    while True:
        with pytest.raises((BrokerError, UnreachableError)) as raised:
            topic_plan.check(PipelineSettings.model_validate(document))
        assert raised.value.exit_code == 3
        # A machine that stands still for the whole time gets no reason either.
        if may_be_silent or "(no answer)" not in str(raised.value):
            return raised.value


def _entry(user: str, right: acls.AclBinding, operation: Operation) -> tuple[Any, ...]:
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    resource = (_RESOURCES[right.resource], right.name, pattern)
    return (*resource, f"User:{user}", "*", _OPERATIONS[operation], AclPermissionType.ALLOW)


@contextlib.contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Run a broker whose keys are created in `folder`, and whose clients need a password.

    It has another listener, whose clients need a certificate and a password.
    """
    keys = make_keys(folder)
    properties = _listener("SASL_SSL", keys.server) | _passwords("client")
    login = {"sasl.mechanism": "PLAIN", "sasl.username": ADMIN, "sasl.password": ADMIN_PASSWORD}
    options = {"security.protocol": "SASL_SSL", **login, **_trust(keys.ca)}
    port, other = find_free_ports(2)
    properties |= _listeners(port, other) | _passwords("mutual") | _required_certificates(keys.ca, "mutual")
    properties |= _own_key(keys.server, "mutual")
    properties["listener.name.mutual.scram-sha-512.connections.max.reauth.ms"] = f"{REAUTHENTICATION_MS}"
    mutual = Secured(f"127.0.0.1:{other}", keys.ca, options | keys.client.options(), keys.client)
    with Broker(port=port, properties=properties, client=options) as broker:
        yield Secured(broker.bootstrap, keys.ca, options, mutual=mutual)


@contextlib.contextmanager
def certificate_broker(keys: Keys) -> Iterator[Secured]:
    """Run a broker whose clients log in with certificates alone."""
    properties = _listener("SSL", keys.server) | _required_certificates(keys.ca)
    properties["super.users"] += f";User:CN={ADMIN}"
    options = {"security.protocol": "SSL", **_trust(keys.ca), **keys.admin.options()}
    with Broker(properties=properties, client=options) as broker:
        yield Secured(broker.bootstrap, keys.ca, options, keys.client)


@contextlib.contextmanager
def token_broker(keys: Keys, provider: IdentityProvider) -> Iterator[Secured]:
    """Run a broker whose clients log in with tokens of the provider. A connection ends with its token."""
    oauth, listener = "org.apache.kafka.common.security.oauthbearer", "listener.name.client.oauthbearer"
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{keys.ca}"'
    # A server logs in to its own listener too, although it never uses this login.
    own = 'unsecuredLoginStringClaim_sub="broker"'
    properties = _listener("SASL_SSL", keys.server) | {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required {own} {trust};",
        f"{listener}.sasl.server.callback.handler.class": f"{oauth}.OAuthBearerValidatorCallbackHandler",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{listener}.connections.max.reauth.ms": "3600000",
    }
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.id": ADMIN,
        "sasl.oauthbearer.client.secret": ADMIN_PASSWORD,
        "https.ca.location": str(keys.ca),
        **_trust(keys.ca),
    }
    # Kafka reads keys only from addresses in this property.
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"
    with contextlib.ExitStack() as running:
        with patch.dict(os.environ, JAVA_TOOL_OPTIONS=allowed):
            broker = running.enter_context(Broker(properties=properties, client=options))
        yield Secured(broker.bootstrap, keys.ca, options)


def _listener(protocol: str, server: Path) -> dict[str, str]:
    """Return the properties of a listener for clients with TLS, and of ACLs without which nothing is allowed."""
    return {
        "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **_own_key(server, "client"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        # ANONYMOUS is the user of the server's own listeners, which do not authenticate.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }


def _listeners(client: int, mutual: int) -> dict[str, str]:
    """Return the properties of two listeners for clients, at these ports."""
    internal, controller = find_free_ports(2)
    ports = {"CLIENT": client, "MUTUAL": mutual, "INTERNAL": internal, "CONTROLLER": controller}
    *advertised, own = (f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    return {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,MUTUAL:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": ",".join([*advertised, own]),
        "advertised.listeners": ",".join(advertised),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }


def _own_key(server: Path, listener: str) -> dict[str, str]:
    name = f"listener.name.{listener}.ssl.keystore"
    return {f"{name}.type": "PEM", f"{name}.location": str(server)}


def _passwords(listener: str) -> dict[str, str]:
    """Return the properties of a listener whose users have SCRAM passwords, and the administrator a plain one."""
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        # SCRAM users are created over a connection, so the first user needs another mechanism.
        f"listener.name.{listener}.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{ADMIN}="{ADMIN_PASSWORD}";'
        ),
    }


def _required_certificates(ca: Path, listener: str = "client") -> dict[str, str]:
    return {
        f"listener.name.{listener}.ssl.client.auth": "required",
        f"listener.name.{listener}.ssl.truststore.type": "PEM",
        f"listener.name.{listener}.ssl.truststore.location": str(ca),
    }


def _trust(ca: Path) -> dict[str, str]:
    return {"ssl.ca.location": str(ca)}


def make_keys(folder: Path) -> Keys:
    """Create an authority, and keys and certificates of a server at 127.0.0.1 and of clients (PEM)."""
    ca, ca_key = folder / "ca.crt", folder / "ca.key"
    # Since 3.13, Python requires the extensions of RFC 5280.
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    authority = ("-nodes", "-x509", "-days", "2", "-subj", "/CN=test authority", *usage)
    _openssl(*_NEW, *authority, "-keyout", ca_key, "-out", ca)
    key, certificate = _signed(folder, "broker", ("-nodes",))
    server = folder / "server.pem"
    server.write_bytes(key.read_bytes() + certificate.read_bytes() + ca.read_bytes())
    return Keys(ca, server, _pair(folder, "client"), _pair(folder, ADMIN))


def _pair(folder: Path, name: str) -> Pair:
    key, certificate = _signed(folder, name, ("-passout", f"pass:{KEY_PASSWORD}"))
    return Pair(certificate, key, KEY_PASSWORD)


def _signed(folder: Path, name: str, guard: tuple[str, ...]) -> tuple[Path, Path]:
    """Create a key, and a certificate signed by the authority in the folder."""
    key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
    _openssl(*_NEW, *guard, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n")
    signed_by = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial")
    _openssl("x509", "-req", "-days", "2", "-in", request, *signed_by, "-extfile", names, "-out", certificate)
    return key, certificate


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
