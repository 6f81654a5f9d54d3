"""Settings of parsing: the format of records, and their key, value and time fields."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Tag, model_validator

from skewless.errors import ConfigurationError
from skewless.parsing.converters import LARGEST_VALUE
from skewless.parsing.field_settings import KeySettings, LimitSettings, TimeSettings, ValueSettings
from skewless.parsing.formats import BUILT_IN, AddedFormatSettings, Format, find_format
from skewless.parsing.formats.delimited import CsvSettings, TsvSettings
from skewless.parsing.formats.json import JsonSettings
from skewless.parsing.formats.text import TextSettings
from skewless.settings_base import InvalidSettingsError, SettingsModel

ADDED = "added"
"""Tag of the settings of a format that a package adds."""


def _as_mapping(value: Any) -> Any:
    """Return `{name: json}` for the text `json`. A mapping without a name gets the name `json`."""
    if isinstance(value, str):
        return {"name": value}
    return {"name": "json", **value} if isinstance(value, dict) else value


def _tag_of(value: Any) -> str | None:
    """Return the tag of the settings class that reads a format's settings."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if not isinstance(name, str):
        return None
    return name if name in BUILT_IN else ADDED


AnyFormatSettings = (
    Annotated[JsonSettings, Tag("json")]
    | Annotated[CsvSettings, Tag("csv")]
    | Annotated[TsvSettings, Tag("tsv")]
    | Annotated[TextSettings, Tag("text")]
    | Annotated[AddedFormatSettings, Tag(ADDED)]
)
FormatChoice = Annotated[
    AnyFormatSettings,
    Discriminator(
        _tag_of,
        custom_error_type="format",
        custom_error_message="should be the name of a format, or a mapping with its name and settings",
    ),
    BeforeValidator(_as_mapping, json_schema_input_type=str | AnyFormatSettings),
]


class ParsingSettings(SettingsModel):
    """Settings of the conversion of source records to tuples."""

    format: FormatChoice = JsonSettings()
    key: KeySettings = KeySettings()
    value: ValueSettings = ValueSettings()
    time: TimeSettings = TimeSettings()
    limits: LimitSettings = LimitSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._conflicts(), *self._format_problems()]
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def _conflicts(self) -> list[str]:
        problems = []
        if self.value.field is not None and "constant" in self.value.model_fields_set:
            problems.append("value.constant: only for tuples without value.field, remove one of the two")
        if abs(self.value.constant) * 10**self.value.decimals > LARGEST_VALUE:
            problems.append(f"value.constant: with {self.value.decimals} decimals it is larger than 2**53")
        if self.time.field is None and self.time.model_fields_set & {"unit"}:
            problems.append("time.unit: set time.field too, without it the time is the timestamp of the Kafka record")
        if self.time.earliest > self.time.latest:
            problems.append("time.earliest: is after time.latest")
        return problems

    def _format_problems(self) -> list[str]:
        try:
            return list(find_format(self.format.name).validate(self.format.resolved(), self))
        except ConfigurationError as error:
            return [f"format: {error}"]


def open_format(settings: ParsingSettings) -> Format:
    """Open the format that the settings name."""
    return find_format(settings.format.name).open(settings.format.resolved(), settings)
