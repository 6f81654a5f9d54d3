"""Content of all generated files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from dashboards.generate import alerts, rules, runbooks
from dashboards.generate.balance import balance
from dashboards.generate.dashboard import Dashboard, document
from dashboards.generate.evaluation import evaluation
from dashboards.generate.own_metrics import own_metrics
from dashboards.generate.pipeline import pipeline
from dashboards.generate.stage import stage

DOCS = "docs/reference/alerts.md"
HEAD = "# Made by `make dashboards` from the code. Change the code, not this file.\n"


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as literal blocks."""


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _represent_text)


def files(docs: str = DOCS) -> Mapping[str, str]:
    """Return path in the repository -> content. `docs` is the address of the page of runbooks."""
    made = {
        f"dashboards/{dashboard.uid}.json": json.dumps(document(dashboard), indent=2) + "\n"
        for dashboard in dashboards()
    }
    return made | {
        "dashboards/rules.yaml": _yaml(rules.document()),
        "dashboards/alerts.yaml": _yaml(alerts.document(docs)),
        "docs/reference/alerts.md": runbooks.page(),
    }


def dashboards() -> Sequence[Dashboard]:
    """Return all dashboards: one per need."""
    return (pipeline(), stage(), balance(), evaluation(), *own_metrics())


def alerts_template(docs: str = DOCS) -> str:
    """Return the chart's file of alerts, whose thresholds the chart replaces."""
    return _yaml(alerts.template(docs))


def _yaml(content: dict[str, Any]) -> str:
    return HEAD + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
