"""JSON Schema (draft 07, as AsyncAPI has it) of record types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

Schema = dict[str, Any]
REF = "#/components/schemas/"


def schemas(types: Iterable[type[msgspec.Struct]]) -> dict[str, Schema]:
    """Describe these types and those that they hold, by name; they refer to each other by `REF`."""
    _, found = msgspec.json.schema_components(list(types), ref_template=REF + "{name}")
    return {name: _plain(schema) for name, schema in found.items()}


def ref(kind: type[msgspec.Struct]) -> Schema:
    """Refer to a described type."""
    return {"$ref": REF + kind.__name__}


def _plain(schema: Any) -> Any:
    """Say it as draft 07 does: what stands beside a `$ref` has no meaning there, and whole numbers are numbers."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _plain(part) for name, part in schema.items()}
    if "$ref" in made and len(made) > 1:
        made["allOf"] = [{"$ref": made.pop("$ref")}]
    if made.get("anyOf") == [{"type": "integer"}, {"type": "number"}]:
        del made["anyOf"]
        made["type"] = "number"
    return made


class Field(NamedTuple):
    """One field, with those before it that it stands in: `run.total_count`, `hottest_keys[].key`."""

    path: str
    kind: str
    always: bool
    meaning: str


def fields(schema: Mapping[str, Any], known: Mapping[str, Schema], path: str = "") -> Iterator[Field]:
    """List all fields, those of inner objects behind the field that holds them."""
    for name, field in schema["properties"].items():
        at = f"{path}{name}"
        yield Field(at, kind_of(field), name in schema["required"], field.get("description", ""))
        inner = _target(field) or _target(field.get("items", {}))
        if inner:
            yield from fields(known[inner], known, f"{at}{'[]' if 'items' in field else ''}.")


def kind_of(field: Mapping[str, Any]) -> str:
    """Name a field's JSON type, with the text that it has to match."""
    if "const" in field:
        return f"`{field['const']}`"
    if "items" in field:
        return f"array of {kind_of(field['items'])}"
    kind: str = field.get("type", "object")
    return f"{kind}, `{field['pattern']}`" if "pattern" in field else kind


def _target(field: Mapping[str, Any]) -> str | None:
    refs = [field, *field.get("allOf", ())]
    return next((part["$ref"].removeprefix(REF) for part in refs if "$ref" in part), None)
