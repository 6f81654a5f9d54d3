"""Records in the wire format of a schema registry: recognised by their schema ids, and decoded with their schemas."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from skewless.parsing.avro.plan import plan_of
from skewless.parsing.avro.scan import ERRORS, scan
from skewless.parsing.elements import Scanned, WantedPaths
from skewless.parsing.field_settings import LimitSettings
from skewless.parsing.formats.avro import decode_payload, parse
from skewless.parsing.formats.base import DetectedFormat
from skewless.parsing.formats.schema_format import with_prefixes
from skewless.parsing.protobuf.compile_schema import compile_text, message_at
from skewless.parsing.protobuf.plan import TIMESTAMP_NAME, WRAPPERS
from skewless.parsing.source_records import SourceRecords, with_values
from skewless.schema_registry.cache import UNKNOWN, SchemaCache, Unusable
from skewless.schema_registry.schema import VALUE_HEADER, Schema, SchemaId, split_message, split_prefix
from skewless.schema_registry.settings import RegistrySettings

MIN_SHARE: Final = 0.9
"""Share of the values that have to be in the wire format."""
MAX_SCHEMAS: Final = 20
"""Schemas that are fetched to detect the format: those of most records."""
SHOWN_IDS: Final = 3
ADVICE: Final = (
    "add --registry URL, the address of the schema registry; docs/how-to/schema-registry.md shows the settings of a "
    "pipeline. If the records have keys, these can be counted without it (--key 'record key')"
)
UNKNOWN_ADVICE: Final = "check that --registry is the registry of the producers"
NAMES: Final = {"avro": "Avro", "protobuf": "Protobuf", "json_schema": "JSON Schema"}
"""Names in reports, by the name of the format."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_BROKEN = (ValueError, TypeError, LookupError, EOFError, ArithmeticError, StopIteration, struct.error, RecursionError)
"""Errors of a broken payload, or of a schema that cannot be read."""

Decode = Callable[[bytes], Any]
"""Returns the document of a value, with the types of JSON. Raises one of `_BROKEN` for a broken one."""


class Decoder(NamedTuple):
    """A schema that decodes records of a format."""

    format: str
    decode: Decode


class RegisteredSample(NamedTuple):
    """Sampled records in the wire format, with their documents as JSON instead of their payloads."""

    format: str
    """Name of the format of most of them; empty if none can be read."""
    description: str
    advice: str | None
    """How to read the records, if the registry does not know their schemas."""
    records: list[SourceRecords]
    """A record that cannot be read has its own value."""


def ids_of(values: Iterable[bytes | None]) -> list[SchemaId]:
    """Return the schema ids of values, most frequent first. Empty unless nearly all values are in the wire format."""
    found = [id_of(value) for value in values if value]
    ids = Counter(schema_id for schema_id in found if schema_id is not None)
    return [] if ids.total() < MIN_SHARE * len(found) else [schema_id for schema_id, _ in ids.most_common()]


def id_of(value: bytes) -> SchemaId | None:
    """Return the schema id of a value in the wire format; None for another one. No schema has the id 0."""
    found = split_prefix(value)
    return found[0] if found is not None and found[0] != 0 and len(value) > found[1] else None


def with_ids(records: SourceRecords) -> Sequence[bytes | None]:
    """Return values that begin with their schema ids, also with those of headers."""
    return with_prefixes(records.values, records, VALUE_HEADER)


def without_registry(ids: Sequence[SchemaId]) -> DetectedFormat:
    """Return what is known without a registry: the ids, not the type of the schemas."""
    return DetectedFormat(f"binary with {_named(ids)} of a registry", None, advice=ADVICE)


def read_with(
    registry: RegistrySettings, batches: Sequence[SourceRecords], ids: Sequence[SchemaId]
) -> RegisteredSample:
    """Decode records with the schemas of a registry. `ids` are those of the records, most frequent first.

    Raises UnreachableError if the registry does not answer, and RegistryError if it refuses this client.
    """
    cache: SchemaCache[Decoder] = SchemaCache(registry, _decoder)
    found = {schema_id: cache.get(schema_id) for schema_id in ids[:MAX_SCHEMAS]}
    decoders = {schema_id: decoder for schema_id, decoder in found.items() if not isinstance(decoder, Unusable)}
    formats: Counter[str] = Counter()
    records = []
    for batch in batches:
        values = [_document(value, decoders, formats) for value in with_ids(batch)]
        merged = [own if value is None else value for own, value in zip(batch.values, values, strict=True)]
        records.append(with_values(batch, merged))
    ((name, _),) = formats.most_common(1) or [("", 0)]
    advice = UNKNOWN_ADVICE if all(schema == UNKNOWN for schema in found.values()) else None
    return RegisteredSample(name, _described(name, ids, found), advice, records)


def of_registry(detected: DetectedFormat, sample: RegisteredSample) -> DetectedFormat:
    """Return the format of records whose documents were detected."""
    if not sample.format or detected.settings != {"name": "json"}:
        return DetectedFormat(sample.description, None, advice=sample.advice)
    description = detected.description.removesuffix("JSON") + sample.description
    return replace(detected, description=description, settings={"name": sample.format}, kinds={})


def _described(name: str, ids: Sequence[SchemaId], found: Mapping[SchemaId, Decoder | Unusable]) -> str:
    if name:
        return f"{NAMES[name]}, {_named(ids)}"
    reasons = [schema.reason if isinstance(schema, Unusable) else "without fields" for schema in found.values()]
    return f"binary with {_named(ids)}, {reasons[0]}"


def _named(ids: Sequence[SchemaId]) -> str:
    others = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return f"schema id{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids[:SHOWN_IDS]))}{others}"


def _document(value: bytes | None, decoders: Mapping[SchemaId, Decoder], formats: Counter[str]) -> bytes | None:
    """Return the document of a value as JSON, and count its format. None if it cannot be read."""
    found = None if value is None else split_prefix(value)
    if value is None or found is None or found[0] not in decoders:
        return None
    name, decode = decoders[found[0]]
    try:
        document = decode(value)
        text = json.dumps(document).encode()
    except _BROKEN:
        return None
    if isinstance(document, dict):
        formats[name] += 1
    return text


def _decoder(_schema_id: SchemaId, schema: Schema) -> Decoder | Unusable:
    try:
        match schema.type:
            case "AVRO":
                return Decoder("avro", _avro(schema))
            case "PROTOBUF":
                return Decoder("protobuf", _protobuf(schema))
            case "JSON":
                return Decoder("json_schema", lambda value: json.loads(_payload(value)))
    except _BROKEN:  # also RecursionError of a schema that is deeper than is read
        return Unusable(f"not a valid schema of type {schema.type}")
    return Unusable(f"of type {schema.type}, which no format reads")


def _payload(value: bytes) -> bytes:
    """Return the content of a value after its schema id."""
    found = split_prefix(value)
    return value[0 if found is None else found[1] :]


def _avro(schema: Schema) -> Decode:
    parsed, wanted = parse(schema), WantedPaths.of(())
    plan = plan_of(parsed.type, parsed.named, wanted)

    def decode(value: bytes) -> Any:
        payload = _payload(value)
        # fastavro has no limits: a deep record would end the process, and a long list of nulls would take forever.
        data, ends = np.frombuffer(payload or b"\0", np.uint8), np.array([len(payload)])
        if error := Scanned.of(scan, plan, wanted, data, np.array([0]), ends, LimitSettings().max_depth).errors[0]:
            raise ValueError(ERRORS[int(error)])
        return _plain(decode_payload(parsed.root, payload))

    return decode


def _plain(value: Any) -> Any:
    """Return a value of Avro with the types of JSON, times in ms. Bytes and numbers that are not finite are null."""
    match value:
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case list():
            return [_plain(entry) for entry in value]
        case datetime():
            instant = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (instant - _EPOCH) // _MILLISECOND
        case date() | Decimal() | UUID():
            return str(value)
        case str() | int() | float() if not isinstance(value, float) or math.isfinite(value):
            return value
    return None


def _protobuf(schema: Schema) -> Decode:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    file = compile_text(schema)

    def decode(value: bytes) -> Any:
        indexes, size = split_message(value)
        descriptor = message_at(file, indexes)
        if descriptor is None:
            raise ValueError("no such message in the schema")
        try:
            return _message(GetMessageClass(descriptor).FromString(value[size:]))
        except DecodeError as error:
            raise ValueError(str(error)) from None

    return decode


def _message(message: Any) -> dict[str, Any]:
    """Return a message with the types of JSON, times in ms. Absent fields are left out, and bytes are null."""
    return {
        field.name: _field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: Any, value: Any) -> Any:
    if not field.is_repeated:
        return _element(field, value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        element = field.message_type.fields_by_name["value"]
        return {str(name): _element(element, value[name]) for name in value}
    return [_element(field, entry) for entry in value]


def _element(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP_NAME:
            return value.ToMilliseconds()
        return _plain(value.value) if field.message_type.full_name in WRAPPERS else _message(value)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return value if found is None else found.name
    return _plain(value)
