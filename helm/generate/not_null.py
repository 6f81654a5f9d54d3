"""Generates `files/not-null.yaml`: sections of `values.yaml`, and values with a default, for which null has no meaning.

Helm removes the default of a value that is null, before it applies the schema. A schema that required the value would
still refuse every values file in an editor, because such a file has only some of the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from helm.generate.schema import VALUES, Schema, is_section, schema_of


def paths() -> list[str]:
    """Return the path of every such section and value, each section before its values."""
    return list(_paths("", yaml.safe_load(VALUES.read_text(encoding="utf-8"))))


def _paths(path: str, section: dict[str, Any]) -> Iterator[str]:
    for name, value in section.items():
        inner = f"{path}.{name}" if path else name
        if is_section(inner, value):
            yield inner
            yield from _paths(inner, value)
        elif value and not _allows_null(schema_of(inner, value)):
            yield inner


def _allows_null(schema: Schema) -> bool:
    """Return whether null has a meaning: by the schema or, for a value of Kubernetes, in Kubernetes."""
    return "null" in schema.get("type", "") or "$ref" in schema.get("items", schema)
