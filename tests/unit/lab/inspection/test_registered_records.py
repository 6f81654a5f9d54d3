"""The wire format of a schema registry: schema ids in values and headers, and the content after them."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from helpers.avro import encoded, record_of
from skewless.errors import UnknownSchemaError
from skewless.lab.inspection import registered_records
from skewless.lab.inspection.format_detection import detect
from skewless.lab.inspection.registered_records import id_of, ids_of, read_with, with_ids
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry import client
from skewless.schema_registry.schema import KEY_HEADER, VALUE_HEADER, Schema, SchemaId, prefix, split_prefix
from skewless.schema_registry.settings import RegistrySettings
from skewless.wire.record import Headers

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
CLICK = record_of("Click", key="string", value="int")


@pytest.mark.parametrize(
    ("value", "schema_id", "size"),
    [
        (b"\0\1\2\3\4x", 0x01020304, 5),
        (b"\0\0\0\0\7", 7, 5),
        (b"\0\xff\xff\xff\xffx", 2**32 - 1, 5),
        (b"\1" + GUID.bytes + b"x", GUID, 17),
        (b"\1" + GUID.bytes, GUID, 17),
    ],
)
def test_split_prefix_reads_the_id_after_the_magic_byte(value: bytes, schema_id: SchemaId, size: int) -> None:
    assert split_prefix(value) == (schema_id, size)
    assert prefix(schema_id) == value[:size]


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\0\0\7", b"\2\0\0\0\7x", b"\xff\0\0\0\7x", b"\1" + GUID.bytes[1:], b"\2" + GUID.bytes]
)
def test_split_prefix_of_another_magic_byte_or_a_short_value_is_none(value: bytes) -> None:
    assert split_prefix(value) is None


@pytest.mark.parametrize(
    ("value", "schema_id"),
    [(b"\0\0\0\0\7x", 7), (b"\0\0\0\0\7", None), (b"\0\0\0\0\0x", None), (b"{}     ", None)],
    ids=["with content", "without content", "no schema has the id 0", "JSON"],
)
def test_id_of_value_needs_content_and_an_id(value: bytes, schema_id: int | None) -> None:
    assert id_of(value) == schema_id


def test_ids_of_values_are_those_of_nearly_all_values_the_most_frequent_first() -> None:
    registered: list[bytes | None] = [b"\0\0\0\0\2x", *[b"\0\0\0\0\1x"] * 8]
    assert ids_of([*registered, b"other", None, b""]) == [1, 2]
    assert ids_of([*registered, b"other", b"other"]) == []


def columns(values: list[bytes | None], headers: list[Headers]) -> RecordColumns:
    return RecordColumns(values, np.zeros(len(values), np.int64), [None] * len(values), headers)


def test_ids_of_headers_are_those_of_values_and_not_those_of_keys() -> None:
    value_id, key_id = (VALUE_HEADER, prefix(7)), (KEY_HEADER, prefix(8))
    headers: list[Headers] = [(), [value_id], [key_id, value_id], [(VALUE_HEADER, prefix(9)), value_id], [key_id]]
    assert with_ids(columns([b"x"] * 5, headers)) == [b"x", *[b"\0\0\0\0\7x"] * 3, b"x"]
    assert ids_of(with_ids(columns([b"x"] * 2, [[(VALUE_HEADER, prefix(GUID))]] * 2))) == [GUID]


@pytest.mark.parametrize("schema_id", [7, 0x01020304, GUID])
@pytest.mark.parametrize("in_header", [False, True])
def test_read_with_decodes_the_content_after_the_id(
    schema_id: SchemaId, *, in_header: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def schema(_client: Any, found: SchemaId) -> Schema:
        assert found == schema_id
        return Schema("AVRO", json.dumps(CLICK))

    monkeypatch.setattr(client.RegistryClient, "schema", schema)
    content = encoded(CLICK, {"key": "a", "value": 7})
    value = content if in_header else prefix(schema_id) + content
    headers: Headers = [(VALUE_HEADER, prefix(schema_id))] if in_header else ()
    registry = RegistrySettings.model_validate({"url": "http://localhost:1"})
    sample = read_with(registry, [columns([value, b"other"], [headers, ()])], [schema_id])
    (read,) = sample.records
    assert (sample.format, sample.description) == ("avro", f"Avro, schema id {schema_id}")
    assert [json.loads(read.values[0] or b""), read.values[1]] == [{"key": "a", "value": 7}, b"other"]


def test_read_with_decodes_each_record_with_the_schema_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas: dict[SchemaId, Any] = {7: CLICK, 9: record_of("View", page="string")}

    def schema(_client: Any, found: SchemaId) -> Schema:
        if found not in schemas:
            raise UnknownSchemaError("unknown")
        return Schema("AVRO", json.dumps(schemas[found]))

    monkeypatch.setattr(client.RegistryClient, "schema", schema)
    click, view = {"key": "a", "value": 7}, {"page": "/"}
    unknown = prefix(8) + b"x"
    values = [prefix(9) + encoded(schemas[9], view), unknown, prefix(7) + encoded(CLICK, click)]
    registry = RegistrySettings.model_validate({"url": "http://localhost:1"})
    (read,) = read_with(registry, [columns([*values], [()] * 3)], [9, 8, 7]).records
    assert [json.loads(read.values[0] or b""), read.values[1], json.loads(read.values[2] or b"")] == [
        view,
        unknown,
        click,
    ]


def test_read_with_decodes_records_of_a_schema_that_only_refers_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    view = record_of("View", page="string")
    references = {schema["name"]: Schema("AVRO", json.dumps(schema)) for schema in (CLICK, view)}
    events = Schema("AVRO", '["Click", "View"]', references)
    monkeypatch.setattr(client.RegistryClient, "schema", lambda _client, _id: events)
    value = prefix(7) + b"\2" + encoded(view, {"page": "/"})
    registry = RegistrySettings.model_validate({"url": "http://localhost:1"})
    (read,) = read_with(registry, [columns([value], [()])], [7]).records
    assert json.loads(read.values[0] or b"") == {"page": "/"}


DEEP = b"\2" * 5000 + b"\0"
"""A chain of records, as the type `Chain` has it."""
MANY = b"\xfe" + b"\xff" * 7 + b"\x7f" + b"\0"
"""A list of more nulls than any loop ends with."""


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (record_of("Chain", next=["null", "Chain"]), DEEP),
        (record_of("R", nulls={"type": "array", "items": "null"}), MANY),
    ],
)
def test_read_with_leaves_records_that_no_pipeline_reads(
    schema: Any, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.RegistryClient, "schema", lambda _client, _id: Schema("AVRO", json.dumps(schema)))
    registry = RegistrySettings.model_validate({"url": "http://localhost:1"})
    sample = read_with(registry, [columns([prefix(7) + content], [()])], [7])
    assert (sample.format, sample.records[0].values) == ("", [prefix(7) + content])


def test_read_with_fetches_the_schemas_of_most_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SchemaId] = []

    def schema(_client: Any, found: SchemaId) -> Schema:
        asked.append(found)
        return Schema("AVRO", '"string"')

    monkeypatch.setattr(client.RegistryClient, "schema", schema)
    ids = list(range(1, 2 * registered_records.MAX_SCHEMAS))
    registry = RegistrySettings.model_validate({"url": "http://localhost:1"})
    sample = read_with(registry, [], ids)
    assert asked == ids[: registered_records.MAX_SCHEMAS]
    assert sample.description == f"binary with schema ids 1, 2, 3 and {len(ids) - 3} more, without fields"


def test_detect_of_values_with_schema_ids_names_them_among_others() -> None:
    """A value without content, and another magic byte, are only binary."""
    values: list[bytes | None] = [b"\0\0\0\0\7\xfe", b"\1" + GUID.bytes + b"\xfe", b"\0\0\0\0\7", b"\2\0\0\0\7\xfe"]
    assert detect(values).kinds == {"binary with a schema id": 0.5, "binary": 0.5}
