"""Content of the chart's generated files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from dashboards.generate.files import alerts_template
from helm.generate import schema, stages

HEAD = "# Made by `make chart` from the code. Change the code, not this file.\n"
DASHBOARDS = Path(__file__).parents[2] / "dashboards"


def files() -> Mapping[str, str]:
    """Return path in the chart -> content."""
    # A chart cannot read files outside its folder, so dashboards and rules are copied into it.
    copied = sorted((*DASHBOARDS.glob("*.json"), *DASHBOARDS.glob("*.yaml")))
    return {
        "files/topology.yaml": HEAD + yaml.safe_dump(stages.document(), sort_keys=False, width=120),
        "values.schema.json": json.dumps(schema.document(), indent=1) + "\n",
        **{f"files/dashboards/{path.name}": path.read_text(encoding="utf-8") for path in copied},
        "files/dashboards/alerts.yaml": alerts_template(),
    }
