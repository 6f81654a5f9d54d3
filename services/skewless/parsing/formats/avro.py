"""Format avro: one Avro record per record, with the schema of a registry or of a file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np

from skewless.errors import ConfigurationError, how_to_add
from skewless.parsing.avro.plan import plan_of
from skewless.parsing.avro.scan import ERRORS, scan
from skewless.parsing.converters import Problems
from skewless.parsing.elements import Plan, Scanned, WantedPaths
from skewless.parsing.field_settings import FieldSettings
from skewless.parsing.formats.base import FormatSettings
from skewless.parsing.formats.element_format import ElementFormat, Scan
from skewless.parsing.formats.schema_format import SchemaFormatSettings
from skewless.schema_registry.schema import Schema

_encode = msgspec.json.Encoder(decimal_format="number").encode
NAMED = "__named_schemas"
"""Entry in which fastavro keeps the named types of a parsed schema."""
ROOT = "_skewless_root"
"""Name of the record around a parsed schema. No type of a user has it."""
VALUE = "value"
"""The field of the record in which a parsed schema is."""
MAX_DIGITS = 10**6
"""Digits of a decimal that is exact. One with more cannot be converted."""


class AvroSettings(SchemaFormatSettings):
    """Settings of the format avro."""

    name: Literal["avro"] = "avro"


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema as the format needs it."""

    label: str
    required: Plan
    """Plan of the fields that tuples need."""
    optional: Plan
    """Plan of the fields that conditions need."""
    root: Mapping[str, Any]
    """As that of `ParsedSchema`, without the logical types whose values are numbers or text in JSON."""


class Avro(ElementFormat[AvroSchema]):
    """One Avro record per record, in Confluent's wire format or, with `schema`, in plain binary encoding.

    Each record is read with the schema it was written with. A field is found by its name or, if the schema has no such
    field, by an alias. Dates and UUIDs are text, decimals are exact. Event times are converted from instants of any
    precision. Elsewhere an instant is the number of its schema. A field in a union may be null, which is as if it were
    absent.
    """

    settings: ClassVar[type[FormatSettings]] = AvroSettings
    kind: ClassVar[str] = "Avro"
    schema_type: ClassVar[str] = "AVRO"

    broken: ClassVar[Mapping[int, str]] = ERRORS

    def __init__(self, settings: AvroSettings, fields: FieldSettings) -> None:
        super().__init__(settings, fields)
        _precompile()

    def compile_file(self, path: FilePath) -> AvroSchema:
        """Compile a schema in JSON; see `SchemaFormat.compile_file`."""
        try:
            schema = self.compile_schema(Schema("AVRO", path.read_text(encoding="utf-8")), f"schema {path.name}")
        except OSError as error:
            raise ConfigurationError(f"format.schema: {path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigurationError(f"format.schema: {path}: is not a schema of Avro: {error}") from None
        self.refuse_missing(schema.required, schema.optional, schema.label)
        return schema

    def compile_schema(self, schema: Schema, label: str) -> AvroSchema:
        """Compile a schema; see `SchemaFormat.compile_schema`."""
        parsed = parse(schema)
        try:
            required, optional = (
                plan_of(parsed.type, parsed.named, self.wanted(optional=optional)) for optional in (False, True)
            )
            root = _plain(parsed.root)
        except (KeyError, TypeError, RecursionError) as error:
            # fastavro parses more than Avro has, such as a list as logicalType, and deeper schemas than are read here.
            raise ValueError(f"{type(error).__name__}: {error}") from None
        self.warn_of_missing(required, label, optional=False)
        self.warn_of_missing(optional, label, optional=True)
        return AvroSchema(label, required, optional, root)

    def document(self, schema: AvroSchema, payload: bytes) -> bytes:
        """Return a record as JSON, with decimals as exact numbers; see `SchemaFormat.document`."""
        try:
            # A scan has checked its depth, and that no length is more than the bytes there are.
            return _encode(decode_payload(schema.root, payload))
        except (ArithmeticError, TypeError, EOFError) as error:
            raise ValueError(str(error)) from None

    def scan(self, values: Sequence[bytes | None], invalid: Problems, *, optional: bool) -> Iterator[Scan]:
        """Scan the records of each schema; see `ElementFormat.scan`."""
        wanted, depth = self.wanted(optional=optional), self._limits.max_depth
        for payloads in self.payloads(values, invalid):
            plan = payloads.schema.optional if optional else payloads.schema.required
            found = Scanned.of(scan, plan, wanted, payloads.data, payloads.starts, payloads.ends, depth)
            yield Scan(payloads.rows, found, payloads.schema.label, plan.absent)


def _precompile() -> None:
    """Compile the scan, so that the first batch does not wait for it. Takes seconds unless the code is cached."""
    wanted = WantedPaths.of([("text",)])
    field = {"name": "text", "type": "string"}
    plan = plan_of({"type": "record", "name": "Precompiled", "fields": [field]}, {}, wanted)
    Scanned.of(scan, plan, wanted, np.array([2, 0x61], np.uint8), np.array([0]), np.array([2]), 1).column(0, 0)


def _plain(schema: Any) -> Any:
    """Return a parsed schema that has no logical types but dates, and decimals of any precision."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema.get("logicalType") in {"decimal", "date"}
    plain = {name: part for name, part in schema.items() if name != "logicalType" or kept}
    plain |= {name: _plain(plain[name]) for name in ("type", "items", "values", "fields") if name in plain}
    # fastavro would round to the precision of the schema. A producer may not keep to it.
    plain["precision"] = MAX_DIGITS
    if NAMED in plain:
        plain[NAMED] = {name: _plain(part) for name, part in plain[NAMED].items()}
    return plain


class ParsedSchema(NamedTuple):
    """A schema with complete names."""

    root: Mapping[str, Any]
    """Record with one field, which has the schema. Its encoding is the same as without the record.

    fastavro finds the types that a schema refers to only if the schema is a record.
    """
    named: Mapping[str, Any]
    """Named types by their names."""

    @property
    def type(self) -> Any:
        """The schema itself."""
        return self.root["fields"][0]["type"]


def parse(schema: Schema) -> ParsedSchema:
    """Parse a schema. Raises ValueError if it is not valid."""
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ConfigurationError(f"format: fastavro cannot be imported ({error}): {how_to_add('registry')}") from None
    named: dict[str, Any] = {}
    # An invalid default is no obstacle: a record is read with the schema that it was written with.
    lenient = partial(parse_schema, named_schemas=named, _ignore_default_error=True)
    try:
        for _, reference in schema.each_reference():
            lenient(json.loads(reference.text))
        fields = [{"name": VALUE, "type": json.loads(schema.text)}]
        root = lenient({"type": "record", "name": ROOT, "fields": fields})
    except (SchemaParseException, UnknownType, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return ParsedSchema(root, named)


def decode_payload(root: Mapping[str, Any], payload: bytes) -> Any:
    """Return the value in a payload. `root`: that of its parsed schema. A broken payload raises errors of fastavro."""
    from fastavro import schemaless_reader

    return schemaless_reader(io.BytesIO(payload), root, None)[VALUE]
