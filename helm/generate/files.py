"""Content of the chart's generated files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dashboards.generate.files import alerts_template
from helm.generate import not_null, schema, stages

HEAD = "# Made by `make chart` from the code. Change the code, not this file.\n"
DASHBOARDS = Path(__file__).parents[2] / "dashboards"


def files() -> Mapping[str, str]:
    """Return path in the chart -> content."""
    # A chart cannot read files outside its folder, so dashboards and rules are copied into it.
    return {
        "files/topology.yaml": HEAD + yaml.safe_dump(stages.document(), sort_keys=False, width=120),
        "files/not-null.yaml": HEAD + yaml.safe_dump(not_null.paths()),
        "values.schema.json": json.dumps(schema.document(), indent=1) + "\n",
        **{f"files/dashboards/{path.name}": minified(json.loads(path.read_text("utf-8"))) for path in _dashboards()},
        "files/dashboards/rules.yaml": (DASHBOARDS / "rules.yaml").read_text(encoding="utf-8"),
        "files/dashboards/alerts.yaml": alerts_template(),
    }


def minified(dashboard: dict[str, Any]) -> str:
    """Return a dashboard without white space: Kubernetes limits a ConfigMap to 1 MiB."""
    return json.dumps(dashboard, separators=(",", ":")) + "\n"


def _dashboards() -> list[Path]:
    return sorted(DASHBOARDS.glob("*.json"))
