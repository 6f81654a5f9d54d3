"""Records in the wire format of a schema registry: which schema reads which bytes of which record."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from google.protobuf import message_factory

from helpers.avro import encoded, record_of
from helpers.envelopes import structured
from skewless.errors import UnknownSchemaError
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.formats.schema_format import NO_SCHEMA_ID
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry import client
from skewless.schema_registry.schema import KEY_HEADER, VALUE_HEADER, Schema, SchemaId, prefix, split_message
from skewless.schema_registry.settings import RegistrySettings
from skewless.wire.record import Headers

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
FIRST, SECOND = record_of("Click", key="string", value="int"), record_of("Click", value="int", key="string")
AVRO: dict[SchemaId, Any] = {0x01020304: FIRST, 7: SECOND, GUID: FIRST, 9: record_of("Empty")}
MONEY = record_of("a.Money", amount={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
ORDER, PAY = record_of("a.Order", key="string", price="a.Money"), record_of("a.Pay", key="string", value="int")
REFERENCES = {schema["name"]: Schema("AVRO", msgspec.json.encode(schema).decode()) for schema in (MONEY, ORDER, PAY)}
PROTOBUF = 'syntax = "proto3"; message Other { string x = 1; } message Click { string key = 1; int32 value = 2; }'


def parse(
    name: str, values: Sequence[bytes], headers: Sequence[Headers] = (), keys: Sequence[bytes] = (), **key: str
) -> ParsedBatch:
    settings = ParsingSettings.model_validate(
        {"format": name, "value": {"field": "value"}, "key": key or {"field": "key"}}
    )
    assert settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"})) == []
    times = np.zeros(len(values), np.int64)
    return RecordParser(settings).parse(RecordColumns(values, times, keys, headers or [()] * len(values)))


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def schema(_client: Any, schema_id: SchemaId) -> Schema:
        if schema_id == 5:
            return Schema("PROTOBUF", PROTOBUF)
        if schema_id == 6:
            return Schema("AVRO", '["null", "a.Order", "a.Pay"]', REFERENCES)
        if schema_id not in AVRO:
            raise UnknownSchemaError("unknown")
        return Schema("AVRO", msgspec.json.encode(AVRO[schema_id]).decode())

    monkeypatch.setattr(client.RegistryClient, "schema", schema)


def click(schema_id: SchemaId, key: str, value: int = 1) -> bytes:
    return prefix(schema_id) + encoded(AVRO[schema_id], {"key": key, "value": value})


@pytest.mark.parametrize(("name", "value"), [("avro", prefix(9)), ("protobuf", prefix(5) + b"\0\x0a\1a")])
def test_schema_without_a_field_of_the_settings_is_logged_once_for_all_parsers_with_them(
    name: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The splitter has another parser for the records that it reads again at a start."""
    settings = ParsingSettings.model_validate({"format": name, "key": {"field": "key"}})
    settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"}))
    for _ in range(2):
        (invalid,) = RecordParser(settings).parse(RecordColumns([value], np.zeros(1, np.int64), [None], [()])).invalid
        assert invalid[1].startswith("key field key is missing in schema ")
    assert caplog.messages == [f"schema {value[4]} has no field for key.field of the settings"]


@pytest.mark.parametrize(("name", "value"), [("avro", prefix(9)), ("protobuf", prefix(5) + b"\0\x0a\1a")])
def test_schema_without_the_field_of_a_condition_is_logged_and_its_records_are_filtered(
    name: str, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    conditions = [{"field": "contry", "is": "DE"}, {"header": "h", "exists": False}]
    document = {"format": name, "key": {"from": "record_key"}, "time": {"field": "at"}, "where": conditions}
    settings = ParsingSettings.model_validate(document)
    settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"}))
    parsed = RecordParser(settings).parse(RecordColumns([value], np.zeros(1, np.int64), [b"k"], [()]))
    assert (parsed.filtered.tolist(), parsed.invalid) == ([0], [])
    assert f"schema {value[4]} has no field for where.0.field of the settings" in caplog.messages


@pytest.mark.parametrize("size", [-15, -(2**40), 2**31, 2**70, 1.5, "5", True])
def test_schema_whose_fixed_type_has_an_impossible_size_reads_no_record(
    size: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan would skip backwards into another record, or leave the memory of the batch."""
    fixed = {"type": "fixed", "name": "F", "size": size}
    monkeypatch.setitem(AVRO, 10, record_of("R", other=fixed, key="string", value="int"))
    parsed = parse("avro", [click(7, "a"), prefix(10) + b"x", click(GUID, "b")])
    assert (parsed.keys, parsed.invalid) == (["a", "b"], [(1, "schema 10 is not a valid schema of type AVRO")])


@pytest.mark.parametrize("ids", [[7], [0x01020304], [GUID], [7, 0x01020304], [0x01020304, GUID, 7]])
def test_records_are_read_with_the_schema_that_each_names(ids: list[SchemaId]) -> None:
    chosen = [ids[number % len(ids)] for number in range(6)]
    parsed = parse("avro", [click(schema_id, f"k{number}", number) for number, schema_id in enumerate(chosen)])
    assert parsed.invalid == []
    assert (parsed.keys, parsed.values["value"].to_pylist()) == ([f"k{n}" for n in range(6)], list(range(6)))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\2" + click(7, "a")[1:], NO_SCHEMA_ID),
        (b"\xff" + click(7, "a")[1:], NO_SCHEMA_ID),
        (b"\0\0\0\7", NO_SCHEMA_ID),
        (b"\1" + GUID.bytes[1:], NO_SCHEMA_ID),
        (b"\0\0\0\0\7", "broken Avro: ends too early (schema 7)"),
        (b"\0\0\0\0\x09", "key field key is missing in schema 9"),
        (b"\0\0\0\0\x08" + click(7, "a")[5:], "schema 8 is unknown to the registry"),
        (b"\0\0\0\0\5" + click(7, "a")[5:], "schema 5 is of type PROTOBUF, not AVRO"),
        (click(7, "a") + b"\0", "broken Avro: has bytes after its end (schema 7)"),
        (click(7, "a")[:-1], "broken Avro: ends too early (schema 7)"),
    ],
)
def test_record_that_cannot_be_read_is_invalid_among_valid_ones(value: bytes, reason: str) -> None:
    parsed = parse("avro", [click(7, "a"), value, click(GUID, "b")])
    assert (parsed.keys, parsed.invalid) == (["a", "b"], [(1, reason)])


@pytest.mark.parametrize("name", ["avro", "protobuf", "json_schema"])
@pytest.mark.parametrize(
    "fields",
    [
        {"value": {"field": "value"}},
        {"values": {"a": {"field": "value"}, "b": {"field": "price", "missing": "skip"}}},
        {"key": {"fields": [{"field": "country"}, {"field": "at", "truncate": "day"}]}, "time": {"field": "at"}},
        {"where": [{"field": "key", "is": "a"}], "value": {"field": "value"}},
    ],
)
def test_records_without_any_usable_schema_are_all_invalid(name: str, fields: dict[str, Any]) -> None:
    settings = ParsingSettings.model_validate({"format": name, "key": {"field": "key"}, **fields})
    settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"}))
    values = [b"{}", b"\0\0\0\0\x08x"]
    parsed = RecordParser(settings).parse(RecordColumns(values, np.zeros(2, np.int64), [None] * 2, [()] * 2))
    assert (parsed.keys, parsed.invalid) == ([], [(0, NO_SCHEMA_ID), (1, "schema 8 is unknown to the registry")])


def test_needed_schemas_are_those_of_numbers_guids_and_headers() -> None:
    settings = ParsingSettings.model_validate({"format": "avro", "key": {"field": "key"}})
    settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"}))
    content = encoded(FIRST, {"key": "a", "value": 1})
    values = [click(7, "a"), click(GUID, "b"), content, b"\2\0\0\0\7x", b""]
    headers: list[Headers] = [(), (), [(VALUE_HEADER, prefix(0x01020304))], (), ()]
    ((_, ids),) = RecordParser(settings).needed_schemas(
        RecordColumns(values, np.zeros(len(values), np.int64), [None] * len(values), headers)
    )
    assert ids == {7, GUID, 0x01020304}


def test_needed_schemas_of_structured_cloudevents_are_those_of_their_data() -> None:
    settings = ParsingSettings.model_validate({"format": "avro", "envelope": "cloudevents", "key": {"field": "key"}})
    settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"}))
    data = base64.b64encode(click(7, "a")).decode()
    records = RecordColumns.of_values([structured(data_base64=data)], np.zeros(1, np.int64))
    ((_, ids),) = RecordParser(settings).needed_schemas(records)
    assert ids == {7}


def test_schema_ids_in_headers_are_those_of_the_key_and_of_the_value() -> None:
    key, value = encoded(FIRST, {"key": "k", "value": 0}), encoded(SECOND, {"key": "v", "value": 3})
    both: Headers = [(KEY_HEADER, prefix(GUID)), (VALUE_HEADER, prefix(7))]
    parsed = parse(
        "avro",
        [value, prefix(7) + value],
        [both, both[:1]],
        [key, key],
        **{"from": "record_key"},
        encoding="avro",
        field="key",
    )
    assert (parsed.keys, parsed.values["value"].to_pylist(), parsed.invalid) == (["k", "k"], [3, 3], [])


def test_record_of_a_schema_that_only_refers_to_others_is_read_and_converted() -> None:
    order = encoded(
        {**ORDER, "fields": [ORDER["fields"][0], {"name": "price", "type": MONEY}]},
        {"key": "a", "price": {"amount": Decimal("1.50")}},
    )
    values = [prefix(6) + b"\2" + order, prefix(6) + b"\4" + encoded(PAY, {"key": "b", "value": 2})]
    settings = ParsingSettings.model_validate({"format": "avro", "key": {"field": "key"}})
    settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"}))
    parser, records = RecordParser(settings), RecordColumns.of_values(values, np.zeros(2, np.int64))
    assert parser.parse(records).keys == ["a", "b"]
    documents = [b'{"key":"a","price":{"amount":1.50}}', b'{"key":"b","value":2}']
    assert parser.documents(records, [0, 1]) == (documents, {})


@pytest.mark.parametrize(
    ("indexes", "message"),
    [(b"\0", "Other"), (b"\2\0", "Other"), (b"\2\2", "Click"), (b"\4\0\0", None)],
    ids=["the first one in short", "the first one", "the second one", "nested"],
)
def test_protobuf_message_is_that_of_the_indexes_before_the_payload(indexes: bytes, message: str | None) -> None:
    types = compile_text(Schema("PROTOBUF", PROTOBUF)).message_types_by_name
    built: Any = message_factory.GetMessageClass(types["Click"])(key="a", value=3)
    payload = built.SerializeToString()
    value = prefix(5) + indexes + payload
    found, size = split_message(value)
    assert value[size:] == payload
    assert list(found) == {"Other": [0], "Click": [1], None: [0, 0]}[message]
    parsed = parse("protobuf", [value])
    if message == "Click":
        assert (parsed.keys, parsed.values["value"].to_pylist()) == (["a"], [3])
    else:
        assert parsed.keys == []
