"""Registers the schema of results, if it is compatible with the registered one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from skewless.errors import ConfigurationError, UnknownSchemaError
from skewless.schema_registry.client import RegistryClient
from skewless.schema_registry.result_schemas import REGISTRY_TYPES, ResultSchema, SchemaFormat

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_PROTOBUF_FIELD = re.compile(r"^\s*(?P<type>(?:optional |repeated )?\w+) (?P<name>\w+) = (?P<number>\d+)", re.MULTILINE)


def register(
    client: RegistryClient, subject: str, schema_format: SchemaFormat, schema: ResultSchema, setting: str
) -> int:
    """Register a schema, and return its id. Raises ConfigurationError if the registered one is incompatible.

    `setting` is the one that the schema depends on, for errors.
    """
    from confluent_kafka.schema_registry import Schema

    new = Schema(schema.text(schema_format), REGISTRY_TYPES[schema_format])

    def send(client: SchemaRegistryClient) -> int:
        return int(client.register_schema(subject, new))

    read = partial(client.request, f"read the schema of {subject}", methodcaller("get_latest_version", subject))
    try:
        latest: Schema = client.wait(read).schema
    except UnknownSchemaError:
        pass  # the subject is new
    else:
        _require_compatible(client, subject, latest, new, setting)
    return client.wait(partial(client.request, f"register the schema of {subject}", send, unknown=()))


def _require_compatible(client: RegistryClient, subject: str, latest: Schema, new: Schema, setting: str) -> None:
    """Raise ConfigurationError if a schema is not compatible with the latest one, or has another type."""
    # A registry may answer as if it were broken if it is asked to compare schemas of two types.
    if (registered := latest.schema_type or "AVRO") != new.schema_type:
        section = setting.partition(".")[0]
        raise ConfigurationError(
            f"{section}.format: the registry has a schema of {subject} with the type {registered}, and the results "
            f"need {new.schema_type}: delete this subject, set {section}.subject to another one, or name the pipeline "
            "otherwise"
        )

    def check(client: SchemaRegistryClient) -> bool:
        return bool(client.test_compatibility(subject, new))

    if not client.wait(partial(client.request, f"check the schema of {subject}", check, unknown=())):
        differing = "; ".join(differences(str(latest.schema_str), str(new.schema_str)))
        raise ConfigurationError(
            f"{setting}: the registry has an incompatible schema of {subject}"
            f"{f' ({differing})' if differing else ''}: keep these results as they are, or name the pipeline otherwise"
        )


def differences(registered: str, current: str) -> Iterator[str]:
    """Yield a text for each field of two schemas that has another type, that is new, or that is missing."""
    before, after = _fields(registered), _fields(current)
    for name in dict.fromkeys([*after, *before]):
        if name not in before:
            yield f"field {name} is new"
        elif name not in after:
            yield f"field {name} is missing"
        elif before[name] != after[name]:
            yield f"field {name} was {_shown(before[name])}, and is {_shown(after[name])}"


def _shown(field_type: Any) -> str:
    return field_type if isinstance(field_type, str) else json.dumps(field_type)


def _fields(text: str) -> dict[str, Any]:
    """Return the types of the fields in a schema of any format, as it writes them. A text, for example, has none."""
    try:
        schema = json.loads(text)
    except ValueError:
        return {found["name"]: f"{found['type']} = {found['number']}" for found in _PROTOBUF_FIELD.finditer(text)}
    match schema:
        case {"fields": list(fields)}:
            named = (field for field in fields if isinstance(field, dict) and isinstance(field.get("name"), str))
            return {field["name"]: field.get("type") for field in named}
        case {"properties": dict(fields)}:
            return fields
    return {}
