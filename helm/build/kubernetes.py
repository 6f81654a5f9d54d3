"""Kubernetes' own definitions, for values that are parts of manifests: a misspelled field of a probe is refused too."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

NEWEST = "v1.37.0"
"""What it does not know is refused; what older Kubernetes does not know, the API server tells."""
PREFIX = "#/$defs/"
_SHORT = re.compile(r"^io\.k8s\.(?:api|apimachinery\.pkg|kube-aggregator\.pkg)\.")


@functools.cache
def _definitions(version: str) -> Schema:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"{version}-local-strict"
    definitions: Schema = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    return definitions


def reference(name: str) -> Schema:
    """Refer to a definition by its short name, such as `core.v1.Probe`."""
    return {"$ref": f"{PREFIX}{name}"}


def definitions(names: set[str], version: str = NEWEST) -> Schema:
    """Give the definitions of these short names, and of all that they refer to: closed, and without explanations."""
    known = {_SHORT.sub("", name): body for name, body in _definitions(version).items()}
    found: Schema = {}
    wanted = set(names)
    while wanted:
        name = wanted.pop()
        found[name] = closed(known[name])
        wanted |= set(_references(found[name])) - found.keys()
    return dict(sorted(found.items()))


def write_schemas(folder: Path, kinds: set[tuple[str, str]], version: str) -> None:
    """Write a schema for each (apiVersion, kind), whole and named as kubeconform looks for it."""
    for api, kind in kinds:
        group, _, name = api.rpartition("/")
        definition = f"{group.partition('.')[0] or 'core'}.{name}.{kind}"
        suffix = "-".join(filter(None, (group.partition(".")[0], name)))
        schema = {**reference(definition), "$defs": definitions({definition}, version)}
        (folder / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(schema), encoding="utf-8")


def closed(part: Any) -> Any:
    """Refuse unknown fields, leave explanations and Kubernetes' own extensions out, and shorten references."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    made: Schema = {}
    for name, value in part.items():
        if name == "properties":
            made[name] = {field: closed(kind) for field, kind in value.items()}
        elif name == "$ref":
            made[name] = PREFIX + _SHORT.sub("", value.removeprefix(PREFIX))
        elif not name.startswith("x-") and name not in {"description", "default", "format"}:
            made[name] = closed(value)
    if "properties" in made:
        made["additionalProperties"] = False
    return made


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for each in part:
            yield from _references(each)
    elif isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value.removeprefix(PREFIX)
            else:
                yield from _references(value)
