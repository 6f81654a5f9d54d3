"""The schema of the value `pipeline`: that of the settings, less what the chart sets itself."""

from __future__ import annotations

from typing import Any

from skewless import topology
from skewless.algorithms.aggregates import AGGREGATES
from skewless.algorithms.grouping import GROUPINGS
from skewless.settings import PipelineSettings

Schema = dict[str, Any]

OF_THE_CHART = ("source", "kafka", "replicas")
"""Sections that have values of their own."""


def pipeline() -> tuple[Schema, Schema]:
    """Give the schema and the definitions that it refers to."""
    schema = _plain(PipelineSettings.model_json_schema())
    definitions: Schema = schema.pop("$defs")
    for name in OF_THE_CHART:
        del schema["properties"][name]
    schema.pop("required")
    del definitions["MetricsSettings"]["properties"]["port"]
    _widen(definitions)
    _narrow(definitions)
    unused = {"SourceSettings", "KafkaSettings", "SaslSettings", "TlsSettings", "ReplicaSettings"}
    return schema, {name: body for name, body in definitions.items() if name not in unused}


def _widen(definitions: Schema) -> None:
    """Allow what is turned into a setting before it is checked: instants may be ISO 8601."""
    times = definitions["TimeSettings"]["properties"]
    for name in ("earliest", "latest"):
        times[name]["type"] = ["integer", "string"]


def _narrow(definitions: Schema) -> None:
    """Refuse names that only the code knows to be wrong."""
    definitions["RouterSettings"]["properties"]["grouping"]["enum"] = sorted(GROUPINGS)
    definitions["AggregatorSettings"]["properties"]["aggregates"]["items"]["enum"] = sorted(AGGREGATES)
    topics = [topic.name for topic in topology.TOPICS]
    definitions["TopicSettings"]["properties"]["options"]["propertyNames"] = {"enum": topics}


def _plain(part: Any) -> Any:
    """Leave out titles and defaults: they say what names and the reference say already."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    made: Schema = {}
    for name, value in part.items():
        if name in {"properties", "$defs"}:
            made[name] = {field: _plain(kind) for field, kind in value.items()}
        elif name not in {"title", "default"}:
            made[name] = _plain(value)
    return made
