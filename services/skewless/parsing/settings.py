"""Settings of parsing: the format of records, and their key, value and time fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from skewless.algorithms.value_type import VALUE, ValueType
from skewless.errors import ConfigurationError
from skewless.parsing.envelopes import EnvelopeChoice
from skewless.parsing.field_settings import (
    LARGEST_CONSTANT,
    ConditionSettings,
    FieldRef,
    KeySettings,
    LimitSettings,
    TimeSettings,
    ValueSettings,
    value_fields,
    value_path,
)
from skewless.parsing.formats import BUILT_IN, AddedFormatSettings, find_format
from skewless.parsing.formats.base import FormatSettings
from skewless.parsing.formats.json import JsonSettings
from skewless.parsing.json_path import LIST, ROOT
from skewless.schema_registry.settings import RegistrySettings
from skewless.settings_base import InvalidSettingsError, SettingsModel
from skewless.wire.tuples import RESERVED_VALUES

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


ValueName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$", max_length=100)]
if TYPE_CHECKING:
    AnyFormatSettings = FormatSettings
else:
    _TAGGED = [Annotated[format_.settings, Tag(name)] for name, format_ in BUILT_IN.items()]
    AnyFormatSettings = reduce(or_, [*_TAGGED, Annotated[AddedFormatSettings, Tag(ADDED)]])
FormatChoice = Annotated[
    AnyFormatSettings,
    Discriminator(
        _tag_of,
        custom_error_type="format",
        custom_error_message="should be the name of a format, or a mapping with its name and settings",
    ),
    BeforeValidator(_as_mapping, json_schema_input_type=str | AnyFormatSettings),
]


PythonReference = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]


class ParsingSettings(SettingsModel):
    """Settings of the conversion of source records to tuples."""

    format: FormatChoice = JsonSettings()
    envelope: EnvelopeChoice | None = None
    python: PythonReference | None = Field(
        None,
        description="Function of your own, `package.module:function`: it takes a list of decoded records and returns a "
        "dict for each, whose fields the other settings then name, or None for a record without tuples "
        "(`docs/how-to/python.md`).",
    )
    key: KeySettings = KeySettings()
    value: ValueSettings = ValueSettings()
    values: dict[ValueName, ValueSettings] | None = Field(
        None,
        min_length=1,
        max_length=32,
        description="Named values, each with the settings of `splitter.value`, which they replace: {price: {field: "
        "unit_price, decimals: 2}}. Names are identifiers in lower case.",
    )
    time: TimeSettings = TimeSettings()
    where: Annotated[tuple[ConditionSettings, ...], Field(max_length=100)] = Field(
        (), description="Conditions that a record must meet. A record that does not meet all of them has no tuples."
    )
    tombstones: Literal["dead_letter", "skip"] = Field(
        "dead_letter",
        description="Records without a value. skip: they have no tuples and count as filtered, as they always do with "
        "the envelope debezium. dead_letter: they are invalid if a field of the value is read.",
    )
    limits: LimitSettings = LimitSettings()
    _registry: RegistrySettings | None = PrivateAttr(None)

    @property
    def value_types(self) -> tuple[ValueType, ...]:
        """Values of the tuples."""
        return tuple(
            ValueType(name, value.kind, value.decimals, optional=value.missing == "skip")
            for name, value in self.named_values.items()
        )

    @property
    def named_values(self) -> dict[str, ValueSettings]:
        """Settings of the values of a tuple by name."""
        return {VALUE: self.value} if self.values is None else self.values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._conflicts(), *self.format_problems(), *self._record_key_problems()]
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def bind(self, registry: RegistrySettings | None) -> list[str]:
        """Give the registry to the formats, and return a line for each one whose schemas are missing."""
        self._registry = registry
        problems = []
        problem = self.format.bind(registry)
        if problem is not None and self.reads_value:
            problems.append(f"format: {problem}")
        if self.key.in_key_format and registry is None and find_format(self.key.encoding).has_schemas:
            problems.append(
                f"key.encoding: schemas are missing for record keys in {self.key.encoding}: set registry.url "
                "to the address of the schema registry"
            )
        return problems

    @property
    def of_record_key(self) -> ParsingSettings | None:
        """Settings that parse a record key as if it were a value; None if it has no format."""
        if not self.key.in_key_format:
            return None
        chosen = find_format(self.key.encoding).settings.model_validate({"name": self.key.encoding})
        chosen.bind(self._registry)
        key = KeySettings(field=ROOT if self.key.field is None else self.key.field)
        return ParsingSettings.model_construct(format=chosen, key=key, values={}, limits=self.limits)

    def _conflicts(self) -> list[str]:
        problems = []
        if self.python is not None and self.envelope is not None:
            problems.append("python: not with an envelope, remove it: the function gets the whole record, and opens it")
        if self.values is not None and "value" in self.model_fields_set:
            problems.append("value: move it into values, as {value: ...}, because there can be only one of the two")
        problems += [
            f"values.{name}: this name is used by other fields of the records, choose another one"
            for name in self.named_values
            if name in RESERVED_VALUES
        ]
        for name, value in self.named_values.items():
            problems += [f"{value_path(self, name)}.{problem}" for problem in _value_conflicts(value)]
        value_names = {name.lower() for name in self.named_values}
        problems += [
            f"key.fields.{i}.name: {part} is a value; set another name"
            for i, part in enumerate(self.key.parts)
            if part.lower() in value_names
        ]
        if self.time.field is not None and self.time.header is not None:
            problems.append("time.header: set only one of field and header")
        if self.time.field is None and self.time.header is None and "unit" in self.time.model_fields_set:
            problems.append("time.unit: set time.field too, without it the time is the timestamp of the Kafka record")
        if self.time.earliest > self.time.latest:
            problems.append("time.earliest: is after time.latest")
        return problems

    @property
    def reads_value(self) -> bool:
        """Whether a field of the record's value is read. Otherwise its format does not matter."""
        return self.key.in_value or bool(self.required or self.optional or self.python)

    @property
    def required(self) -> dict[str, FieldRef]:
        """Fields of tuples, by the path of their group of settings. Only a value with `missing: skip` may be absent."""
        parts = {f"key.fields.{i}": part.field for i, part in enumerate(self.key.fields)}
        values = {path: reference for path, (_, reference) in value_fields(self).items()}
        key = self.key.field if self.key.in_value else None
        references = {"key": key, **parts, **values, **self.time.fields}
        return self._located(references)

    @property
    def optional(self) -> dict[str, FieldRef]:
        """Fields that conditions and the envelope need, by the path of their group of settings."""
        rules = {} if self.envelope is None else self.envelope.rule_fields
        if not self.where and not rules:
            return {}
        references = {f"where.{i}": condition.field for i, condition in enumerate(self.where)}
        # The event time of a record that does not meet the conditions still advances the watermark.
        return {**rules, **self._located(references | self.time.fields)}

    def locate(self, reference: FieldRef) -> FieldRef:
        """Return where the format finds a field that a setting names."""
        return reference if self.envelope is None else self.envelope.locate(reference)

    def _located(self, references: Mapping[str, FieldRef | None]) -> dict[str, FieldRef]:
        return {path: self.locate(reference) for path, reference in references.items() if reference is not None}

    @property
    def reads_record_key(self) -> bool:
        """Whether the key of the Kafka record is read."""
        return "record_key" in (self.key.from_, *(part.from_ for part in self.key.fields))

    @property
    def headers(self) -> tuple[str, ...]:
        """Names of the headers that are read, each once."""
        parts = [part.header for part in self.key.fields]
        conditions = [condition.header for condition in self.where]
        values = [value.header for value in self.named_values.values()]
        names = (self.key.header, *parts, *values, self.time.header, *conditions)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def reads_headers(self) -> bool:
        """Whether headers are read: those of `headers`, of an envelope, and in some formats that of the schema id."""
        in_envelope = self.envelope is not None and self.envelope.in_headers
        names = [self.format.name] if self.reads_value else []
        if self.key.in_key_format:
            names.append(self.key.encoding)
        return bool(self.headers) or in_envelope or any(find_format(name).has_schemas for name in names)

    @property
    def field_format(self) -> FormatSettings:
        """Format of the documents that have the fields: what a function of the user returns is JSON."""
        return self.format.resolved() if self.python is None else JsonSettings()

    def format_problems(self) -> list[str]:
        """Return what is wrong with the format and the fields."""
        if not self.reads_value:
            return []
        try:
            found = find_format(self.format.name)
            if self.envelope is not None and self.envelope.needs_paths and not found.has_paths:
                return [f"envelope: {self.envelope.name} needs a format with nested fields, not {self.format.name}"]
            if self.python is None:
                return list(found.validate(self.format.resolved(), self))
            if found.decoder(self.format.resolved(), self.limits) is None:
                return [f"python: not with the format {self.format.name}, the function gets json, csv, tsv or text"]
            of_format = (line for line in found.validate(self.format.resolved(), self) if line.startswith("format."))
            return [*of_format, *find_format(self.field_format.name).validate(self.field_format, self)]
        except ConfigurationError as error:
            return [f"format: {error}"]

    def _record_key_problems(self) -> Iterator[str]:
        """Yield what is wrong with the field of a record key."""
        of_key, field = self.of_record_key, self.key.field
        if of_key is None:
            return
        if field is None and self.key.encoding == "protobuf":
            yield "key.field: missing, set the path of the key in the record key, which is a message"
        elif isinstance(field, str) and LIST in field:
            yield "key.field: must not contain a list, because a record has one key"
        elif field is not None:
            yield from find_format(of_key.format.name).validate(of_key.format, of_key)


def _value_conflicts(value: ValueSettings) -> Iterator[str]:
    """Yield what is wrong with the settings of a value."""
    if value.field is not None and value.header is not None:
        yield "header: set only one of field and header"
    if "constant" in value.model_fields_set:
        yield from (
            f"constant: only for tuples without value.{name}, remove one of the two"
            for name in ("field", "header")
            if getattr(value, name) is not None
        )
    if abs(value.constant) * 10**value.decimals > LARGEST_CONSTANT:
        yield f"constant: with {value.decimals} decimals it is larger than 2**53"
    if value.field is None and value.times is not None:
        yield "times: needs a field, set field too"
    if value.field is None and value.header is None:
        needing = {"kind": value.kind == "text", "missing": value.missing == "skip"}
        yield from (f"{name}: needs a field or header, set one too" for name, is_set in needing.items() if is_set)
    if value.kind == "text":
        yield from (
            f"{name}: only for numbers, remove it or kind: text"
            for name in ("times", "decimals")
            if name in value.model_fields_set
        )
