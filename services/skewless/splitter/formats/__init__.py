"""The registry of record formats. A package adds one by an entry point of the group `skewless.formats`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from skewless.errors import ConfigurationError
from skewless.splitter.formats.base import Format, FormatType, Parsed
from skewless.splitter.formats.delimited import Csv, Tsv
from skewless.splitter.formats.json import Json
from skewless.splitter.formats.text import Text

if TYPE_CHECKING:
    from skewless.splitter.settings import SplitterSettings

__all__ = ["Format", "FormatType", "Parsed", "create_format", "find_format"]

_GROUP = "skewless.formats"
_FORMATS: dict[str, FormatType] = {"json": Json, "csv": Csv, "tsv": Tsv, "text": Text}


def find_format(name: str) -> FormatType:
    """Look a format up by name, the built-in ones first; a `ConfigurationError` lists the known names."""
    if name in _FORMATS:
        return _FORMATS[name]
    added = entry_points(group=_GROUP)
    if name in added.names:
        return cast("FormatType", added[name].load())
    known = ", ".join([*_FORMATS, *sorted(added.names)])
    raise ConfigurationError(f"unknown format {name!r}: choose one of {known}")


def create_format(settings: SplitterSettings) -> Format:
    """Build the format that the settings name."""
    return find_format(settings.format)(settings)
