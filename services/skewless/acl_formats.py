"""How rights are printed: for people, as commands of Kafka's own tool, and as Strimzi's KafkaUsers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

import yaml

from skewless.acls import Right
from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings

Rights = Mapping[str, Sequence[Right]]
"""By principal, without `User:`."""

HEADS = ("principal", "resource", "name", "operations", "needed for")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def table(rights: Rights, _settings: PipelineSettings) -> str:
    """One line per right; a name that ends in `*` stands for everything that begins so."""
    rows = [
        (principal, right.resource, right.name + "*" * right.prefixed, ", ".join(right.operations), right.needed)
        for principal, allowed in rights.items()
        for right in allowed
    ]
    widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
        for row in (HEADS, *rows)
    )


def kafka_acls(rights: Rights, settings: PipelineSettings) -> str:
    """One command of Kafka's tool per right; who runs them says in admin.properties how to connect."""
    tool = ["kafka-acls.sh", "--bootstrap-server", settings.kafka.bootstrap_servers]
    tool += ["--command-config", "admin.properties", "--add"]
    return "".join(
        shlex.join([*tool, "--allow-principal", f"User:{principal}", *_options(right)]) + "\n"
        for principal, allowed in rights.items()
        for right in allowed
    )


def _options(right: Right) -> Iterable[str]:
    for operation in right.operations:
        yield from ("--operation", operation)
    yield from (f"--{right.resource.replace(' ', '-')}", right.name)
    yield from ("--resource-pattern-type", "prefixed" if right.prefixed else "literal")


def strimzi(rights: Rights, settings: PipelineSettings) -> str:
    """One KafkaUser per principal; the label names the Kafka of Strimzi's quick start, `my-cluster`."""
    wrong = [principal for principal in rights if not _DNS_NAME.fullmatch(principal)]
    if wrong:
        raise ConfigurationError(
            f"--format strimzi: {', '.join(wrong)} cannot be the name of a KafkaUser: use lower-case letters, digits, "
            "`-` and `.`"
        )
    users = [_kafka_user(principal, allowed, settings) for principal, allowed in rights.items()]
    return yaml.safe_dump_all(users, sort_keys=False, explicit_start=True)


def _kafka_user(principal: str, allowed: Iterable[Right], settings: PipelineSettings) -> dict[str, object]:
    by_certificate = settings.kafka.security_protocol == "SSL"
    acls = [
        {
            "resource": {
                "type": "transactionalId" if right.resource == "transactional id" else right.resource,
                "name": right.name,
                "patternType": "prefix" if right.prefixed else "literal",
            },
            "operations": list(right.operations),
        }
        for right in allowed
    ]
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": principal, "labels": {"strimzi.io/cluster": "my-cluster"}},
        "spec": {
            "authentication": {"type": "tls" if by_certificate else "scram-sha-512"},
            "authorization": {"type": "simple", "acls": acls},
        },
    }


FORMATS: Mapping[str, Callable[[Rights, PipelineSettings], str]] = {
    "table": table,
    "kafka-acls": kafka_acls,
    "strimzi": strimzi,
}
