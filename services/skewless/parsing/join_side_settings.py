"""Settings of one side of a join: its topic, and the fields of its records."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, field_validator, model_validator

from skewless.errors import ConfigurationError
from skewless.parsing.field_settings import FieldRef, KeySettings, LimitSettings, TimeSettings, ValueSettings
from skewless.parsing.formats import BUILT_IN, find_format
from skewless.parsing.formats.json import JsonSettings
from skewless.parsing.settings import FormatChoice
from skewless.settings_base import InvalidSettingsError, SettingsModel


class JoinIdSettings(SettingsModel):
    """Settings of the id that a pair of records shares."""

    field: FieldRef | None = Field(
        None,
        description="JSON: path such as `request.id`, without lists. Delimited: column number from 0, or a name of "
        "`format.columns`. Text: not set, the field is the whole line.",
    )

    @field_validator("field")
    @classmethod
    def _without_lists(cls, field: FieldRef | None) -> FieldRef | None:
        if isinstance(field, str) and "[]" in field:
            raise ValueError("must not contain a list: a record has one id")
        return field


class JoinSideSettings(SettingsModel):
    """Settings of one side of the join."""

    # The properties make it a `FieldSettings`, so that every format can read the fields.
    topic: str = Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$", description="Topic of this side.")
    format: FormatChoice = JsonSettings()
    id: JoinIdSettings = JoinIdSettings.model_validate({})
    time: TimeSettings = TimeSettings()
    limits: LimitSettings = LimitSettings()

    @property
    def key(self) -> KeySettings:
        """The id as the key of a format."""
        return KeySettings(field=self.id.field)

    @property
    def values(self) -> Mapping[str, ValueSettings] | None:
        """No values: a record counts once."""
        return {}

    @property
    def named_values(self) -> Mapping[str, ValueSettings]:
        """No values: a record counts once."""
        return {}

    @model_validator(mode="after")
    def _fits_together(self) -> JoinSideSettings:
        problems = list(self._problems())
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def _problems(self) -> list[str]:
        problems = []
        if self.time.field is None and self.time.model_fields_set & {"unit"}:
            problems.append("time.unit: set time.field too, without it the time is the timestamp of the Kafka record")
        if self.time.earliest > self.time.latest:
            problems.append("time.earliest: is after time.latest")
        if self.format.name not in BUILT_IN:
            names = ", ".join(BUILT_IN)
            return [*problems, f"format.name: must be one of {names}, because joined records contain both as JSON"]
        try:
            found = find_format(self.format.name).validate(self.format.resolved(), self)
            return [*problems, *(f"id{line[3:]}" if line.startswith("key.") else line for line in found)]
        except ConfigurationError as error:
            return [*problems, f"format: {error}"]
