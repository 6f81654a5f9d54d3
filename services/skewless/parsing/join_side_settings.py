"""Settings of one side of a join: its topic, and the fields of its records."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from skewless.parsing.field_settings import FieldRef, HeaderName, KeySettings, LimitSettings, TimeSettings
from skewless.parsing.formats import BUILT_IN
from skewless.parsing.formats.json import JsonSettings
from skewless.parsing.settings import FormatChoice, ParsingSettings
from skewless.settings_base import InvalidSettingsError, SettingsModel, TopicName


class JoinIdSettings(SettingsModel):
    """Settings of the id that a pair of records shares: one of `from`, `field` and `header` names its source."""

    from_: Literal["record_key"] | None = Field(
        None, alias="from", description="`record_key`: the key of the Kafka record, in UTF-8."
    )
    field: FieldRef | None = Field(
        None,
        description="Field of the record's value, as [its format](#formats) names it, without lists.",
    )
    header: HeaderName | None = Field(
        None, description="Name of a header of the Kafka record, with text in UTF-8. The last one of this name counts."
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = {"from": self.from_, "field": self.field, "header": self.header}
        named = [name for name, source in sources.items() if source is not None]
        if len(named) > 1:
            raise InvalidSettingsError(
                f"{named[-1]}: set only one of {' and '.join(named)}, because an id has one source"
            )
        return self

    @field_validator("field")
    @classmethod
    def _without_lists(cls, field: FieldRef | None) -> FieldRef | None:
        if isinstance(field, str) and "[]" in field:
            raise ValueError("must not contain a list: a record has one id")
        return field


class _JoinParsing(ParsingSettings):
    """Settings of the parser. The value is always read, because results contain it."""

    @property
    def reads_value(self) -> bool:
        return True


class JoinSideSettings(SettingsModel):
    """Settings of one side of the join. Its limits of patterns, texts and tuples have no effect: an id has none."""

    topic: TopicName = Field(description="Topic of this side.")
    format: FormatChoice = JsonSettings()
    id: JoinIdSettings = JoinIdSettings.model_validate({})
    time: TimeSettings = TimeSettings()
    limits: LimitSettings = LimitSettings()

    @property
    def parsing(self) -> ParsingSettings:
        """Settings of the parser: the id is the key, and a record has no values."""
        key = KeySettings.model_validate({"from": self.id.from_, "field": self.id.field, "header": self.id.header})
        return _JoinParsing.model_construct(format=self.format, key=key, values={}, time=self.time, limits=self.limits)

    @model_validator(mode="after")
    def _fits_together(self) -> JoinSideSettings:
        problems = list(self._problems())
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def _problems(self) -> list[str]:
        problems = []
        if self.time.header is not None:
            problems.append("time.header: not for a join, set time.field")
        if self.time.field is None and self.time.model_fields_set & {"unit"}:
            problems.append("time.unit: set time.field too, without it the time is the timestamp of the Kafka record")
        if self.time.earliest > self.time.latest:
            problems.append("time.earliest: is after time.latest")
        if self.format.name not in BUILT_IN:
            names = ", ".join(BUILT_IN)
            return [*problems, f"format.name: must be one of {names}, because joined records contain both as JSON"]
        found = self.parsing.format_problems()
        return [*problems, *(f"id{line[3:]}" if line.startswith("key.") else line for line in found)]
