"""Generates JSON Schemas (draft 07, the default of AsyncAPI) of record types."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

Schema = dict[str, Any]
REF = "#/components/schemas/"


def schemas(types: Iterable[type[msgspec.Struct]]) -> dict[str, Schema]:
    """Return the schemas of these types and of the types of their fields, by name. References start with `REF`."""
    _, components = msgspec.json.schema_components(list(types), ref_template=REF + "{name}")
    return {name: _as_draft_07(schema) for name, schema in components.items()}


def ref(record_type: type[msgspec.Struct]) -> Schema:
    """Return a reference to the schema of a type."""
    return {"$ref": REF + record_type.__name__}


def _as_draft_07(schema: Any) -> Any:
    """Convert a schema of msgspec (draft 2020-12) to draft 07.

    Draft 07 ignores keywords next to a `$ref`, so the reference moves into `allOf`. Type `number` includes integers.
    """
    if isinstance(schema, list):
        return [_as_draft_07(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {name: _as_draft_07(part) for name, part in schema.items()}
    if isinstance(converted.get("description"), str):
        # A docstring. Python removes its indentation from 3.13 on.
        converted["description"] = inspect.cleandoc(converted["description"])
    if "$ref" in converted and len(converted) > 1:
        converted["allOf"] = [{"$ref": converted.pop("$ref")}]
    if converted.get("anyOf") == [{"type": "integer"}, {"type": "number"}]:
        del converted["anyOf"]
        converted["type"] = "number"
    return converted


class Field(NamedTuple):
    """One field of a record type."""

    path: str
    """Name with the names of the enclosing fields: `run.tuples`, `top_keys[].key`."""
    type: str
    required: bool
    description: str


def fields(schema: Mapping[str, Any], schema_by_name: Mapping[str, Schema], path: str = "") -> Iterator[Field]:
    """Yield all fields; the fields of an inner object follow the field that contains it."""
    for name, field in schema["properties"].items():
        field_path = f"{path}{name}"
        yield Field(field_path, type_of(field), name in schema["required"], field.get("description", ""))
        inner = _target(field) or _target(field.get("items", {}))
        if inner:
            yield from fields(schema_by_name[inner], schema_by_name, f"{field_path}{'[]' if 'items' in field else ''}.")


def type_of(field: Mapping[str, Any]) -> str:
    """Return the JSON type of a field as text, with its pattern."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return f"array of {type_of(field['items'])}"
    if "anyOf" in field:
        return " or ".join(map(type_of, field["anyOf"]))
    json_type: str = field.get("type", "object" if _target(field) else "any")
    return f"{json_type}, `{field['pattern']}`" if "pattern" in field else json_type


def _target(field: Mapping[str, Any]) -> str | None:
    refs = [field, *field.get("allOf", ())]
    return next((part["$ref"].removeprefix(REF) for part in refs if "$ref" in part), None)
