"""Settings of the fields of a record (key, value, time) and of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field, field_validator

from skewless.algorithms.value_type import Kind
from skewless.errors import ConfigurationError
from skewless.parsing.converters import FIRST_INSTANT, LARGEST_VALUE, LAST_INSTANT, Unit
from skewless.parsing.pattern import Pattern
from skewless.settings_base import SettingsModel

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


class KeySettings(SettingsModel):
    """Settings of the key of a tuple. The steps are applied in the order of the attributes."""

    field: FieldRef | None = Field(
        None,
        description="JSON: path such as `user.id`, `hashtags[]` or `entities.hashtags[].text` (one tuple per element). "
        "Delimited: column number from 0, or a name of `format.columns`. Text: not set, the field is the whole line.",
    )
    strip_prefix: str = Field("", description="Prefix to remove from the field, if present.")
    pattern: str | None = Field(
        None,
        description="Regular expression in the syntax of RE2. Each non-empty match (or its group, if there is one) is "
        "the key of a tuple. A field without a match has no tuples. `\\w`, `\\d`, `\\s` and `\\b` match ASCII only; "
        r"`[\pL\pN_]+` matches words of any language. Lookaround and backreferences are not supported.",
    )
    lowercase: bool = Field(default=False, description="Convert keys to lower case.")
    drop_if_contains: Texts = Field((), description="Drop keys that contain one of these texts, ignoring case.")
    rename_if_contains: dict[Annotated[str, Field(min_length=1)], Texts] = Field(
        default_factory=dict,
        max_length=20,
        description="Maps a new key to texts: a key that contains one of the texts, ignoring case, is replaced by the "
        "new key. The first entry that matches applies.",
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


class ValueSettings(SettingsModel):
    """Settings of the value of a tuple. Without a field, each tuple has the value `constant`."""

    field: FieldRef | None = Field(
        None,
        description="As `key.field`. A JSON path may contain only lists that the path of the key contains too. Each "
        "element then has its own value.",
    )
    times: FieldRef | None = Field(
        None,
        description="Second field: the value is the product of both, multiplied as decimals and rounded once. As "
        "`field`.",
    )
    kind: Kind = Field(
        "number",
        description="number, or text for aggregates of any values. Numbers and booleans of JSON are converted to text.",
    )
    missing: Literal["invalid", "skip"] = Field(
        "invalid",
        description="A field that is null, empty or absent: the record is invalid, or the tuple counts without this "
        "value (skip), and no aggregate of the value takes it into account.",
    )
    decimals: int = Field(
        0,
        ge=0,
        le=9,
        description="Decimal places of values, rounded half to even. Multiplied by 10 to the power of this, values are "
        "limited to 9e15. Sums are not limited.",
    )
    constant: int = Field(
        1, ge=-LARGEST_VALUE, le=LARGEST_VALUE, description="Value of each tuple if `field` is not set."
    )


def value_fields(fields: FieldSettings) -> dict[str, tuple[ValueSettings, FieldRef]]:
    """Return the fields of all values by the path of their setting without `.field`: `value`, or `values.<name>`.

    The second field of a product has the path `value.times`, or `values.<name>.times`.
    """
    found: dict[str, tuple[ValueSettings, FieldRef]] = {}
    for name, settings in fields.named_values.items():
        path = value_path(fields, name)
        if settings.field is not None:
            found[path] = settings, settings.field
        if settings.times is not None:
            found[f"{path}.times"] = settings, settings.times
    return found


def value_path(fields: FieldSettings, name: str) -> str:
    """Return the path of the settings of a value."""
    return "value" if fields.values is None else f"values.{name}"


class TimeSettings(SettingsModel):
    """Settings of the event time of a record. Without a field it is the timestamp of the Kafka record."""

    field: FieldRef | None = Field(None, description="As `key.field`, without lists.")
    unit: Unit = Field(
        "ms",
        description="Unit of a number since the epoch, or `iso8601` for text with a space or `T` between date and "
        "time, in UTC if it has no time zone. Times are rounded down to milliseconds.",
    )
    earliest: Instant = Field(0, description="Earlier records are invalid: ms since the epoch, or ISO 8601.")
    latest: Instant = Field(LAST_INSTANT, description="Later records are invalid: ms since the epoch, or ISO 8601.")


class LimitSettings(SettingsModel):
    """Limits of one record. A record that exceeds one is invalid."""

    record_bytes: int = Field(
        262_144, ge=1, le=2**30, description="Maximum bytes of the value, checked before it is parsed."
    )
    key_bytes: int = Field(1024, ge=1, le=65_536, description="Maximum bytes of a key in UTF-8.")
    pattern_input_bytes: int = Field(
        32_768,
        ge=1,
        le=2**30,
        description="Maximum bytes of a key field with `key.pattern`. For some patterns, such as `a*b|a`, the time to "
        "find all matches grows with the square of the size.",
    )
    max_depth: int = Field(32, ge=1, le=128, description="Maximum nesting of lists and objects in JSON.")
    text_bytes: int = Field(1024, ge=1, le=65_536, description="Maximum bytes of a text value in UTF-8.")
    tuples_per_record: int = Field(10_000, ge=1, le=1_000_000, description="Maximum tuples of one record.")


class FieldSettings(Protocol):
    """The settings of fields that a format needs."""

    @property
    def key(self) -> KeySettings:
        """Settings of the key of a tuple."""
        ...

    @property
    def values(self) -> Mapping[str, ValueSettings] | None:
        """Settings of named values. None: the settings have the section `value`."""
        ...

    @property
    def named_values(self) -> Mapping[str, ValueSettings]:
        """Settings of the values of a tuple by name."""
        ...

    @property
    def time(self) -> TimeSettings:
        """Settings of the event time of a record."""
        ...

    @property
    def limits(self) -> LimitSettings:
        """Limits of one record."""
        ...
