"""All files that are made: path below the clone -> content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from dashboards.build import alerts, rules, runbooks
from dashboards.build.balance import balance
from dashboards.build.evaluation import evaluation
from dashboards.build.frame import document
from dashboards.build.pipeline import pipeline

DOCS = "docs/reference/alerts.md"
HEAD = "# Made by `make dashboards` from the code. Change the code, not this file.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def files(docs: str = DOCS) -> Mapping[str, str]:
    """Make everything; `docs` is the address of the runbooks."""
    made = {
        f"dashboards/{wanted.uid}.json": json.dumps(document(wanted), indent=2) + "\n"
        for wanted in (pipeline(), balance(), evaluation())
    }
    return made | {
        "dashboards/rules.yaml": _yaml(rules.document()),
        "dashboards/alerts.yaml": _yaml(alerts.document(docs)),
        "docs/reference/alerts.md": runbooks.page(),
    }


def _yaml(found: dict[str, Any]) -> str:
    return HEAD + yaml.dump(found, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
