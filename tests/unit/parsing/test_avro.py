"""The format avro with the schema of a file: types of fields, lists, and records that are broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from helpers.avro import encoded, record_of
from skewless.errors import ConfigurationError
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

TIME = 1_767_225_600_123
AT = datetime.fromtimestamp(TIME / 1000, UTC)
CLICK = record_of("Click", user="string", price="double")
LISTS = '{"type": "array", "items": ' * 600 + '"int"' + "}" * 600
"""More lists in lists than the plan of a schema can have."""
CLICKED = encoded(CLICK, {"user": "a", "price": 1.0})


def logical(kind: Any, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def parse(
    schema: Any, payloads: Sequence[bytes | None], folder: Path, settings: dict[str, Any] | None = None
) -> ParsedBatch:
    file = folder / "schema.avsc"
    file.write_text(json.dumps(schema))
    document = {"format": {"name": "avro", "schema": str(file)}, **(settings or {"key": {"field": "key"}})}
    parser = RecordParser(ParsingSettings.model_validate(document))
    return parser.parse(RecordColumns.of_values(payloads, np.zeros(len(payloads), np.int64)))


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("string", "Köln", "Köln"),
        ("int", -7, "-7"),
        ("long", 2**62, str(2**62)),
        ("boolean", True, "true"),
        ("float", 0.1, "0.1"),
        ("double", 0.1, "0.1"),
        (["null", "string"], "a", "a"),
        ({"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}, "FR", "FR"),
        (logical("int", "date"), date(2026, 3, 1), "2026-03-01"),
        (logical("string", "uuid"), UUID(int=7), str(UUID(int=7))),
        (logical("fixed", "uuid", name="U", size=16), UUID(int=7).bytes, str(UUID(int=7))),
        (logical("bytes", "decimal", precision=20, scale=3), Decimal("-0.050"), "-0.050"),
        (logical("bytes", "decimal", precision=30, scale=0), Decimal(10**25), str(10**25)),
        (logical("long", "timestamp-millis"), AT, str(TIME)),
        (logical("long", "timestamp-micros"), AT, str(TIME * 1000)),
    ],
)
def test_avro_scalar_as_key_is_its_text(kind: Any, value: Any, key: str, tmp_path: Path) -> None:
    schema = record_of("R", before="bytes", key=kind, after={"type": "map", "values": "long"})
    parsed = parse(schema, [encoded(schema, {"before": b"\1", "key": value, "after": {"x": 1}})], tmp_path)
    assert (parsed.keys, parsed.invalid) == ([key], [])


@pytest.mark.parametrize("unit", ["ms", "s", "us", "ns", "iso8601"])
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (logical("long", "timestamp-millis"), AT, TIME),
        (logical("long", "timestamp-micros"), AT, TIME),
        (logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), TIME),
        (logical("int", "date"), AT.date(), TIME // 86_400_000 * 86_400_000),
    ],
)
def test_avro_time_has_the_precision_of_its_schema_in_any_unit(
    kind: Any, value: Any, expected: int, unit: str, tmp_path: Path
) -> None:
    schema = record_of("R", key="string", at=kind)
    settings = {"key": {"field": "key"}, "time": {"field": "at", "unit": unit}}
    parsed = parse(schema, [encoded(schema, {"key": "a", "at": value})], tmp_path, settings)
    assert (parsed.times.tolist(), parsed.invalid) == ([expected], [])


def test_avro_decimal_is_exact(tmp_path: Path) -> None:
    schema = record_of("R", key="string", price=logical("bytes", "decimal", precision=18, scale=4))
    prices = [Decimal("12345678901234.5678"), Decimal("-0.0001"), Decimal(0)]
    settings = {"key": {"field": "key"}, "value": {"field": "price", "decimals": 4}}
    parsed = parse(schema, [encoded(schema, {"key": "a", "price": price}) for price in prices], tmp_path, settings)
    assert parsed.values["value"].to_pylist() == [123456789012345678, -1, 0]


def test_avro_elements_of_lists_are_tuples_with_the_values_of_their_record(tmp_path: Path) -> None:
    item = record_of("Item", sku="string", price=["null", "int"], labels={"type": "array", "items": "string"})
    schema = record_of("Order", shop="string", items=["null", {"type": "array", "items": item}])
    orders = [
        {
            "shop": "s",
            "items": [{"sku": "a", "price": 1, "labels": ["x", "y"]}, {"sku": "b", "price": 2, "labels": []}],
        },
        {"shop": "t", "items": []},
        {"shop": "u", "items": None},
        {"shop": "v", "items": [{"sku": "c", "price": None, "labels": ["z"]}]},
    ]
    payloads = [encoded(schema, order) for order in orders]
    values = {"price": {"field": "items[].price"}, "shop": {"field": "shop", "kind": "text"}}
    parsed = parse(schema, payloads, tmp_path, {"key": {"field": "items[].sku"}, "values": values})
    assert (parsed.keys, parsed.records.tolist()) == (["a", "b"], [0, 0])
    assert parsed.values["price"].to_pylist() == [1, 2]
    assert parsed.values["shop"].to_pylist() == ["s", "s"]
    assert parsed.invalid == [
        (2, "key field items[].sku is missing"),
        (3, "values.price field items[].price is missing"),
    ]
    values["price"]["missing"] = "skip"
    parsed = parse(schema, payloads, tmp_path, {"key": {"field": "items[].labels[]"}, "values": values})
    assert (parsed.keys, parsed.records.tolist()) == (["x", "y", "z"], [0, 0, 3])
    assert parsed.values["price"].to_pylist() == [1, 1, None]


def test_avro_maps_aliases_and_nested_records_are_found_by_path(tmp_path: Path) -> None:
    user = record_of("User", id="string")
    schema = record_of("R", customer=["null", user, "string"], labels={"type": "map", "values": "string"})
    schema["fields"][0]["aliases"] = ["user"]
    records = [
        {"customer": {"id": "u1"}, "labels": {"eu": "x", "e": "wrong"}},
        {"customer": "text", "labels": {"eu": "y"}},
        {"customer": {"id": "u2"}, "labels": {"us": "z"}},
    ]
    settings = {"key": {"fields": [{"field": "user.id", "name": "user"}, {"field": "labels.eu", "name": "label"}]}}
    parsed = parse(schema, [encoded(schema, record) for record in records], tmp_path, settings)
    assert parsed.keys == ['["u1","x"]']
    assert parsed.invalid == [
        (1, "key part user field user.id is missing"),
        (2, "key part label field labels.eu is missing"),
    ]


def test_avro_conditions_see_fields_of_any_type(tmp_path: Path) -> None:
    schema = record_of("R", key="string", kind=["null", "string"], extra=["null", record_of("Extra", n="int")])
    records = [
        {"key": "a", "kind": "click", "extra": None},
        {"key": "b", "kind": None, "extra": None},
        {"key": "c", "kind": "click", "extra": {"n": 1}},
    ]
    where = [{"field": "kind", "is": "click"}, {"field": "extra", "exists": True}]
    settings = {"key": {"field": "key"}, "where": where}
    parsed = parse(schema, [encoded(schema, record) for record in records], tmp_path, settings)
    assert (parsed.keys, parsed.filtered.tolist()) == (["c"], [0, 1])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "broken Avro: ends too early (schema schema.avsc)"),
        (CLICKED[:-1], "broken Avro: ends too early (schema schema.avsc)"),
        (
            encoded(CLICK, {"user": "a", "price": 1.0}) + b"\0",
            "broken Avro: has bytes after its end (schema schema.avsc)",
        ),
        (b"\x01", "broken Avro: has a negative length (schema schema.avsc)"),
        (b"\xff" * 11, "broken Avro: ends too early (schema schema.avsc)"),
        (b"\x02\xff" + bytes(8), "key field user is not UTF-8"),
        (None, "empty record"),
    ],
)
def test_avro_broken_record_is_invalid_next_to_others(payload: bytes | None, reason: str, tmp_path: Path) -> None:
    good = [encoded(CLICK, {"user": user, "price": 1.0}) for user in ("a", "b")]
    parsed = parse(CLICK, [good[0], payload, good[1]], tmp_path, {"key": {"field": "user"}})
    assert (parsed.keys, parsed.records.tolist()) == (["a", "b"], [0, 2])
    assert parsed.invalid == [(1, reason)]


def test_avro_endless_and_deep_records_are_bounded(tmp_path: Path) -> None:
    node = record_of("Node", key="string", next=["null", "Node"], nothing={"type": "array", "items": "null"})
    deep = b"\x02a\x02" * 100_000
    endless = b"\x02a\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    fine = encoded(node, {"key": "b", "next": {"key": "c", "next": None, "nothing": []}, "nothing": [None] * 3})
    parsed = parse(node, [deep[:200_000], endless, fine], tmp_path)
    assert parsed.keys == ["b"]
    assert parsed.invalid == [
        (0, "broken Avro: is nested too deep (schema schema.avsc)"),
        (1, "broken Avro: has too many elements for its size (schema schema.avsc)"),
    ]


def test_avro_fields_of_a_wrong_type_are_named(tmp_path: Path) -> None:
    schema = record_of("R", key=["string", "bytes"], price=["int", "boolean"])
    records = [{"key": "a", "price": 1}, {"key": b"x", "price": 1}, {"key": "b", "price": True}]
    settings = {"key": {"field": "key"}, "value": {"field": "price"}}
    parsed = parse(schema, [encoded(schema, record) for record in records], tmp_path, settings)
    assert parsed.keys == ["a"]
    assert parsed.invalid == [
        (1, "key field key has the wrong type or is out of range"),
        (2, "value field price has the wrong type or is out of range"),
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not a schema of Avro"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "b"}]}', "is not a schema of Avro"),
        (json.dumps(record_of("R", key=logical("string", "x") | {"logicalType": ["x"]})), "is not a schema of Avro"),
        (json.dumps(record_of("R", key=logical("string", "x") | {"logicalType": {}})), "is not a schema of Avro"),
        (json.dumps(record_of("R", key="int")).replace('"int"', LISTS), "is not a schema of Avro"),
        (json.dumps(CLICK), "key.field: does not exist in schema schema.avsc"),
        (json.dumps(CLICK), "where.0.field: does not exist in schema schema.avsc"),
    ],
)
def test_avro_schema_file_that_cannot_be_used_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    settings = {
        "format": {"name": "avro", "schema": str(file)},
        "key": {"field": "key"},
        "where": [{"field": "contry", "is": "DE"}, {"field": "user", "exists": True}],
    }
    parsing = ParsingSettings.model_validate(settings)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        RecordParser(parsing)
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        RecordParser(parsing)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "kind_of",
    [lambda name: record_of("E", **{name: "int"}), lambda name: {"type": "enum", "name": "E", "symbols": [name]}],
    ids=["field", "symbol"],
)
def test_avro_schema_with_a_name_that_would_make_documents_very_long_is_refused(
    kind_of: Callable[[str], Any], tmp_path: Path
) -> None:
    allowed, refused = (record_of("R", key="string", other=kind_of("x" * length)) for length in (255, 256))
    assert parse(allowed, [b"\2a\0"], tmp_path).invalid == []
    with pytest.raises(ConfigurationError, match="a name has more than 255 characters"):
        parse(refused, [], tmp_path)


def test_avro_condition_that_an_absent_field_meets_needs_no_field_in_the_schema_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(CLICK))
    where = [{"field": "deleted", "exists": False}]
    settings = {"format": {"name": "avro", "schema": str(file)}, "key": {"field": "user"}, "where": where}
    RecordParser(ParsingSettings.model_validate(settings))
    where[0] = {"field": "deleted", "exists": True}
    with pytest.raises(ConfigurationError, match=r"where\.0\.field: does not exist in schema"):
        RecordParser(ParsingSettings.model_validate(settings))


@pytest.mark.parametrize(
    ("kind", "default"),
    [("string", None), ("int", "0"), ("long", 0.0), (["null", "int"], "x"), ({"type": "array", "items": "int"}, None)],
)
def test_avro_schema_with_an_invalid_default_is_read(kind: Any, default: Any, tmp_path: Path) -> None:
    """A record is read with the schema that it was written with, so no default is needed."""
    schema = record_of("R", key="string", other=kind)
    schema["fields"][1]["default"] = default
    assert parse(schema, [b"\2a"], tmp_path).invalid == [(0, "broken Avro: ends too early (schema schema.avsc)")]


@pytest.mark.parametrize(
    "kind",
    [
        logical("bytes", "decimal", scale=2),
        logical("bytes", "decimal", scale=2, precision=4),
        logical("fixed", "decimal", scale=2, precision=4, name="F", size=300),
    ],
)
@pytest.mark.parametrize("unscaled", [1_234_567, -1, 10**600], ids=["plain", "negative", "long"])
def test_avro_decimal_with_other_digits_than_its_schema_has_is_the_same_in_key_and_document(
    kind: Any, unscaled: int, tmp_path: Path
) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(record_of("R", price=kind)))
    settings = {"format": {"name": "avro", "schema": str(file)}, "key": {"field": "price"}}
    content = unscaled.to_bytes(300, "big", signed=True)
    payload = content if kind["type"] == "fixed" else encoded("bytes", content)
    parser, records = (
        RecordParser(ParsingSettings.model_validate(settings)),
        RecordColumns.of_values([payload], np.zeros(1, int)),
    )
    (key,) = parser.parse(records).keys
    assert parser.documents(records, [0]) == ([f'{{"price":{key}}}'.encode()], {})


@pytest.mark.parametrize(("scale", "key"), [(1000, f"0.{'5':0>1000}"), (1001, None), (300_000_000, None)])
def test_avro_decimal_with_more_decimals_than_any_database_has_is_refused(
    scale: int, key: str | None, tmp_path: Path
) -> None:
    schema = record_of("R", price=logical("bytes", "decimal", precision=scale, scale=scale))
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(schema))
    settings = {"format": {"name": "avro", "schema": str(file)}, "key": {"field": "price"}}
    parser = RecordParser(ParsingSettings.model_validate(settings))
    parsed = parser.parse(RecordColumns.of_values([b"\2\5"], np.zeros(1, int)))
    refused = [(0, "key field price has the wrong type or is out of range")]
    assert (parsed.keys, parsed.invalid) == (([], refused) if key is None else ([key], []))


def test_avro_document_of_a_join_is_exact_json(tmp_path: Path) -> None:
    user = record_of("User", id="string", born=logical("int", "date"))
    schema = record_of(
        "R",
        key="string",
        user=user,
        other=["null", "User"],
        price=logical("bytes", "decimal", precision=20, scale=2),
        at=logical("long", "timestamp-micros"),
        day=logical("int", "date"),
        tags={"type": "array", "items": {"type": "enum", "name": "Tag", "symbols": ["NEW", "OLD"]}},
        counts={"type": "map", "values": "double"},
        content="bytes",
    )
    person = {"id": "ü", "born": date(2000, 1, 1)}
    record = {
        "key": "a",
        "user": person,
        "other": person,
        "price": Decimal("123456789012345678.90"),
        "at": AT,
        "day": date(2026, 3, 1),
        "tags": ["OLD", "NEW"],
        "counts": {"x": 0.1, "y": float("nan")},
        "content": b"\xff",
    }
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(schema))
    settings = {"format": {"name": "avro", "schema": str(file)}, "key": {"field": "key"}}
    parser = RecordParser(ParsingSettings.model_validate(settings))
    not_a_date = encoded(record_of("R", key="string", day="long"), {"key": "a", "day": 2**40})
    records = RecordColumns.of_values([None, encoded(schema, record)], np.zeros(2, np.int64))
    (document,), problems = parser.documents(records, [1])
    born = '{"id":"ü","born":"2000-01-01"}'
    assert document.decode() == (
        f'{{"key":"a","user":{born},"other":{born},"price":123456789012345678.90,"at":{TIME * 1000},'
        '"day":"2026-03-01","tags":["OLD","NEW"],"counts":{"x":0.1,"y":null},"content":"/w=="}'
    )
    assert problems == {}
    file.write_text(json.dumps(record_of("R", key="string", day=logical("int", "date"))))
    parser = RecordParser(ParsingSettings.model_validate(settings))
    records = RecordColumns.of_values([not_a_date], np.zeros(1, np.int64))
    assert parser.parse(records).invalid == []
    assert parser.documents(records, [0]) == ([b""], {0: "Avro that cannot be converted to JSON"})
