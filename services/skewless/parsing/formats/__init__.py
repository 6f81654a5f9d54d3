"""Registry of record formats. A package adds a format with an entry point of the group `skewless.formats`."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from skewless.entry_points import FORMAT_GROUP, load
from skewless.errors import ConfigurationError, unknown
from skewless.parsing.formats.avro import Avro
from skewless.parsing.formats.base import ExtractedFields, Format, FormatSettings, OptionalFields, ParsedBatch
from skewless.parsing.formats.delimited import Csv, Tsv
from skewless.parsing.formats.json import Json
from skewless.parsing.formats.json_schema import JsonSchema
from skewless.parsing.formats.protobuf import Protobuf
from skewless.parsing.formats.text import Text
from skewless.schema_registry.settings import RegistrySettings
from skewless.settings_base import InvalidSettingsError, plain, without_consequences

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "BUILT_IN",
    "AddedFormatSettings",
    "ExtractedFields",
    "Format",
    "OptionalFields",
    "ParsedBatch",
    "all_formats",
    "find_format",
]

log = logging.getLogger(__name__)

BUILT_IN: dict[str, type[Format]] = {
    "json": Json,
    "avro": Avro,
    "protobuf": Protobuf,
    "json_schema": JsonSchema,
    "csv": Csv,
    "tsv": Tsv,
    "text": Text,
}


def find_format(name: str) -> type[Format]:
    """Return the format with this name, preferably a built-in one.

    Raises ConfigurationError if there is none, or if its package cannot be used.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    added = entry_points(group=FORMAT_GROUP)
    if name not in added.names:
        raise ConfigurationError(unknown("format", name, [*BUILT_IN, *sorted(added.names)]))
    found = load("format", added[name])
    if not (isinstance(found, type) and issubclass(found, Format)):
        raise ConfigurationError(f"format {name}: its package must be updated, {found!r} does not derive from Format")
    return found


def all_formats() -> dict[str, type[Format]]:
    """Return all formats by name, built-in ones first. Logs a warning for each whose package cannot be used."""
    formats = dict(BUILT_IN)
    for name in sorted(entry_points(group=FORMAT_GROUP).names):
        try:
            formats[name] = find_format(name)
        except ConfigurationError as error:
            log.warning("%s", error)
    return formats


class AddedFormatSettings(FormatSettings):
    """Settings of a format from a package. `resolved` returns them as an object of the format's own class."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        description="Name of the format.",
        # In the JSON Schema, invalid settings of a built-in format must not match the settings of added formats.
        json_schema_extra={"not": {"enum": list(BUILT_IN)}},
    )

    _own: FormatSettings = PrivateAttr()

    @model_validator(mode="after")
    def _are_valid(self) -> Self:
        settings: dict[str, Any] = {"name": self.name, **(self.model_extra or {})}
        try:
            own = find_format(self.name).settings
            self._own = own.model_validate(settings)
        except ConfigurationError as error:
            raise InvalidSettingsError(*error.problems) from None
        except ValidationError as error:
            problems = without_consequences(error.errors())
            raise InvalidSettingsError(*(_problem(problem, own) for problem in problems)) from None
        return self

    def resolved(self) -> FormatSettings:
        """Return the settings as an object of the format's own class."""
        return self._own

    def bind(self, registry: RegistrySettings | None) -> str | None:
        """Set the registry of the pipeline; see `FormatSettings.bind`."""
        return self._own.bind(registry)


def _problem(problem: ErrorDetails, settings: type[FormatSettings]) -> str:
    path = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        known = ", ".join(field.alias or name for name, field in settings.model_fields.items())
        return f"{path}: unknown setting of this format (known: {known})"
    return f"{path}: {plain(problem)}"
