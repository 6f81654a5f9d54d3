"""Loads what other packages add by entry points."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final

from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

AGGREGATE_GROUP: Final = "skewless.aggregates"
FORMAT_GROUP: Final = "skewless.formats"
"""Groups of entry points."""


def load(kind: str, entry_point: EntryPoint) -> Any:
    """Return what an entry point names, of this kind. Raises ConfigurationError if it cannot be imported."""
    try:
        return entry_point.load()
    except Exception as error:  # a module of a package may raise anything
        raise ConfigurationError(
            f"{kind} {entry_point.name}: {entry_point.value} cannot be imported ({type(error).__name__}: {error}): "
            "repair its package"
        ) from error


def package_of(error: Exception) -> str | None:
    """Return the package that adds an aggregate or format, and in whose code an error was raised; None for others."""
    from importlib.metadata import entry_points  # takes long to import, and most commands do not need it

    points = [*entry_points(group=AGGREGATE_GROUP), *entry_points(group=FORMAT_GROUP)]
    packages = {point.module.partition(".")[0] for point in points}
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((name for module in modules if (name := module.partition(".")[0]) in packages), None)
