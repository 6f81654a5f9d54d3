"""Output formats of ACLs: a table, commands of Kafka's own tool, and KafkaUsers of Strimzi."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

import yaml

from skewless.config.acls import AclBinding
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError

Acls = Mapping[str, Sequence[AclBinding]]
"""ACLs by principal, without the prefix `User:`."""

COLUMN_HEADERS = ("principal", "resource", "name", "operations", "needed for")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def table(acls: Acls, _settings: PipelineSettings) -> str:
    """Return a table with one line per binding. A name that ends with `*` is a prefix."""
    rows = [
        (
            principal,
            binding.resource,
            binding.name + "*" * binding.prefixed,
            ", ".join(binding.operations),
            "; ".join(binding.needed),
        )
        for principal, bindings in acls.items()
        for binding in bindings
    ]
    widths = [max(map(len, column)) for column in zip(COLUMN_HEADERS, *rows, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
        for row in (COLUMN_HEADERS, *rows)
    )


def kafka_acls(acls: Acls, settings: PipelineSettings) -> str:
    """Return one command of Kafka's tool per binding. The user's admin.properties contains the connection options."""
    tool = ["kafka-acls.sh", "--bootstrap-server", settings.kafka.bootstrap_servers]
    tool += ["--command-config", "admin.properties", "--add"]
    return "".join(
        shlex.join([*tool, "--allow-principal", f"User:{principal}", *_options(binding)]) + "\n"
        for principal, bindings in acls.items()
        for binding in bindings
    )


def _options(binding: AclBinding) -> Iterable[str]:
    for operation in binding.operations:
        yield from ("--operation", operation)
    yield from (f"--{binding.resource.replace(' ', '-')}", binding.name)
    yield from ("--resource-pattern-type", "prefixed" if binding.prefixed else "literal")


def strimzi(acls: Acls, settings: PipelineSettings) -> str:
    """Return one KafkaUser per principal. Its label names the cluster of Strimzi's quick start, `my-cluster`."""
    invalid = [principal for principal in acls if not _DNS_NAME.fullmatch(principal)]
    if invalid:
        raise ConfigurationError(
            f"--format strimzi: {', '.join(invalid)} cannot be the name of a KafkaUser: use lower-case letters, "
            "digits, `-` and `.`"
        )
    users = [_kafka_user(principal, bindings, settings) for principal, bindings in acls.items()]
    return yaml.safe_dump_all(users, sort_keys=False, explicit_start=True)


def _kafka_user(principal: str, bindings: Iterable[AclBinding], settings: PipelineSettings) -> dict[str, object]:
    uses_certificates = settings.kafka.security_protocol == "SSL"
    acls = [
        {
            "resource": {
                "type": "transactionalId" if binding.resource == "transactional id" else binding.resource,
                "name": binding.name,
                "patternType": "prefix" if binding.prefixed else "literal",
            },
            "operations": list(binding.operations),
        }
        for binding in bindings
    ]
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": principal, "labels": {"strimzi.io/cluster": "my-cluster"}},
        "spec": {
            "authentication": {"type": "tls" if uses_certificates else "scram-sha-512"},
            "authorization": {"type": "simple", "acls": acls},
        },
    }


FORMATS: Mapping[str, Callable[[Acls, PipelineSettings], str]] = {
    "table": table,
    "kafka-acls": kafka_acls,
    "strimzi": strimzi,
}
