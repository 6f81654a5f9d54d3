"""Generates `values.schema.json` from `values.yaml`, the schema of the settings and Kubernetes' schemas.

The schema is closed: it rejects unknown names.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from helm.generate import stages
from helm.generate.kubernetes import closed, definitions, reference, references
from helm.generate.pipeline_schema import pipeline
from helm.generate.value_schemas import BY_PATH, BY_SUFFIX, TEXT
from helm.generate.values_comments import comments_by_path
from skewless import topology

Schema = dict[str, Any]

VALUES = Path(__file__).parents[1] / "skewless" / "values.yaml"
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
KAFKA_OVERRIDES = {
    "sasl": ("username", "existingSecret", "usernameKey", "passwordKey"),
    "tls": ("existingSecret", "certKey", "keyKey", "keyPasswordKey"),
}
"""Values of `kafka` that a stage or job can override: its credentials, but not the address of Kafka."""


def document() -> Schema:
    """Return the schema."""
    text = VALUES.read_text(encoding="utf-8")
    pipeline_schema, pipeline_definitions = pipeline()
    schema = schema_of("", yaml.safe_load(text))
    for path, comment in comments_by_path(text.splitlines()).items():
        _describe(schema, path.split("."), comment)
    stage = schema["properties"]["stageDefaults"]
    schema["properties"]["pipeline"] = pipeline_schema
    schema["properties"]["stages"] = _closed_object(
        {row["name"]: _stage(row, stage) for row in stages.document()["stages"]}
        | {topology.ALL_STAGES: reference("stage")}
    )
    # A parent chart shares `global` with this chart, and enables it as a dependency by `enabled`.
    schema["properties"]["global"]["additionalProperties"] = True
    schema["properties"]["enabled"] = {"type": "boolean"}
    chart_definitions = {"kafka": _kafka_overrides(), "stage": stage, "probe": _probe(), "volume": _volume()}
    schema["properties"]["stageDefaults"] = reference("stage")
    schema["$defs"] = chart_definitions | pipeline_definitions
    schema["$defs"] |= definitions(references(schema) - schema["$defs"].keys())
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def schema_of(path: str, value: Any) -> Schema:
    """Return the schema of a value: from `BY_PATH` or `BY_SUFFIX`, otherwise from the type of its default."""
    name = path.rpartition(".")[2]
    if _is_user(path):
        return reference("kafka")
    if path in BY_PATH:
        return copy.deepcopy(BY_PATH[path])
    if name in BY_SUFFIX:
        return copy.deepcopy(BY_SUFFIX[name])
    if is_section(path, value):
        return _closed_object({key: schema_of(f"{path}.{key}" if path else key, inner) for key, inner in value.items()})
    if type(value) in _TYPES:
        return {"type": _TYPES[type(value)]}
    raise ValueError(f"{path}: the type of this value is unknown; add its schema to helm/generate/value_schemas.py")


def is_section(path: str, value: Any) -> bool:
    """Return whether a value is a section of the chart: an object with values of the chart, not of Kubernetes."""
    is_described = path in BY_PATH or path.rpartition(".")[2] in BY_SUFFIX
    return isinstance(value, dict) and not is_described and not _is_user(path)


def _is_user(path: str) -> bool:
    return path.endswith(".kafka")


def _describe(schema: Schema, path: Sequence[str], description: str) -> None:
    """Add the description of a value, unless its schema is a reference, which must not have other keywords."""
    for name in path:
        schema = schema["properties"][name]
    if "$ref" not in schema:
        schema["description"] = description


def _closed_object(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _stage(row: Schema, stage: Schema) -> Schema:
    """Return the schema of a stage: the schema of `stageDefaults`, plus the secret if the stage has credentials."""
    if not row["credentials"]:
        return reference("stage")
    keys = _closed_object({credential["key"]: TEXT for credential in row["credentials"]})
    return _closed_object({**stage["properties"], "existingSecret": TEXT, "secretKeys": keys})


def _kafka_overrides() -> Schema:
    return _closed_object(
        {group: _closed_object(dict.fromkeys(names, TEXT)) for group, names in KAFKA_OVERRIDES.items()}
    )


def _probe() -> Schema:
    """Return the schema of a probe without its handler, because the chart sets path and port."""
    probe = copy.deepcopy(definitions({"core.v1.Probe"})["core.v1.Probe"])
    for handler in _HANDLERS:
        del probe["properties"][handler]
    return closed(probe)  # type: ignore[no-any-return]  # closed() returns a dict for a dict


def _volume() -> Schema:
    """Return the schema of a volume without its name."""
    volume = copy.deepcopy(definitions({"core.v1.Volume"})["core.v1.Volume"])
    del volume["properties"]["name"]
    volume.pop("required", None)
    return volume  # type: ignore[no-any-return]  # deepcopy() of a dict returns a dict
