"""Generates records in the formats with schemas. Fields that the settings do not name have defaults, or are empty."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, UnknownSchemaError
from skewless.kafka.consumer.offsets import OffsetReader, newest_offsets
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.parsing.formats import find_format
from skewless.parsing.formats.avro import VALUE, parse
from skewless.parsing.formats.protobuf import ProtobufSettings
from skewless.parsing.formats.schema_format import SchemaFormat, SchemaFormatSettings
from skewless.parsing.json_path import document_of
from skewless.parsing.protobuf.compile_schema import compile_text, message_at, pool_of
from skewless.parsing.protobuf.plan import TIMESTAMP_NAME, WRAPPERS
from skewless.parsing.source_records import last_header
from skewless.schema_registry.client import RegistryClient
from skewless.schema_registry.schema import FIRST, VALUE_HEADER, Schema, SchemaId, prefix, split_message, split_prefix
from skewless.smoke_test.sample_records import Fields, Instant, Sample, plain, written

NEWEST_RECORDS = 10
"""Number of newest records of each partition of which one names the schema. Not only one, because of tombstones."""
PER_MS = {"millis": 1, "micros": 1000, "nanos": 1_000_000}
DAY_MS = 86_400_000
EMPTY: Mapping[str, Any] = {"boolean": False, "float": 0.0, "double": 0.0, "bytes": b""}
NO_UUID = "00000000-0000-0000-0000-000000000000"


class _Source(NamedTuple):
    """The schema of generated records, and how a record names it."""

    schema: Schema
    prefix: bytes
    """Begins each record: the id, and in Protobuf the indexes of the message."""
    indexes: Sequence[int]
    """Of the message in Protobuf."""
    label: str
    """Names the schema in messages."""


def sample_of(settings: PipelineSettings, topic: str) -> Sample:
    """Return the function that writes a generated record of a source topic.

    Records have the schema of the newest record in the topic or, if it is empty, the newest one of its subject. Raises
    ConfigurationError if there is none.
    """
    chosen = settings.splitter.format.resolved()
    if not isinstance(chosen, SchemaFormatSettings) or not settings.splitter.reads_value:
        return plain(settings.splitter)
    if chosen.schema_ is not None:
        return _of_file(chosen, Path(chosen.schema_))
    client = RegistryClient(chosen.registry)
    source = _source(settings, client, topic)
    expected = find_format(chosen.name)
    if issubclass(expected, SchemaFormat) and source.schema.type != expected.schema_type:
        raise _unwritable(f"{source.label} of topic {topic} is of type {source.schema.type}")
    match source.schema.type:
        case "AVRO":
            return lambda _key, fields: source.prefix + _avro(source.schema, source.label, fields)
        case "PROTOBUF":
            descriptor = message_at(compile_text(source.schema), source.indexes)
            return lambda _key, fields: source.prefix + _protobuf(descriptor, source.label, fields)
    return lambda _key, fields: source.prefix + json.dumps(document_of(written(fields))).encode()


def _source(settings: PipelineSettings, client: RegistryClient, topic: str) -> _Source:
    newest = _newest_value(settings, topic)
    head = None if newest is None else split_prefix(newest)
    subject = f"{topic}-value"
    try:
        if newest is None or head is None:
            read = partial(client.request, f"read the schema of {subject}", _latest_of(subject))
            schema_id: SchemaId = client.wait(read)
        else:
            schema_id = head[0]
        schema = client.wait(partial(client.schema, schema_id))
    except UnknownSchemaError:
        missing = f"subject {subject}, and the topic has no records" if head is None else f"schema {head[0]}"
        raise _unwritable(f"the registry has no {missing}; register the schema of the topic first") from None
    start = prefix(schema_id)
    indexes: Sequence[int] = FIRST
    if schema.type == "PROTOBUF":
        # A record names its message in the schema, too. A single zero is the first one.
        value = start + b"\0" if newest is None or head is None else newest
        try:
            indexes, size = split_message(value)
        except ValueError:
            raise _unwritable(f"the newest record of topic {topic} names no message of schema {schema_id}") from None
        start = value[:size]
    return _Source(schema, start, indexes, f"schema {schema_id}")


def _latest_of(subject: str) -> Callable[[Any], SchemaId]:
    return lambda client: int(client.get_latest_version(subject).schema_id)


def _newest_value(settings: PipelineSettings, topic: str) -> bytes | None:
    """Return the value of the newest record that has one, with its schema id; None if there is none."""
    found: list[tuple[int, bytes]] = []
    ranges = newest_offsets(OffsetReader(settings.kafka).ranges(topic), NEWEST_RECORDS)
    for _, messages in read_ranges(settings.kafka, topic, ranges):
        for message in messages:
            if value := message.value():
                header = last_header(message.headers() or (), VALUE_HEADER)
                found.append((message.timestamp()[1], value if header is None else header + value))
    return max(found, key=lambda entry: entry[0], default=(0, None))[1]


def _of_file(chosen: SchemaFormatSettings, path: Path) -> Sample:
    label = f"schema {path.name}"
    if isinstance(chosen, ProtobufSettings):
        from google.protobuf import descriptor_pb2

        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
        descriptor = pool_of(files).FindMessageTypeByName(chosen.message)
        return lambda _key, fields: _protobuf(descriptor, label, fields)
    schema = Schema("AVRO", path.read_text(encoding="utf-8"))
    return lambda _key, fields: _avro(schema, label, fields)


def _unwritable(reason: str) -> ConfigurationError:
    return ConfigurationError(f"cannot generate records: {reason}")


# Avro


def _avro(schema: Schema, label: str, fields: Fields) -> bytes:
    from fastavro import schemaless_writer

    output = io.BytesIO()
    try:
        parsed = parse(schema)
        value = _avro_value(parsed.type, parsed.named, document_of(fields), label, "")
        schemaless_writer(output, parsed.root, {VALUE: value})
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # such as an invalid default
        raise _unwritable(f"{label} has a part that is not valid: {type(error).__name__}: {error}") from None
    return output.getvalue()


def _avro_value(schema: Any, named: Mapping[str, Any], given: Any, label: str, path: str) -> Any:
    """Return a value of a type. `given`: the part of the document, None if it has none. `path`: where the value is."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        is_null = given is None and "null" in schema
        schema = "null" if is_null else next(branch for branch in schema if branch != "null")
        return _avro_value(schema, named, given, label, path)
    if not isinstance(schema, dict):
        schema = {"type": schema}
    value_of = partial(_avro_value, named=named, label=label)
    match schema["type"]:
        case "record":
            result: Any = _avro_record(schema, named, given or {}, label, path)
        case "array":
            result = [value_of(schema["items"], given=entry, path=f"{path}[]") for entry in given or ()]
        case "map":
            entries = (given or {}).items()
            result = {name: value_of(schema["values"], given=entry, path=f"{path}.{name}") for name, entry in entries}
        case "enum" if given is None or given in schema["symbols"]:
            result = schema["symbols"][0] if given is None else given
        case str():
            result = _avro_scalar(schema, given, f"field {path} has the type {schema['type']} in {label}")
        case inner:
            result = value_of(inner, given=given, path=path)
    return result


def _avro_record(schema: Any, named: Mapping[str, Any], given: Any, label: str, path: str) -> dict[str, Any]:
    remaining = dict(given)
    record = {}
    for field in schema["fields"]:
        names = [name for name in (field["name"], *field.get("aliases", ())) if name in remaining]
        if names or "default" not in field:
            entry = remaining.pop(names[0]) if names else None
            inner = f"{path}.{field['name']}" if path else field["name"]
            record[field["name"]] = _avro_value(field["type"], named, entry, label, inner)
    _require_none_left(remaining, path, label)
    return record


def _avro_scalar(schema: Mapping[str, Any], given: Any, where: str) -> Any:
    kind, logical = schema["type"], schema.get("logicalType", "")
    if isinstance(given, Instant):
        if "timestamp" in logical:
            return given.time_ms * PER_MS[logical.rpartition("-")[2]]
        if logical == "date":
            return given.time_ms // DAY_MS
        given = given.written
    if logical == "decimal":
        return Decimal(given or 0)
    if given is None:
        empty = {"fixed": bytes(schema.get("size", 0)), "null": None, "string": NO_UUID if logical == "uuid" else ""}
        return {**EMPTY, **empty}.get(kind, 0)
    if kind == "string" and logical != "uuid":
        return str(given)
    if kind not in {"int", "long", "float", "double"} or isinstance(given, str):
        raise _unwritable(f"{where}, and {given!r} is not of this type")
    return given


def _require_none_left(remaining: Mapping[str, Any], path: str, label: str) -> None:
    for name in remaining:
        raise _unwritable(f"field {f'{path}.{name}' if path else name} does not exist in {label}")


# Protobuf


def _protobuf(descriptor: Any, label: str, fields: Fields) -> bytes:
    from google.protobuf.message import EncodeError
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(descriptor)()
    _fill(message, document_of(fields) or {}, label, "")
    try:
        return bytes(message.SerializeToString())
    except EncodeError as error:
        raise _unwritable(f"{label} has required fields that are not in the settings ({error})") from None


def _fill(message: Any, given: Mapping[str, Any], label: str, path: str) -> None:
    """Set the fields of a message."""
    by_name = {name: field for field in message.DESCRIPTOR.fields for name in (field.json_name, field.name)}
    for name, entry in given.items():
        inner = f"{path}.{name}" if path else name
        if name not in by_name:
            _require_none_left({name: entry}, path, label)
        _set(message, by_name[name], entry, label, inner)


def _set(message: Any, field: Any, entry: Any, label: str, path: str) -> None:
    target = getattr(message, field.name)
    try:
        if field.message_type is None:
            _set_scalars(message, field, entry)
        elif field.message_type.GetOptions().map_entry:
            _fill_map(target, field, entry, label, path)
        elif field.is_repeated:
            for value in entry:
                _fill(target.add(), value, label, f"{path}[]")
        elif field.message_type.full_name == TIMESTAMP_NAME and isinstance(entry, Instant):
            target.FromMilliseconds(entry.time_ms)
        else:
            _fill(target, {"value": entry} if field.message_type.full_name in WRAPPERS else entry, label, path)
    except (TypeError, ValueError, AttributeError):
        raise _unwritable(f"field {path} has another type in {label}") from None


def _set_scalars(message: Any, field: Any, entry: Any) -> None:
    values = [
        str(value) if field.type == field.TYPE_STRING else value
        for _, value in written([("", value) for value in (entry if field.is_repeated else [entry])])
    ]
    if field.is_repeated:
        getattr(message, field.name).extend(values)
    else:
        setattr(message, field.name, values[0])


def _fill_map(target: Any, field: Any, entries: Mapping[str, Any], label: str, path: str) -> None:
    for name, entry in entries.items():
        if field.message_type.fields_by_name["value"].message_type is None:
            ((_, target[name]),) = written([("", entry)])
        else:
            _fill(target[name], entry, label, f"{path}.{name}")
