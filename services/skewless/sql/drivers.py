"""Imports the drivers of databases, which are optional."""

from __future__ import annotations

import importlib
from types import ModuleType

from skewless.errors import ConfigurationError, how_to_add


def load_driver(module: str, extra: str) -> ModuleType:
    """Import a driver. Raises ConfigurationError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"sink.url: the driver {module} cannot be imported ({error}): {how_to_add(extra)}"
        ) from None
