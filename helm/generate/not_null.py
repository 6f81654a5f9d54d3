"""Generates `files/sections.yaml`: the sections of `values.yaml`, none of which may be empty.

Helm removes the defaults of a section that is null, before it applies the schema. A schema that required the section
would still refuse every values file in an editor, because such a file has only some of the sections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from helm.generate.schema import VALUES, is_section


def paths() -> list[str]:
    """Return the path of every section, each before those in it."""
    return list(_paths("", yaml.safe_load(VALUES.read_text(encoding="utf-8"))))


def _paths(path: str, section: dict[str, Any]) -> Iterator[str]:
    for name, value in section.items():
        inner = f"{path}.{name}" if path else name
        if is_section(inner, value):
            yield inner
            yield from _paths(inner, value)
