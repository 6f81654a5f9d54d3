"""Loads what other packages add by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from skewless.errors import ConfigurationError


def load(kind: str, entry_point: EntryPoint) -> Any:
    """Return what an entry point names, of this kind. Raises ConfigurationError if it cannot be imported."""
    try:
        return entry_point.load()
    except Exception as error:  # a module of a package may raise anything
        raise ConfigurationError(
            f"{kind} {entry_point.name}: {entry_point.value} cannot be imported ({type(error).__name__}: {error}): "
            "repair its package"
        ) from error
