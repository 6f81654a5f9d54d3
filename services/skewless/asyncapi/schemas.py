"""Generates JSON Schemas (draft 07, the default of AsyncAPI) of record types."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

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
