"""A broker with authentication and ACLs: TLS with a test authority, passwords, and no access by default."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

from skewless.cli import main
from skewless.config import acls
from skewless.config.acls import Operation
from skewless.lab.local.broker import Broker

ADMIN = "admin"
ADMIN_PASSWORD = "of-the-tests"  # noqa: S105 - of a broker that lives as long as a test
KEY_PASSWORD = "of-a-key"  # noqa: S105 - as above
WAIT_S = 90.0
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
class Secured:
    """A running broker, and its addresses."""

    bootstrap: str
    ca: Path
    client: Pair | None = None
    """Client certificate, if the broker requires one."""

    def kafka(self, user: str, password: str) -> dict[str, object]:
        """Return the section `kafka` of a pipeline's file, for a user."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": user, "password": password},
            "tls": {"ca": str(self.ca)} | (self.client.settings() if self.client else {}),
        }

    def admin_options(self) -> dict[str, str | int]:
        """Return the client options of the administrator."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **_admin(self.ca, self.client)}

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


def _entry(user: str, right: acls.AclBinding, operation: Operation) -> tuple[Any, ...]:
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    resource = (_RESOURCES[right.resource], right.name, pattern)
    return (*resource, f"User:{user}", "*", _OPERATIONS[operation], AclPermissionType.ALLOW)


@contextlib.contextmanager
def secured_broker(folder: Path, *, mutual: bool = False) -> Iterator[Secured]:
    """Run a broker whose keys are created in `folder`. If `mutual`, clients need a certificate and a password."""
    ca, server, client = make_keys(folder)
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.client.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        # SCRAM users are created over a connection, so the first user needs another mechanism.
        "listener.name.client.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{ADMIN}="{ADMIN_PASSWORD}";'
        ),
        "listener.name.client.ssl.keystore.type": "PEM",
        "listener.name.client.ssl.keystore.location": str(server),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        # ANONYMOUS is the user of the server's own listeners, which do not authenticate.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
    shown = client if mutual else None
    if mutual:
        properties |= {
            "listener.name.client.ssl.client.auth": "required",
            "listener.name.client.ssl.truststore.type": "PEM",
            "listener.name.client.ssl.truststore.location": str(ca),
        }
    with Broker(properties=properties, client=_admin(ca, shown)) as broker:
        yield Secured(broker.bootstrap, ca, shown)


def _admin(ca: Path, shown: Pair | None) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": ADMIN_PASSWORD,
        "ssl.ca.location": str(ca),
        **(shown.options() if shown else {}),
    }


def make_keys(folder: Path) -> tuple[Path, Path, Pair]:
    """Create an authority, and keys and certificates of a server at 127.0.0.1 and of a client (PEM)."""
    ca, ca_key = folder / "ca.crt", folder / "ca.key"
    _openssl(*_NEW, "-nodes", "-x509", "-days", "2", "-subj", "/CN=test authority", "-keyout", ca_key, "-out", ca)
    key, certificate = _signed(folder, "broker", ("-nodes",))
    server = folder / "server.pem"
    server.write_bytes(key.read_bytes() + certificate.read_bytes() + ca.read_bytes())
    key, certificate = _signed(folder, "client", ("-passout", f"pass:{KEY_PASSWORD}"))
    return ca, server, Pair(certificate, key, KEY_PASSWORD)


def _signed(folder: Path, name: str, guard: tuple[str, ...]) -> tuple[Path, Path]:
    """Create a key, and a certificate signed by the authority in the folder."""
    key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
    _openssl(*_NEW, *guard, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\n")
    signed_by = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial")
    _openssl("x509", "-req", "-days", "2", "-in", request, *signed_by, "-extfile", names, "-out", certificate)
    return key, certificate


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def run_command(arguments: list[str], log: Path) -> None:
    """Run the command line in a forked process that has imported all modules; its output goes to `log`."""
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    main.main(arguments, prog_name="skewless")
