"""Settings of the fields of a record (key, value, time) and of its limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from skewless.algorithms.value_type import Kind
from skewless.errors import ConfigurationError
from skewless.parsing.converters import Unit
from skewless.parsing.pattern import Pattern, check_syntax
from skewless.settings_base import InvalidSettingsError, SettingsModel
from skewless.times import EPOCH, FIRST_INSTANT, LAST_INSTANT

FieldRef = str | Annotated[int, Field(ge=0, strict=True)]
HeaderName = Annotated[str, Field(min_length=1, max_length=1024)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=1000)]


def instant_of(value: Any) -> Any:
    """Return a time in ms since the epoch if it is text in ISO 8601, in UTC without a zone; other values unchanged.

    Raises ValueError for other text.
    """
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a time in ISO 8601") from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(milliseconds=1)  # rounded down, as times in records
    return value


Instant = Annotated[int, BeforeValidator(instant_of), Field(ge=FIRST_INSTANT, le=LAST_INSTANT)]


def _in_order(entries: Any) -> Any:
    """Return one mapping for a list of mappings with one entry each; other values unchanged."""
    if not isinstance(entries, list | tuple):
        return entries
    if not all(isinstance(entry, dict) and len(entry) == 1 for entry in entries):
        raise ValueError("should be a mapping, or a list of mappings with one entry each")
    merged = {name: texts for entry in entries for name, texts in entry.items()}
    if len(merged) < len(entries):
        raise ValueError("two entries have the same name")
    return merged


_Names = Annotated[dict[Annotated[str, Field(min_length=1)], Texts], Field(max_length=20)]
OrderedNames = Annotated[_Names, BeforeValidator(_in_order, json_schema_input_type=_Names | tuple[_Names, ...])]
"""Texts by name, whose order counts. Not all tools keep the order of a mapping, so it may be a list."""
RESERVED_NAMES = frozenset(
    {"key", "window_start", "window_end", "revision", "value", "time", "watermark", "partition", "offset", "topic"}
)
"""Fields of public records with a key, apart from aggregates."""
LARGEST_CONSTANT = 2**53
"""Maximum of `constant` times 10 to the power of `decimals`: tools that read settings as doubles do not change it."""
Encoding = Literal["utf8", "int64", "int32", "json", "avro", "protobuf", "json_schema"]
KEY_FORMATS: frozenset[Encoding] = frozenset({"json", "avro", "protobuf", "json_schema"})
"""Encodings of a record key that are formats."""
Truncation = Literal["minute", "hour", "day"]
TIME_OF_DAY = "time.of_day"
"""Path of the setting of the second field of a time."""
PART_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Names of key parts, which are fields of public records."""


class KeyPartSettings(SettingsModel):
    """A part of a composite key: one of `from`, `field` and `header` names its source."""

    from_: Literal["record_key", "partition", "time"] | None = Field(
        None, alias="from", description="As `key.from`; `time` is the event time of the record."
    )
    field: FieldRef | None = Field(None, description="As `key.field`, without lists.")
    header: HeaderName | None = Field(None, description="As `key.header`.")
    name: str | None = Field(
        None,
        description="Name of the part, which is a field of results and late tuples: letters, digits and `_`. Default: "
        "the field or header.",
    )
    truncate: Truncation | None = Field(
        None, description="Read the part as a time, and truncate it in UTC to the start of its minute, hour or day."
    )
    unit: Unit | None = Field(None, description="Unit of a part that is truncated. Default: `time.unit`.")

    @property
    def part_name(self) -> str:
        """Name of the part in public records."""
        return self.name or str(self.field if self.field is not None else self.header or self.from_)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        sources = [name for name in ("from_", "field", "header") if getattr(self, name) is not None]
        problems = []
        if len(sources) != 1:
            problems.append("a part of the key has exactly one of from, field and header")
        elif not PART_NAME.fullmatch(self.part_name):
            problems.append(f"name: {self.part_name!r} is not a name of letters, digits and _; set another one")
        if self.from_ == "time" and self.truncate is None:
            problems.append("truncate: missing, set minute, hour or day")
        if self.unit is not None and (self.truncate is None or self.from_ == "time"):
            problems.append("unit: only for a field or header that is truncated")
        if problems:
            raise InvalidSettingsError(*problems)
        return self


class KeySettings(SettingsModel):
    """Settings of the key of a tuple: one of `from`, `field`, `header` and `fields` names its source.

    The other steps are applied to its text, in the order of the attributes.
    """

    from_: Literal["record_key", "partition"] | None = Field(
        None,
        alias="from",
        description="`record_key`: the key of the Kafka record, the default of a pipeline without `splitter`. "
        "`partition`: the number of its source partition.",
    )
    field: FieldRef | None = Field(
        None,
        description="Field of the record's value, as [its format](#formats) names it. With an `encoding` that is a "
        "format: field of the record key, without lists. Without it, the record key is a text, number or boolean.",
    )
    header: HeaderName | None = Field(
        None, description="Name of a header of the Kafka record, with text in UTF-8. The last one of this name counts."
    )
    fields: Annotated[tuple[KeyPartSettings, ...], Field(max_length=8)] = Field(
        (),
        description="Parts of a composite key, 2 to 8. The key is the JSON array of their texts, such as "
        '`["books","2010-12-01T08:00:00Z"]`. Each part is a field of public records, too.',
    )
    encoding: Encoding = Field(
        "utf8",
        description="Encoding of the record key: text, a signed integer of 8 or 4 bytes (big-endian), or a "
        "[format](#formats). The schemas of `avro`, `protobuf` and `json_schema` are those of the section `registry`.",
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
    rename_if_contains: OrderedNames = Field(
        default_factory=dict,
        description="Maps a new key to texts: a key that contains one of the texts, ignoring case, is replaced by the "
        "new key. The first entry that matches applies. A list of mappings with one entry each means the same, for "
        "example [{Weather: [rain]}, {Election: [vote]}]. The chart needs the list for several entries, because Helm "
        "sorts a mapping.",
    )

    @property
    def in_value(self) -> bool:
        """Whether the key is in the value of the record, from which the format extracts it."""
        return self.from_ is None and self.header is None and not self.fields

    @property
    def in_key_format(self) -> bool:
        """Whether the record key has a format, which extracts the key from it."""
        return self.from_ == "record_key" and self.encoding in KEY_FORMATS

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of a composite key; empty for any other key."""
        return tuple(part.part_name for part in self.fields)

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        field = None if self.in_key_format else self.field
        sources = {"from": self.from_, "field": field, "header": self.header, "fields": self.fields or None}
        named = [name for name, source in sources.items() if source is not None]
        problems = []
        if len(named) > 1:
            problems.append(f"{named[-1]}: set only one of {' and '.join(named)}, because a key has one source")
        if "encoding" in self.model_fields_set and self.from_ != "record_key":
            problems.append("encoding: only for the record key, set from: record_key or remove it")
        if self.fields:
            problems += self._composite_problems()
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def _composite_problems(self) -> Iterator[str]:
        if len(self.fields) < 2:
            yield "fields: a composite key has at least 2 parts; use key.field for one"
        lower = [name.lower() for name in self.parts]
        for i, part in enumerate(self.parts):
            if part.lower() in RESERVED_NAMES:
                yield f"fields.{i}.name: {part} is a field of public records already; set another name"
            if lower.index(part.lower()) < i:
                yield f"fields.{i}.name: two parts are named {part}; set another name"
        for name in ("strip_prefix", "pattern", "lowercase", "drop_if_contains", "rename_if_contains"):
            if name in self.model_fields_set:
                yield f"{name}: not for a composite key, remove it or key.fields"

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        return _checked(pattern, Pattern)


def _checked(pattern: str | None, check: Callable[[str], object]) -> str | None:
    if pattern is not None:
        try:
            check(pattern)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
    return pattern


Operand = Annotated[str | bool | int | float, Field(union_mode="smart")]


class ConditionSettings(SettingsModel):
    """A condition on a field or header. If several operators are set, all must hold.

    Text is compared with the text of the field, a number with its number. A field that is absent, null, an object or a
    list meets no condition but `exists`.
    """

    field: FieldRef | None = Field(None, description="Field of the record, as `key.field`, without lists.")
    header: HeaderName | None = Field(None, description="Header of the record, as `key.header`.")
    is_: Operand | None = Field(None, alias="is", description="Text, number or boolean that the field equals.")
    is_not: Operand | None = Field(None, description="Text, number or boolean that the field does not equal.")
    in_: Annotated[tuple[Operand, ...], Field(min_length=1, max_length=1000)] | None = Field(
        None, alias="in", description="List of which the field equals an element."
    )
    not_in: Annotated[tuple[Operand, ...], Field(max_length=1000)] | None = Field(
        None, description="List of which the field equals no element."
    )
    above: int | float | None = Field(None, description="The field is a number greater than this.")
    at_least: int | float | None = Field(None, description="The field is a number not less than this.")
    below: int | float | None = Field(None, description="The field is a number less than this.")
    at_most: int | float | None = Field(None, description="The field is a number not greater than this.")
    matches: str | None = Field(None, description="The text contains a match of this expression, as `key.pattern`.")
    exists: bool | None = Field(
        None, description="true: the field is present and not null. false: it is absent or null."
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        problems = []
        if (self.field is None) == (self.header is None):
            problems.append("a condition has exactly one of field and header")
        if all(getattr(self, name) is None for name in OPERATORS):
            names = ", ".join(OPERATORS.values())
            problems.append(f"a condition needs an operator: one of {names}")
        if self.exists is False and any(getattr(self, name) is not None for name in OPERATORS if name != "exists"):
            problems.append("exists: false needs an absent field, which meets no other operator; remove one of them")
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    @field_validator("matches")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        return _checked(pattern, check_syntax)


OPERATORS = {
    name: field.alias or name
    for name, field in ConditionSettings.model_fields.items()
    if name not in ("field", "header")
}
"""Operators of conditions by attribute."""


class ValueSettings(SettingsModel):
    """Settings of the value of a tuple. Without a field or header, each tuple has the value `constant`."""

    field: FieldRef | None = Field(
        None,
        description="As `key.field`. A path of JSON may contain only lists that the path of the key contains too. Each "
        "element then has its own value.",
    )
    times: FieldRef | None = Field(
        None,
        description="Second field: the value is the product of both, multiplied as decimals and rounded once. As "
        "`field`. A text of more than 1,000 characters is invalid, and a number of JSON of more is read as a double.",
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
    header: HeaderName | None = Field(None, description="Header with the value, instead of a field. As `key.header`.")
    decimals: int = Field(
        0,
        ge=0,
        le=9,
        description="Decimal places of values, rounded half to even. Multiplied by 10 to the power of this, values are "
        "limited to 9.2e18 (64 bits). Sums are not limited.",
    )
    constant: int = Field(
        1, ge=-LARGEST_CONSTANT, le=LARGEST_CONSTANT, description="Value of each tuple without `field` and `header`."
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
    """Settings of the event time of a record. Without a field or header it is the timestamp of the Kafka record."""

    field: FieldRef | None = Field(None, description="As `key.field`, without lists.")
    of_day: FieldRef | None = Field(
        None,
        description="Second field with the time of day, if `field` has only the date. Both are read as one text in ISO "
        "8601. As `field`.",
    )
    header: HeaderName | None = Field(None, description="Header with the time, instead of a field. As `key.header`.")
    unit: Unit = Field(
        "ms",
        description="Unit of a number since the epoch, or `iso8601` for text with a space or `T` between date and "
        "time, in UTC if it has no time zone. Times are rounded down to milliseconds.",
    )
    earliest: Instant = Field(0, description="Earlier records are invalid: ms since the epoch, or ISO 8601.")
    latest: Instant = Field(LAST_INSTANT, description="Later records are invalid: ms since the epoch, or ISO 8601.")

    @property
    def fields(self) -> dict[str, FieldRef]:
        """Fields that the time is read from, by the path of their setting without `.field`."""
        references = {"time": self.field, TIME_OF_DAY: self.of_day}
        return {path: reference for path, reference in references.items() if reference is not None}

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.of_day is not None and (self.field is None or self.unit != "iso8601"):
            raise InvalidSettingsError("of_day: needs the field of the date as field, and unit: iso8601")
        return self


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

    @property
    def values(self) -> Mapping[str, ValueSettings] | None:
        """Settings of named values. None: the settings have the section `value`."""

    @property
    def named_values(self) -> Mapping[str, ValueSettings]:
        """Settings of the values of a tuple by name."""

    @property
    def where(self) -> Sequence[ConditionSettings]:
        """Conditions that a record must meet."""

    @property
    def time(self) -> TimeSettings:
        """Settings of the event time of a record."""

    @property
    def limits(self) -> LimitSettings:
        """Limits of one record."""

    @property
    def required(self) -> Mapping[str, FieldRef]:
        """Fields that `Format.extract` returns, by the path of their group of settings."""

    @property
    def optional(self) -> Mapping[str, FieldRef]:
        """Fields that `Format.lookup` returns, by the path of their group of settings."""
