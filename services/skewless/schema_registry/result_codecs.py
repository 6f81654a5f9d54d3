"""Encodes results in the formats of a schema registry, and decodes them to the JSON of the format `json`.

A value begins with the id of its schema, as Confluent's serializers write it.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from skewless.errors import BadRecordError, ConfigurationError, how_to_add
from skewless.schema_registry.result_schemas import Column, ResultSchema, SchemaFormat, protobuf_type
from skewless.schema_registry.schema import prefix, split_prefix
from skewless.wire.aggregates import Encode, ToJson, encode_json

_FIRST_MESSAGE = b"\0"
"""Index of the first message of a schema in Protobuf, which follows the id."""
_NUMBERED = re.compile(r"\b(\w+) = (\d+);")
"""A field of a message, in the form in which schemas are registered."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def encoder(schema_format: SchemaFormat, schema: ResultSchema, schema_id: int) -> Encode:
    """Return a function that encodes records of this schema."""
    start = prefix(schema_id)
    match schema_format:
        case "json_schema":
            return _json_encoder(schema, start)
        case "avro":
            return _avro_encoder(schema, start)
        case "protobuf":
            return _protobuf_encoder(schema, start + _FIRST_MESSAGE)


def decoder(schema_format: SchemaFormat, schema: ResultSchema, text_of: Callable[[int], str]) -> ToJson:
    """Return a function from values to JSON. `text_of` returns a schema by its id."""
    match schema_format:
        case "json_schema":
            decode = _json_decoder(schema)
        case "avro":
            decode = _avro_decoder(schema, text_of)
        case "protobuf":
            decode = _protobuf_decoder(schema, text_of)
    # A pipeline may have written JSON before its format was set.
    return lambda value: value if value.startswith(b"{") else decode(value)


def _split(value: bytes) -> tuple[int, bytes]:
    match split_prefix(value):
        case int(schema_id), size:
            return schema_id, value[size:]
    raise BadRecordError("not a result with the id of a schema")


def _fields_of(record: msgspec.Struct, documents: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a record. Documents are texts."""
    fields = msgspec.structs.asdict(record)
    for name in documents:
        fields[name] = bytes(fields[name]).decode()
    return fields


def _json_of(fields: dict[str, Any], documents: Iterable[str]) -> bytes:
    """Return the JSON of the record that has these fields. Texts of documents become documents."""
    for name in documents:
        fields[name] = msgspec.Raw(fields[name].encode())
    return encode_json(fields)


# JSON Schema


def _json_encoder(schema: ResultSchema, start: bytes) -> Encode:
    documents = schema.documents
    if not documents:
        return lambda record: start + encode_json(record)
    return lambda record: start + encode_json(_fields_of(record, documents))


def _json_decoder(schema: ResultSchema) -> ToJson:
    documents = schema.documents
    if not documents:
        return lambda value: _split(value)[1]

    def decode(value: bytes) -> bytes:
        schema_id, content = _split(value)
        try:
            return _json_of(msgspec.json.decode(content), documents)
        except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
            raise BadRecordError(f"not JSON of schema {schema_id}") from None

    return decode


# Avro


def _avro_encoder(schema: ResultSchema, start: bytes) -> Encode:
    fastavro = _fastavro()
    parsed = fastavro.parse_schema(schema.avro())
    documents = schema.documents
    decimals = [column for column in schema.columns if column.is_decimal]

    def encode(record: msgspec.Struct) -> bytes:
        fields = _fields_of(record, documents)
        for column in decimals:
            fields[column.name] = _in_list(column, fields[column.name], _decimal)
        buffer = io.BytesIO()
        buffer.write(start)
        fastavro.schemaless_writer(buffer, parsed, fields)
        return buffer.getvalue()

    return encode


def _avro_decoder(schema: ResultSchema, text_of: Callable[[int], str]) -> ToJson:
    fastavro = _fastavro()
    documents = schema.documents
    schemas: dict[int, Any] = {}
    broken = (
        ValueError, TypeError, LookupError, AttributeError, EOFError, ArithmeticError, StopIteration, RecursionError,
        struct.error, fastavro.schema.SchemaParseException,
    )  # fmt: skip

    def decode(value: bytes) -> bytes:
        schema_id, content = _split(value)
        try:
            if schema_id not in schemas:
                schemas[schema_id] = fastavro.parse_schema(msgspec.json.decode(text_of(schema_id)))
            fields = fastavro.schemaless_reader(io.BytesIO(content), schemas[schema_id], None)
            return _json_of({name: _as_number(found) for name, found in fields.items()}, documents)
        except broken as error:
            raise BadRecordError(f"not Avro of schema {schema_id}: {type(error).__name__}") from None

    return decode


def _as_number(found: Any) -> Any:
    """Return a time in milliseconds since the epoch, and anything else unchanged."""
    return (found - _EPOCH) // _MILLISECOND if isinstance(found, datetime) else found


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise _missing(error) from None
    return fastavro


# Protobuf


def _protobuf_encoder(schema: ResultSchema, start: bytes) -> Encode:
    message = _message_type(schema)
    documents = schema.documents
    decimals = [column for column in schema.columns if column.is_decimal]

    def encode(record: msgspec.Struct) -> bytes:
        fields = _fields_of(record, documents)
        for column in decimals:
            fields[column.name] = _in_list(column, fields[column.name], lambda number: f"{_decimal(number):f}")
        content: bytes = message(
            **{name: found for name, found in fields.items() if found is not None}
        ).SerializeToString()
        return start + content

    return encode


def _protobuf_decoder(schema: ResultSchema, text_of: Callable[[int], str]) -> ToJson:
    from google.protobuf.message import DecodeError

    documents = schema.documents
    messages: dict[int, Any] = {}

    def decode(value: bytes) -> bytes:
        schema_id, content = _split(value)
        if content[:1] != _FIRST_MESSAGE:
            raise BadRecordError(f"not the first message of schema {schema_id}")
        if schema_id not in messages:
            text = text_of(schema_id)
            try:
                messages[schema_id] = _message_type(schema, _numbers_of(text))
            except TypeError:  # numbers that are used twice, as in nested messages
                raise BadRecordError(f"schema {schema_id} is not that of a result") from None
        try:
            found = messages[schema_id].FromString(content[1:])
            return _json_of({column.name: _field(column, found) for column in schema.columns}, documents)
        except (DecodeError, AttributeError, ArithmeticError):
            raise BadRecordError(f"not Protobuf of schema {schema_id}") from None

    return decode


def _numbers_of(text: str) -> dict[str, int]:
    """Return the numbers of the fields of a schema by name. They follow the order of the aggregates at that time."""
    return {name: int(number) for name, number in _NUMBERED.findall(text)}


def _field(column: Column, message: Any) -> Any:
    if column.name not in message.DESCRIPTOR.fields_by_name:
        return None
    if column.is_list:
        # A list of Protobuf is never null.
        found: Any = list(getattr(message, column.name)) or (None if column.can_be_null else [])
    else:
        is_absent = column.is_result and not message.HasField(column.name)
        found = None if is_absent else getattr(message, column.name)
    return _in_list(column, found, Decimal) if column.is_decimal else found


def _message_type(schema: ResultSchema, numbers: Mapping[str, int] | None = None) -> Any:
    """Return the class of a message, by default with the numbers of this schema. Columns without one are left out."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise _missing(error) from None

    number = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{schema.full_name}.proto", package=schema.namespace, syntax="proto3"
    )
    described = file.message_type.add(name=schema.record)
    names = {column.name for column in schema.columns}
    for own_number, column in schema.numbered():
        position = own_number if numbers is None else numbers.get(column.name)
        if position is None:
            continue
        field = described.field.add(name=column.name, number=position)
        field.type = number.Type.Value(f"TYPE_{protobuf_type(column).upper()}")
        field.label = number.LABEL_REPEATED if column.is_list else number.LABEL_OPTIONAL
        if column.is_result and not column.is_list:
            # What the compiler generates for `optional`.
            field.proto3_optional = True
            field.oneof_index = len(described.oneof_decl)
            described.oneof_decl.add(name=_oneof_name(column.name, names))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.full_name))


def _oneof_name(field: str, names: set[str]) -> str:
    """Return the name of what the compiler generates for an optional field, and add it to the names of the message."""
    name = f"_{field.removeprefix('_')}"
    while name in names:
        name = f"X{name}"
    names.add(name)
    return name


# Values


def _in_list(column: Column, found: Any, convert: Callable[[Any], Any]) -> Any:
    if found is None:
        return None
    return [convert(item) for item in found] if column.is_list else convert(found)


def _decimal(number: Any) -> Decimal:
    """Return a number with all its digits. The shortest form of a double has the digits of the result."""
    return number if isinstance(number, Decimal) else Decimal(repr(number))


def _missing(error: ImportError) -> ConfigurationError:
    settings = "aggregator.format or join.format"
    return ConfigurationError(f"{settings}: a package is missing ({error}): {how_to_add('registry')}")
