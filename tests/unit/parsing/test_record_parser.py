"""Keys, values and times that are not in the value of a record: its key, its headers, its partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from pydantic import ValidationError

from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.schema_registry.schema import KEY_HEADER, prefix
from skewless.schema_registry.settings import RegistrySettings
from skewless.wire.record import Headers


def parse(
    settings: dict[str, Any],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    values: Sequence[bytes | None] | None = None,
) -> ParsedBatch:
    size = len(keys or headers or values or ())
    columns = RecordColumns(
        values or [None] * size, np.full(size, 1_000, np.int64), keys or [None] * size, headers or [()] * size, 3
    )
    return RecordParser(ParsingSettings.model_validate(settings)).parse(columns)


@pytest.mark.parametrize(
    ("encoding", "record_key", "key"),
    [
        ("utf8", "é".encode(), "é"),
        ("utf8", b"", ""),
        ("int64", (-5).to_bytes(8, "big", signed=True), "-5"),
        ("int64", b"\x7f" + b"\xff" * 7, str(2**63 - 1)),
        ("int32", b"\x80\0\0\0", str(-(2**31))),
    ],
)
def test_parser_record_key_in_each_encoding_is_the_key(encoding: str, record_key: bytes, key: str) -> None:
    parsed = parse({"key": {"from": "record_key", "encoding": encoding}}, keys=[record_key])
    assert (parsed.keys, parsed.values["value"].to_pylist(), parsed.times.tolist()) == ([key], [1], [1_000])


@pytest.mark.parametrize(
    ("encoding", "record_key", "reason"),
    [
        ("utf8", None, "record key is missing"),
        ("utf8", b"\xff", "record key is not UTF-8"),
        ("int64", b"1234", "record key is not an int64 of 8 bytes"),
        ("int32", b"", "record key is not an int32 of 4 bytes"),
        ("utf8", b"x" * 1025, "key is longer than 1024 bytes"),
    ],
)
def test_parser_invalid_record_key_makes_its_record_invalid(
    encoding: str, record_key: bytes | None, reason: str
) -> None:
    valid = b"1234" if encoding == "int32" else b"12345678"
    parsed = parse({"key": {"from": "record_key", "encoding": encoding}}, keys=[valid, record_key])
    assert parsed.invalid == [(1, reason)]
    assert parsed.records.tolist() == [0]


def test_parser_record_key_in_json_is_the_key() -> None:
    key = {"from": "record_key", "encoding": "json"}
    record_keys = [b'{"user": {"id": 7}}', b'{"user": {"id": "a"}}', b'{"user": 1}', b"{", None, b'{"user": {"id": 8}}']
    parsed = parse(
        {"key": {**key, "field": "user.id"}, "format": "json", "value": {"field": "n"}},
        keys=record_keys,
        values=[b'{"n": 1}'] * 5 + [b"{"],
    )
    assert (parsed.keys, parsed.records.tolist()) == (["7", "a"], [0, 1])
    assert parsed.invalid == [
        (2, "record key: key field user.id is missing"),
        (3, "record key: malformed JSON"),
        (4, "record key is missing"),
        (5, "malformed JSON"),
    ]
    parsed = parse({"key": {**key, "lowercase": True}}, keys=[b'"Ab"', b"true", b"1.5", b'{"a": 1}', b"null"])
    assert (parsed.keys, [row for row, _ in parsed.invalid]) == (["ab", "true", "1.5"], [3, 4])


def test_parser_needs_the_schemas_of_values_and_of_record_keys() -> None:
    """They are fetched before a batch is processed, from a cache each: a schema has another plan for a key."""
    document: dict[str, Any] = {
        "format": "avro",
        "key": {"from": "record_key", "encoding": "avro"},
        "value": {"field": "n"},
    }
    settings = ParsingSettings.model_validate(document)
    assert settings.bind(RegistrySettings.model_validate({"url": "http://127.0.0.1:1"})) == []
    parser, guid = RecordParser(settings), UUID(int=7)
    records = RecordColumns(
        [prefix(7) + b"x", None, prefix(guid) + b"x", b"{"],
        np.zeros(4, np.int64),
        [prefix(8) + b"y", b"y", None, b""],
        [(), [(KEY_HEADER, prefix(guid))], [("other", b"")], ()],
    )
    (values, value_ids), (keys, key_ids) = parser.needed_schemas(records)
    assert (sorted(map(str, value_ids)), sorted(map(str, key_ids))) == ([str(guid), "7"], [str(guid), "8"])
    assert values is not keys
    assert parser.schemas == [values, keys]
    only_keys = ParsingSettings.model_validate({"key": document["key"]})
    assert (only_keys.reads_value, only_keys.reads_record_key, only_keys.reads_headers) == (False, True, True)
    (problem,) = only_keys.bind(None)
    assert problem.startswith("key.encoding: schemas are missing for record keys in avro: set registry.url")


def test_parser_record_key_without_fields_does_not_read_the_value() -> None:
    parsed = parse({"key": {"from": "record_key"}}, keys=[b"a", b"b"], values=[None, b"x" * 300_000])
    assert (parsed.keys, parsed.invalid) == (["a", "b"], [])


def test_parser_record_key_with_steps_applies_them() -> None:
    key = {"from": "record_key", "strip_prefix": "User-", "pattern": "[a-zA-Z]+", "lowercase": True}
    parsed = parse({"key": key, "value": {"header": "n"}}, keys=[b"User-A B"], headers=[[("n", b"4")]])
    assert (parsed.keys, parsed.values["value"].to_pylist(), parsed.records.tolist()) == (["a", "b"], [4, 4], [0, 0])


def test_parser_partition_as_key_is_its_number() -> None:
    assert parse({"key": {"from": "partition"}}, values=[b"a", None]).keys == ["3", "3"]


def test_parser_header_as_key_takes_the_last_header_of_its_name() -> None:
    headers: list[Headers] = [[("who", b"a"), ("other", b"x"), ("who", b"b")], [("who", None)], [], [("who", b"\xff")]]
    parsed = parse({"key": {"header": "who"}}, headers=headers)
    assert parsed.keys == ["b"]
    assert parsed.invalid == [
        (1, "key header who is missing"),
        (2, "key header who is missing"),
        (3, "key header who is not UTF-8"),
    ]


def test_parser_value_and_time_from_headers_combine_with_a_key_field() -> None:
    settings = {
        "key": {"field": "tags[]"},
        "value": {"header": "price", "decimals": 2},
        "time": {"header": "at", "unit": "s"},
    }
    values = [b'{"tags": ["a", "b"]}', b"{", b'{"tags": ["c"]}', b'{"tags": ["d"]}', b'{"tags": []}']
    headers = [
        [("price", b"1.25"), ("at", b"7")],
        [("price", b"1"), ("at", b"7")],
        [("price", b"x"), ("at", b"8")],
        [("price", b"1"), ("at", b"now")],
        [("price", b"1"), ("at", b"9")],
    ]
    parsed = parse(settings, values=values, headers=headers)
    assert (parsed.keys, parsed.values["value"].to_pylist(), parsed.records.tolist()) == (
        ["a", "b"],
        [125, 125],
        [0, 0],
    )
    assert parsed.times[[0, 4]].tolist() == [7_000, 9_000]
    assert parsed.invalid == [
        (1, "malformed JSON"),
        (2, "value header price is not a number within bounds"),
        (3, "time header at is not a number within bounds"),
    ]


def test_parser_record_key_with_value_field_of_each_format_reads_both() -> None:
    for splitter, value in (
        ({"format": "json", "value": {"field": "n"}}, b'{"n": 4}'),
        ({"format": "csv", "value": {"field": 1}}, b"x,4"),
    ):
        parsed = parse({**splitter, "key": {"from": "record_key"}}, keys=[b"a"], values=[value])
        assert (parsed.keys, parsed.values["value"].to_pylist()) == (["a"], [4])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"key": {"from": "record_key", "field": "k"}}, "field: set only one of from and field"),
        ({"key": {"from": "record_key", "encoding": "json", "header": "k"}}, "header: set only one of from and header"),
        ({"key": {"from": "record_key", "encoding": "avro", "field": "k[]"}}, "key.field: must not contain a list"),
        ({"key": {"from": "record_key", "encoding": "avro", "field": "k..l"}}, "key.field: 'k..l' is not a path"),
        ({"key": {"from": "record_key", "encoding": "json", "field": ""}}, "key.field: '' is not a path"),
        ({"key": {"from": "record_key", "encoding": "protobuf"}}, "key.field: missing, set the path of the key in"),
        ({"key": {"from": "partition", "header": "k"}}, "header: set only one of from and header"),
        ({"key": {"field": "k", "header": "k"}}, "header: set only one of field and header"),
        ({"key": {"field": "k", "encoding": "int64"}}, "encoding: only for the record key"),
        ({"key": {"from": "topic"}}, "Input should be 'record_key' or 'partition'"),
        ({"key": {"field": "k"}, "value": {"field": "v", "header": "v"}}, "value.header: set only one of"),
        ({"key": {"field": "k"}, "time": {"field": "t", "header": "t"}}, "time.header: set only one of"),
        ({"key": {"field": "k"}, "value": {"header": "v", "constant": 2}}, "value.constant: only for tuples without"),
        ({"format": "json"}, "key.field: missing"),
    ],
)
def test_parsing_settings_with_conflicting_sources_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ParsingSettings.model_validate(settings)


TOMBSTONE_SETTINGS: dict[str, dict[str, Any]] = {
    "field of the value": {"key": {"field": "k"}},
    "record key": {"key": {"from": "record_key"}},
    "field and condition": {"key": {"field": "k"}, "where": [{"field": "k", "is": "a"}]},
}


@pytest.mark.parametrize("settings", TOMBSTONE_SETTINGS.values(), ids=TOMBSTONE_SETTINGS.keys())
def test_parser_tombstones_are_skipped_if_the_settings_say_so(settings: dict[str, Any]) -> None:
    values = [b'{"k":"a"}', None, b'{"k":"a"}']
    parsed = parse({**settings, "tombstones": "skip"}, keys=[b"a"] * 3, values=values)
    assert (parsed.records.tolist(), parsed.filtered.tolist(), parsed.invalid) == ([0, 2], [1], [])
    assert parsed.times.tolist() == [1_000] * 3
    kept = parse(settings, keys=[b"a"] * 3, values=values)
    is_read = "field" in settings["key"]
    assert kept.invalid == ([(1, "empty record")] if is_read else [])
    assert kept.records.tolist() == ([0, 2] if is_read else [0, 1, 2])


def test_parsing_settings_other_choice_for_tombstones_is_refused() -> None:
    with pytest.raises(ValidationError, match="tombstones\n  Input should be 'dead_letter' or 'skip'"):
        ParsingSettings.model_validate({"key": {"field": "k"}, "tombstones": "ignore"})
