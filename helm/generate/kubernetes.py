"""Kubernetes' JSON schemas, for values that are parts of manifests, such as probes."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

VERSIONS = Path(__file__).parents[2] / "deploy" / "versions.toml"
NEWEST = f"v{tomllib.loads(VERSIONS.read_text(encoding='utf-8'))['kubernetes_newest']}"
"""The schema of the values rejects fields that this version does not have. The API server of an older version rejects
fields that it does not have itself."""
PREFIX = "#/$defs/"
_REFERENCE = re.compile(rf'"\$ref": "{re.escape(PREFIX)}([^"]+)"')
_SHORT = re.compile(r"^io\.k8s\.(?:api|apimachinery\.pkg|kube-aggregator\.pkg)\.")


@functools.cache
def _definitions(version: str) -> Schema:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"{version}-local-strict"
    definitions: Schema = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    return definitions


def reference(name: str) -> Schema:
    """Return a reference to the definition with a short name such as `core.v1.Probe`."""
    return {"$ref": f"{PREFIX}{name}"}


def definitions(names: set[str], version: str = NEWEST) -> Schema:
    """Return the definitions of these short names and of all definitions that they refer to, each as `closed` does."""
    all_definitions = {_SHORT.sub("", name): body for name, body in _definitions(version).items()}
    result: Schema = {}
    pending = set(names)
    while pending:
        name = pending.pop()
        result[name] = closed(all_definitions[name])
        pending |= references(result[name]) - result.keys()
    return dict(sorted(result.items()))


def closed(part: Any) -> Any:
    """Return a schema that rejects unknown fields, without descriptions and extensions, and with short references."""
    if isinstance(part, list):
        return [closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    schema: Schema = {}
    for name, value in part.items():
        if name == "properties":
            schema[name] = {field: closed(field_schema) for field, field_schema in value.items()}
        elif name == "$ref":
            schema[name] = PREFIX + _SHORT.sub("", value.removeprefix(PREFIX))
        elif name == "oneOf":
            schema["anyOf"] = closed(value)  # null is valid for each of Kubernetes' alternatives
        elif not name.startswith("x-") and name not in {"description", "default", "format"}:
            schema[name] = closed(value)
    if "properties" in schema:
        schema["additionalProperties"] = False
    return schema


def references(schema: Schema) -> set[str]:
    """Return the names of the definitions to which a schema refers."""
    return set(_REFERENCE.findall(json.dumps(schema)))
