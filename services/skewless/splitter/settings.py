"""Settings of the splitter: the record format, and which of its fields are key, value and time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from skewless.errors import ConfigurationError
from skewless.model import Model
from skewless.splitter.fields import FIRST_INSTANT, LARGEST_VALUE, LAST_INSTANT, Unit
from skewless.splitter.formats import find_format
from skewless.splitter.pattern import Pattern

FieldRef = str | Annotated[int, Field(ge=0, strict=True)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=1000)]


def _instant(value: Any) -> Any:
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    return value


Instant = Annotated[int, BeforeValidator(_instant), Field(ge=FIRST_INSTANT, le=LAST_INSTANT)]


class KeySettings(Model):
    """What of a record is its key; the steps are applied in the order of the fields below."""

    field: FieldRef | None = Field(
        None,
        description="JSON: path such as `user.id`, `hashtags[]` or `entities.hashtags[].text` (a tuple per element). "
        "Delimited: column number from 0, or a name of `columns`. Text: not set, the whole line is the field.",
    )
    strip_prefix: str = Field("", description="Removed from the start of the field where it is there.")
    pattern: str | None = Field(
        None,
        description="Regular expression as RE2 has it: every match (its group, if it has one) that is not empty is a "
        "key, and a tuple. A field without a match gives no tuple. `\\w`, `\\d`, `\\s` and `\\b` know ASCII only: "
        r"`[\pL\pN_]+` finds the words of any language. No lookaround, no backreferences: time stays linear.",
    )
    lower: bool = Field(default=False, description="Turn keys into lower case.")
    skip: Texts = Field(
        (), description="A key that contains one of these texts, in upper or lower case, gives no tuple."
    )
    merge: dict[Annotated[str, Field(min_length=1)], Texts] = Field(
        default_factory=dict,
        max_length=20,
        description="By the name of a new key, texts: a key that contains one of them, in upper or lower case, becomes "
        "the new key; of several the first.",
    )

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            Pattern(pattern)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return pattern


class ValueSettings(Model):
    """The number that each tuple carries. Without a field every tuple counts `default`."""

    field: FieldRef | None = Field(
        None,
        description="As `key.field`. A JSON path may go through lists that the key's goes through too: then each "
        "element has its own value.",
    )
    decimals: int = Field(
        0,
        ge=0,
        le=9,
        description="Decimal places to keep; rounded half to even. Each takes a place of what a sum can be: times 10 "
        "to the power of this, sums go to 9.2e18 (64 bits) and single values to 9e15.",
    )
    default: int = Field(
        1, ge=-LARGEST_VALUE, le=LARGEST_VALUE, description="Value of every tuple when there is no field."
    )


class TimeSettings(Model):
    """The event time of a record. Without a field it is the Kafka record's timestamp."""

    field: FieldRef | None = Field(None, description="As `key.field`, without lists.")
    unit: Unit = Field(
        "ms",
        description="Unit of the number since the epoch (finer fractions than a millisecond are cut off), or ISO 8601 "
        "text, with a blank or `T` between date and time, in UTC where it has no zone.",
    )
    earliest: Instant = Field(0, description="Records before this are bad: ms since the epoch or ISO 8601.")
    latest: Instant = Field(LAST_INSTANT, description="Records after this are bad: ms since the epoch or ISO 8601.")


class LimitSettings(Model):
    """Bounds of one record; what is over a bound is bad."""

    record_bytes: int = Field(262_144, ge=1, le=2**30, description="Size of the value; checked before it is parsed.")
    key_bytes: int = Field(1024, ge=1, le=65_536, description="Size of a key in UTF-8.")
    searched_bytes: int = Field(
        32_768,
        ge=1,
        le=2**30,
        description="Size of a key field that `key.pattern` is searched in: to find all matches of some patterns, such "
        "as `a*b|a`, takes time that grows with its square.",
    )
    depth: int = Field(32, ge=1, le=128, description="Nesting of lists and objects in JSON.")
    tuples_per_record: int = Field(10_000, ge=1, le=1_000_000, description="Tuples that one record may give.")


class SplitterSettings(Model):
    """How records of the source topic become tuples."""

    format: str = Field("json", description="json, csv, tsv, text, or the name of a format that a package adds.")
    separator: str | None = Field(
        None, min_length=1, max_length=16, description="Between columns; default `,` for csv and a tab for tsv."
    )
    quoting: bool = Field(
        default=False, description='csv only: fields may stand in double quotes (RFC 4180, `""` = `"`).'
    )
    columns: tuple[str, ...] = Field((), description="Names of the columns, so that fields can be named; optional.")
    key: KeySettings = KeySettings()
    value: ValueSettings = ValueSettings()
    time: TimeSettings = TimeSettings()
    limits: LimitSettings = LimitSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._conflicts(), *self._format_problems()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _conflicts(self) -> list[str]:
        problems = []
        if self.value.field is not None and "default" in self.value.model_fields_set:
            problems.append("value.default: only for tuples without value.field, remove one of the two")
        if abs(self.value.default) * 10**self.value.decimals > LARGEST_VALUE:
            problems.append(f"value.default: with {self.value.decimals} decimals it is beyond 2**53")
        if self.time.field is None and self.time.model_fields_set & {"unit"}:
            problems.append("time.unit: set time.field too, without it the time is the Kafka record's timestamp")
        if self.time.earliest > self.time.latest:
            problems.append("time.earliest: is after time.latest")
        return problems

    def _format_problems(self) -> list[str]:
        try:
            return list(find_format(self.format).problems(self))
        except ConfigurationError as error:
            return [f"format: {error}"]
