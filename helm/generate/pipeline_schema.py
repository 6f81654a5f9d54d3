"""Schema of the value `pipeline`: the schema of the settings without the settings that the chart sets itself."""

from __future__ import annotations

from typing import Any

from skewless import topology
from skewless.algorithms.grouping import GROUPING_NAMES
from skewless.config.pipeline_settings import PipelineSettings

Schema = dict[str, Any]

SET_BY_CHART = ("source", "kafka", "registry", "replicas")
"""Sections of the settings that the chart sets from other values."""


def pipeline() -> tuple[Schema, Schema]:
    """Return the schema and the definitions that it refers to."""
    schema = _without_titles_and_defaults(PipelineSettings.model_json_schema())
    definitions: Schema = schema.pop("$defs")
    for name in SET_BY_CHART:
        del schema["properties"][name]
    schema.pop("required")
    del definitions["MetricsSettings"]["properties"]["port"]
    _remove_secrets(definitions)
    _allow_iso_times(definitions)
    _restrict_names(definitions)
    unused = {"SourceSettings", "ReplicaSettings"}
    unused |= {"RegistrySettings", "RegistryOAuthBearerSettings", "RegistryTlsSettings"}
    return schema, {name: body for name, body in definitions.items() if name not in unused}


def _remove_secrets(definitions: Schema) -> None:
    """Remove secret settings: the value `pipeline` becomes a ConfigMap, and secrets are read from a Secret."""
    for definition in definitions.values():
        properties = definition.get("properties", {})
        for name in [name for name, schema in properties.items() if _is_secret(schema)]:
            del properties[name]


def _is_secret(schema: Schema) -> bool:
    return any(each.get("writeOnly", False) for each in (schema, *schema.get("anyOf", ())))


def _allow_iso_times(definitions: Schema) -> None:
    """Allow ISO 8601 texts for instants, which the settings convert before validation."""
    times = definitions["TimeSettings"]["properties"]
    for name in ("earliest", "latest"):
        times[name]["type"] = ["integer", "string"]


def _restrict_names(definitions: Schema) -> None:
    """Restrict settings to the groupings and topics that exist in the code."""
    # Aggregates and formats are not restricted: the image may contain packages that add some.
    definitions["RouterSettings"]["properties"]["grouping"]["enum"] = sorted(GROUPING_NAMES)
    topics = [topic.name for topic in topology.TOPICS]
    definitions["TopicSettings"]["properties"]["options"]["propertyNames"] = {"enum": topics}


def _without_titles_and_defaults(part: Any) -> Any:
    # Titles repeat the names, and defaults are documented in the settings reference.
    if isinstance(part, list):
        return [_without_titles_and_defaults(item) for item in part]
    if not isinstance(part, dict):
        return part
    result: Schema = {}
    for name, value in part.items():
        if name in {"properties", "$defs"}:
            result[name] = {field: _without_titles_and_defaults(schema) for field, schema in value.items()}
        elif name not in {"title", "default"}:
            result[name] = _without_titles_and_defaults(value)
    return result
