"""Settings of every built-in format."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from skewless.parsing.formats import BUILT_IN
from skewless.parsing.settings import ParsingSettings

KEYS: tuple[dict[str, Any], ...] = ({}, {"field": "key"}, {"field": 0})


def simplest_settings(name: str) -> dict[str, Any]:
    """Return settings of a format with a key of one field, named as the format does it."""
    for key in KEYS:
        settings = {"format": name, "key": key}
        try:
            ParsingSettings.model_validate(settings)
        except ValidationError:
            continue
        return settings
    raise AssertionError(f"format {name} accepts no key of {KEYS}")


SIMPLEST = {name: simplest_settings(name) for name, found in BUILT_IN.items() if not found.has_schemas}
