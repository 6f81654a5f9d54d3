"""Composite keys: the JSON array of their parts, some of them truncated times."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.config.pipeline_settings import PipelineSettings
from skewless.parsing.composite_key import encode_keys
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.wire.tuples import parts_of

WRONG_TYPE = "key part category field category has the wrong type or is out of range"
HOURS = {"fields": [{"field": "category"}, {"field": "time", "name": "hour", "truncate": "hour"}]}
JSON = {"key": HOURS, "time": {"field": "time", "unit": "iso8601"}}


def parse(settings: dict[str, Any], *values: bytes) -> ParsedBatch:
    timestamps = np.full(len(values), 90_061_001, np.int64)
    records = RecordColumns(values, timestamps, [b"rk"] * len(values), [[("h", b'"')]] * len(values), 3)
    return RecordParser(ParsingSettings.model_validate(settings)).parse(records)


@given(rows=st.lists(st.tuples(st.text(), st.text(), st.text()), unique=True))
def test_composite_keys_of_any_texts_are_distinct_and_contain_their_parts(rows: list[tuple[str, ...]]) -> None:
    keys = encode_keys(zip(*rows, strict=True)) if rows else []
    assert [tuple(parts_of(key)) for key in keys] == rows
    assert [tuple(json.loads(key)) for key in keys] == rows
    assert len(set(keys)) == len(rows)


def test_parser_composite_key_of_fields_is_a_compact_json_array() -> None:
    parsed = parse(
        JSON,
        '{"category": "b\\"ü,", "time": "2010-12-01 08:59:59.999", "n": 1}'.encode(),
        b'{"category": 5, "time": "2010-12-01T10:30:00+02:00"}',
        b'{"category": true, "time": "1969-12-31 23:00:00"}',
    )
    assert parsed.keys == [
        '["b\\"ü,","2010-12-01T08:00:00Z"]',
        '["5","2010-12-01T08:00:00Z"]',
        '["true","1969-12-31T23:00:00Z"]',
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"time": "2010-12-01 08:00:00"}', "key part category field category is missing"),
        (
            b'{"category": null, "time": "2010-12-01 08:00:00"}',
            WRONG_TYPE,
        ),
        (b'{"category": "a"}', "key part hour field time is missing"),
        (b'{"category": "a", "time": "soon"}', "time field time is not ISO 8601"),
    ],
)
def test_parser_record_without_a_part_is_invalid(value: bytes, reason: str) -> None:
    parsed = parse(JSON, b'{"category": "a", "time": "2010-12-01 08:00:00"}', value)
    assert parsed.invalid == [(1, reason)]
    assert parsed.records.tolist() == [0]


def test_parser_parts_from_everywhere_combine() -> None:
    key = {
        "fields": [
            {"from": "record_key"},
            {"from": "partition", "name": "shard"},
            {"from": "time", "name": "minute", "truncate": "minute"},
            {"header": "h"},
            {"field": 1, "name": "second"},
            {"field": 2, "name": "day", "truncate": "day", "unit": "s"},
        ]
    }
    parsed = parse({"format": "csv", "key": key}, b"x,b,90061", b"x,b", b"x,b,now")
    assert parsed.keys == ['["rk","3","1970-01-02T01:01:00Z","\\"","b","1970-01-02T00:00:00Z"]']
    assert parsed.invalid == [
        (1, "key part day field 2 is missing"),
        (2, "key part day field 2 is not a number within bounds"),
    ]


def test_parser_composite_key_longer_than_the_limit_is_invalid() -> None:
    settings = {**JSON, "limits": {"key_bytes": 30}}
    parsed = parse(settings, b'{"category": "aaaa", "time": "2010-12-01 08:00:00"}')
    assert parsed.invalid == [(0, "key is longer than 30 bytes")]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ({"fields": [{"field": "a"}]}, "at least 2 parts"),
        ({"fields": [{"field": f"f{i}"} for i in range(9)]}, "at most 8 items"),
        ({"fields": [{"field": "a"}, {"header": "A"}]}, "two parts are named A"),
        ({"fields": [{"field": "a"}, {"field": "Window_Start"}]}, "is a field of public records already"),
        ({"fields": [{"field": "a"}, {"field": "b.c"}]}, "'b.c' is not a name of letters"),
        ({"fields": [{"field": "a"}, {"field": 1}]}, "'1' is not a name"),
        ({"fields": [{"field": "a"}, {"field": "b", "header": "b"}]}, "exactly one of from, field and header"),
        ({"fields": [{"field": "a"}, {"name": "b"}]}, "exactly one of from, field and header"),
        ({"fields": [{"field": "a"}, {"from": "time", "name": "t"}]}, "truncate: missing"),
        ({"fields": [{"field": "a"}, {"field": "b", "unit": "s"}]}, "unit: only for"),
        ({"fields": [{"field": "a"}, {"field": "b[].c", "name": "b"}]}, "key.fields.1.field: must not contain a list"),
        ({"fields": [{"field": "a"}, {"field": "b"}], "pattern": "x"}, "pattern: not for a composite key"),
        ({"fields": [{"field": "a"}, {"field": "b"}], "lowercase": True}, "lowercase: not for a composite key"),
        ({"fields": [{"field": "a"}, {"field": "b"}], "field": "c"}, "set only one of field and fields"),
    ],
)
def test_composite_key_settings_that_are_ambiguous_are_refused(key: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ParsingSettings.model_validate({"key": key})


def test_composite_key_part_with_the_name_of_an_aggregate_is_refused() -> None:
    document = {
        "name": "p",
        "source": {"topic": "t"},
        "splitter": {"key": {"fields": [{"field": "a"}, {"field": "count"}]}},
    }
    with pytest.raises(ValidationError, match=r"fields\.1\.name: count is a result of aggregator\.aggregates"):
        PipelineSettings.model_validate(document)


@pytest.mark.parametrize("name", ["rank", "Rank"])
def test_composite_key_part_with_the_name_of_the_rank_is_refused_where_keys_are_ranked(name: str) -> None:
    document = {
        "name": "p",
        "source": {"topic": "t"},
        "splitter": {"key": {"fields": [{"field": "a"}, {"field": name}]}},
    }
    PipelineSettings.model_validate(document)
    with pytest.raises(ValidationError, match=r"splitter\.key\.fields: rank is a field of topic top"):
        PipelineSettings.model_validate({**document, "aggregator": {"top": {"n": 3, "by": "count"}}})
