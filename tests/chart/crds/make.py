"""Convert CustomResourceDefinitions to closed JSON schemas: `python tests/chart/crds/make.py FOLDER FILE...`.

The files come from the Go modules github.com/prometheus-operator/prometheus-operator (v0.85.0,
example/prometheus-operator-crd) and github.com/kedacore/keda/v2 (v2.21.0, config/crd/bases), both under the Apache
License 2.0. A file pkg/scalers/NAME_scaler.go of KEDA becomes a list of the trigger's parameters, which KEDA's schemas
do not contain. The schemas of KafkaTopic and KafkaUser of Strimzi 1.x are written by hand, for the fields that the
chart uses.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

LEFT_OUT = ("description", "default", "format")
_PARAMETER = re.compile(r'`keda:"name=(?P<name>\w+), *order=(?P<places>[\w;]+)(?P<rest>[^"]*)"`')


def closed(part: Any) -> Any:
    """Refuse unknown fields, and remove keywords that do not validate."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    made = {
        name: {field: closed(kind) for field, kind in value.items()} if name == "properties" else closed(value)
        for name, value in part.items()
        if not name.startswith("x-") and name not in LEFT_OUT
    }
    if part.get("x-kubernetes-int-or-string"):
        made = {"type": ["integer", "string"]}
    if "properties" in made and not part.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def parameters(source: str) -> dict[str, list[str]]:
    """Return the parameters of a scaler: in the metadata of its trigger, those that must be there, and of its login."""
    found = [(each["name"], each["places"].split(";"), each["rest"]) for each in _PARAMETER.finditer(source)]
    return {
        "metadata": [name for name, places, _ in found if "triggerMetadata" in places],
        "required": [name for name, _, rest in found if "optional" not in rest and "default" not in rest],
        "authentication": [name for name, places, _ in found if "authParams" in places],
    }


def main(folder: Path, files: list[Path]) -> None:
    """Write one file per kind and version, with the file name that kubeconform expects."""
    for file in files:
        if file.suffix == ".go":
            made = json.dumps(parameters(file.read_text(encoding="utf-8")), separators=(",", ":"))
            (folder / f"keda-{file.stem.removesuffix('_scaler')}.json").write_text(made + "\n", encoding="utf-8")
            continue
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            name = f"{spec['names']['kind'].lower()}-{spec['group'].partition('.')[0]}-{version['name']}.json"
            (folder / name).write_text(json.dumps(schema, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
