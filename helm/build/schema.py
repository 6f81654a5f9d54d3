"""`values.schema.json`: closed, from the structure of `values.yaml`, the settings' own schema and Kubernetes'."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from helm.build import stages
from helm.build.explained import explained
from helm.build.kinds import ENDINGS, KINDS, TEXT
from helm.build.kubernetes import PREFIX, closed, definitions, reference
from helm.build.pipeline_schema import pipeline

Schema = dict[str, Any]

VALUES = Path(__file__).parents[1] / "skewless" / "values.yaml"
_REFERENCE = re.compile(rf'"\$ref": "{re.escape(PREFIX)}([^"]+)"')
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
OWN_KAFKA = {
    "sasl": ("username", "existingSecret", "usernameKey", "passwordKey"),
    "tls": ("existingSecret", "certKey", "keyKey", "keyPasswordKey"),
}
"""What of `kafka` kinds of pods may have of their own: who they are, not where Kafka is."""


def document() -> Schema:
    """Make the schema."""
    text = VALUES.read_text(encoding="utf-8")
    settings, groups = pipeline()
    schema = _of("", yaml.safe_load(text))
    for path, meaning in explained(text.splitlines()).items():
        _explain(schema, path.split("."), meaning)
    stage = schema["properties"]["stageDefaults"]
    schema["properties"]["pipeline"] = settings
    schema["properties"]["stages"] = _closed({row["name"]: _stage(row, stage) for row in stages.document()["stages"]})
    # Charts that have this one as a part share `global`, and say by `enabled` whether it is one.
    schema["properties"]["global"]["additionalProperties"] = True
    schema["properties"]["enabled"] = {"type": "boolean"}
    own = {"kafka": _own_kafka(), "stage": stage, "probe": _probe(), "volume": _volume()}
    schema["properties"]["stageDefaults"] = reference("stage")
    schema["$defs"] = own | groups
    schema["$defs"] |= definitions(set(_REFERENCE.findall(json.dumps(schema))) - schema["$defs"].keys())
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def _of(path: str, value: Any) -> Schema:
    """Give the schema of one value: as the tables say, else as its default is."""
    name = path.rpartition(".")[2]
    if name == "kafka" and path != "kafka":
        return reference("kafka")
    if path in KINDS:
        return copy.deepcopy(KINDS[path])
    if name in ENDINGS:
        return copy.deepcopy(ENDINGS[name])
    if isinstance(value, dict):
        return _closed({key: _of(f"{path}.{key}" if path else key, inner) for key, inner in value.items()})
    if type(value) in _TYPES:
        return {"type": _TYPES[type(value)]}
    raise ValueError(f"{path}: its kind is not known; tell it in helm/build/kinds.py")


def _explain(schema: Schema, path: Sequence[str], meaning: str) -> None:
    """Describe a value. What refers to a definition is left as it is: nothing may stand beside a reference."""
    for name in path:
        schema = schema["properties"][name]
    if "$ref" not in schema:
        schema["description"] = meaning


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _stage(row: Schema, stage: Schema) -> Schema:
    """Give the schema of a stage: that of the defaults, with the secret that it needs, if it needs one."""
    if not row["credentials"]:
        return reference("stage")
    keys = _closed({credential["key"]: TEXT for credential in row["credentials"]})
    return _closed({**stage["properties"], "existingSecret": TEXT, "secretKeys": keys})


def _own_kafka() -> Schema:
    return _closed({group: _closed(dict.fromkeys(names, TEXT)) for group, names in OWN_KAFKA.items()})


def _probe() -> Schema:
    """Give the schema of a probe's timing: path and port are the chart's."""
    probe = copy.deepcopy(definitions({"core.v1.Probe"})["core.v1.Probe"])
    for handler in _HANDLERS:
        del probe["properties"][handler]
    return closed(probe)  # type: ignore[no-any-return]  # a dict gives a dict


def _volume() -> Schema:
    """Give the schema of a volume without its name."""
    volume = copy.deepcopy(definitions({"core.v1.Volume"})["core.v1.Volume"])
    del volume["properties"]["name"]
    volume.pop("required", None)
    return volume  # type: ignore[no-any-return]  # a dict gives a dict
