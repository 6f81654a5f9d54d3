"""The formats with schemas of a real registry: references, nested messages, and schema ids in headers."""

from __future__ import annotations

import contextlib
import gc
import json
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from helpers.avro import encoded, record_of
from helpers.envelopes import TIME_MS, change_in_avro, change_schema
from helpers.schema_registry import RegistryServer
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry import cache as schema_cache
from skewless.schema_registry.schema import KEY_HEADER, VALUE_HEADER, Schema, prefix
from skewless.schema_registry.settings import RegistrySettings
from skewless.wire.record import Headers

LIMIT, IDS = 80, 240
"""A smaller limit of the schemas that are kept than `CAPACITY`, and the schema ids of a topic that exceeds it."""
CLICK = record_of("Click", key="string", value="int")
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
DELETED = {"name": "debezium", "row": "before", "operations": ["delete"]}
USER = 'syntax = "proto3"; package acme; message User { string id = 1; }'
EVENT = """
syntax = "proto3"; package acme; import "acme/user.proto";
message Other { string x = 1; }
message Event { message Click { User user = 1; int32 value = 2; } }
"""


def parser_of(url: str, name: str, **fields: Any) -> RecordParser:
    settings = ParsingSettings.model_validate({"format": name, "value": {"field": "value"}, **fields})
    assert settings.bind(RegistrySettings.model_validate({"url": url})) == []
    return RecordParser(settings)


def parse(
    parser: RecordParser,
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None = None,
    keys: Sequence[bytes | None] = (),
) -> ParsedBatch:
    columns = RecordColumns(values, np.zeros(len(values), np.int64), keys, headers or [()] * len(values))
    return parser.parse(columns)


def test_protobuf_nested_message_with_references_is_read(registry_server: RegistryServer) -> None:
    registry_server.register("user.proto", USER, "PROTOBUF")
    references = [{"name": "acme/user.proto", "subject": "user.proto", "version": 1}]
    schema_id = registry_server.register("event-value", EVENT, "PROTOBUF", references)
    schema = Schema("PROTOBUF", EVENT, {"acme/user.proto": Schema("PROTOBUF", USER)})
    click: Any = message_factory.GetMessageClass(
        compile_text(schema).message_types_by_name["Event"].nested_types_by_name["Click"]
    )
    payload = click(user={"id": "a"}, value=7).SerializeToString()
    start = prefix(schema_id)
    parser = parser_of(registry_server.url, "protobuf", key={"field": "user.id"})
    # The indexes of a message are zigzag integers, the first one their number: 2, 1, 0 is the first message of Event.
    parsed = parse(parser, [start + b"\x04\x02\x00" + payload, start + b"\x00", start + b"\x02\x0a", start + b"\xff"])
    assert (parsed.keys, parsed.values["value"].to_pylist()) == (["a"], [7])
    assert parsed.invalid == [
        (1, f"key field user.id is missing in schema {schema_id}"),
        (2, f"no such message in schema {schema_id}"),
        (3, f"no message at the beginning of the record (schema {schema_id})"),
    ]


def test_protobuf_of_the_serializer_of_python_is_read(registry_server: RegistryServer) -> None:
    """It registers descriptors in Base64, also of the files that the schema imports."""
    schema = Schema("PROTOBUF", EVENT, {"acme/user.proto": Schema("PROTOBUF", USER)})
    file = compile_text(schema)
    click: Any = message_factory.GetMessageClass(file.message_types_by_name["Event"].nested_types_by_name["Click"])
    with contextlib.closing(SchemaRegistryClient({"url": registry_server.url})) as client:
        serialize = ProtobufSerializer(click, client)
        value = serialize(click(user={"id": "a"}, value=7), SerializationContext("serialized", MessageField.VALUE))
    parsed = parse(parser_of(registry_server.url, "protobuf", key={"field": "user.id"}), [value])
    assert (parsed.keys, parsed.values["value"].to_pylist(), parsed.invalid) == (["a"], [7], [])


def test_json_schema_records_are_read_after_their_prefix(registry_server: RegistryServer) -> None:
    schema_id = registry_server.register("json-value", JSON_SCHEMA, "JSON")
    parser = parser_of(
        registry_server.url, "json_schema", key={"field": "key"}, where=[{"field": "key", "is_not": "c"}]
    )
    documents = [prefix(schema_id) + json.dumps({"key": key, "value": 1}).encode() for key in "abc"]
    values = [documents[0], b"{}", documents[1], prefix(987_654) + b"{}", prefix(schema_id) + b"{", documents[2]]
    parsed = parse(parser, values)
    assert (parsed.keys, parsed.records.tolist(), parsed.filtered.tolist()) == (["a", "b"], [0, 2], [5])
    assert parsed.invalid == [
        (1, "no schema id: the first byte is neither 0 nor 1"),
        (3, "schema 987654 is unknown to the registry"),
        (4, "malformed JSON"),
    ]


def test_schema_id_in_a_header_is_that_of_the_payload(registry_server: RegistryServer) -> None:
    schema_id = registry_server.register("header-value", CLICK)
    parser = parser_of(registry_server.url, "avro", key={"field": "key"})
    record = {"key": "a", "value": 7}
    plain, prefixed = encoded(CLICK, record), encoded(CLICK, record, schema_id)
    headers: list[Headers] = [[(VALUE_HEADER, prefix(schema_id))], [("other", b"x")], ()]
    parsed = parse(parser, [plain, prefixed, prefixed], headers)
    assert (parsed.keys, parsed.invalid) == (["a"] * 3, [])


def test_record_key_of_each_format_is_read_with_its_own_schema(registry_server: RegistryServer) -> None:
    """The ids of the key and of the value are in the same registry, and the formats may differ."""
    url, row = registry_server.url, record_of("Row", id="long", other="string")
    value_id = registry_server.register("own-value", CLICK)
    value = encoded(CLICK, {"key": "not this one", "value": 7}, value_id)
    avro_id, text_id = registry_server.register("own-key", row), registry_server.register("text-key", '"string"')
    proto_id = registry_server.register("proto-key", USER, "PROTOBUF")
    json_id = registry_server.register("json-key", JSON_SCHEMA, "JSON")
    user: Any = message_factory.GetMessageClass(compile_text(Schema("PROTOBUF", USER)).message_types_by_name["User"])
    plain = encoded(row, {"id": 2, "other": "x"})
    cases: list[tuple[dict[str, Any], list[bytes], list[Headers], list[str]]] = [
        (
            {"encoding": "avro", "field": "id"},
            [encoded(row, {"id": 1, "other": "x"}, avro_id), plain, value, plain],
            [(), [(KEY_HEADER, prefix(avro_id))], (), [(VALUE_HEADER, prefix(value_id))]],
            ["1", "2"],
        ),
        ({"encoding": "avro"}, [encoded("string", "a", text_id)], [()], ["a"]),
        (
            {"encoding": "protobuf", "field": "id"},
            [prefix(proto_id) + b"\0" + user(id="u").SerializeToString()],
            [()],
            ["u"],
        ),
        ({"encoding": "json_schema", "field": "id"}, [prefix(json_id) + b'{"id": "j"}'], [()], ["j"]),
    ]
    for key, record_keys, headers, expected in cases:
        parser = parser_of(url, "avro", key={"from": "record_key", **key})
        values = [value if not found or found[0][0] == KEY_HEADER else value[5:] for found in headers]
        parsed = parse(parser, values, headers, record_keys)
        assert parsed.keys == expected
        assert parsed.values["value"].to_pylist() == [7] * len(expected)
        if len(record_keys) > 1:
            reason = f"record key: key field id is missing in schema {value_id}"
            assert parsed.invalid == [(2, reason), (3, "record key: no schema id: the first byte is neither 0 nor 1")]


def test_debezium_with_avro_keys_and_values_reads_both(registry_server: RegistryServer) -> None:
    """Change events as the connector writes them with the converter of Avro, which is what most companies have."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    row, primary_key = record_of("Value", id="long", total=decimal), record_of("Key", id="long")
    change = change_schema(row)
    key_id, value_id = registry_server.register("o-key", primary_key), registry_server.register("o-value", change)
    before, after = {"id": 1, "total": Decimal("12.50")}, {"id": 1, "total": Decimal("7.25")}
    events = [
        change_in_avro("c", None, before),
        change_in_avro("u", before, after),
        change_in_avro("d", after, None),
        None,
        change_in_avro("r", None, {"id": 2, "total": Decimal("-0.05")}),
        change_in_avro("x", None, before),
        change_in_avro("c", None, None),
    ]
    values = [None if event is None else encoded(change, event, value_id) for event in events]
    keys = [encoded(primary_key, {"id": 1 + (number == 4)}, key_id) for number in range(len(values))]
    fields = {
        "envelope": "debezium",
        "value": {"field": "total", "decimals": 2},
        "time": {"field": "debezium.source.ts_ms"},
    }
    for key in ({"from": "record_key", "encoding": "avro", "field": "id"}, {"field": "id"}):
        parsed = parse(parser_of(registry_server.url, "avro", key=key, **fields), values, keys=keys)
        assert (parsed.keys, parsed.values["value"].to_pylist()) == (["1", "1", "2"], [1250, 725, -5])
        assert (parsed.filtered.tolist(), set(parsed.times[[0, 1, 4]].tolist())) == ([2, 3], {TIME_MS})
        missing = "value field after.total" if "from" in key else "key field after.id"
        assert parsed.invalid == [(5, "unknown op of Debezium"), (6, f"{missing} is missing")]
    parser = parser_of(registry_server.url, "avro", key={"field": "id"}, **{**fields, "envelope": DELETED})
    parsed = parse(parser, values, keys=keys)
    assert (parsed.keys, parsed.values["value"].to_pylist(), len(parsed.filtered)) == (["1"], [725], 5)


@pytest.mark.thorough
def test_topic_with_more_schema_ids_than_are_kept_is_read_in_bounded_memory(
    registry_server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert schema_cache.CAPACITY > LIMIT
    monkeypatch.setattr(schema_cache, "CAPACITY", LIMIT)

    def register(number: int) -> tuple[Any, int]:
        schema = record_of(f"R{number}", key="string", value="int")
        return schema, registry_server.register(f"many-{number % 100}", schema)

    with ThreadPoolExecutor(8) as pool:
        schemas = list(pool.map(register, range(IDS)))
    assert len({schema_id for _, schema_id in schemas}) == IDS
    parser = parser_of(registry_server.url, "avro", key={"field": "key"})
    (cache,) = parser.schemas
    sizes = []
    try:
        for first in range(0, IDS, LIMIT // 2):
            batch = schemas[first : first + LIMIT // 2]
            values = [encoded(schema, {"key": "a", "value": 1}, schema_id) for schema, schema_id in batch]
            parsed = parse(parser, values)
            assert (len(parsed.keys), parsed.invalid) == (len(batch), [])
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
            if not first:  # what the first records load is more than all schemas
                tracemalloc.start()
    finally:
        tracemalloc.stop()
    assert len(cache) == LIMIT
    full = sizes[2]  # all schemas in the cache have been traced
    assert sizes[-1] < 1.1 * full, f"{full} bytes with {LIMIT} schemas, {sizes[-1]} after {IDS}"
