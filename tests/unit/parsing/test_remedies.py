"""Remedies of the reasons that parsers give."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from skewless.parsing.record_parser import RecordParser
from skewless.parsing.remedies import remedy_of
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns


@pytest.mark.parametrize(
    ("record", "splitter", "limits", "remedy"),
    [
        (None, {}, {}, "to leave out records without a value, set splitter.tombstones: skip"),
        ({"k": "a" * 90}, {}, {"record_bytes": 50}, "to read longer records, raise splitter.limits.record_bytes"),
        ({"k": "a" * 90}, {}, {"key_bytes": 50}, "to accept longer keys, raise splitter.limits.key_bytes"),
        (
            {"k": "a" * 90},
            {"key": {"field": "k", "pattern": "a"}},
            {"pattern_input_bytes": 50},
            "to search longer keys, raise splitter.limits.pattern_input_bytes",
        ),
        (
            {"k": "a", "v": "a" * 90},
            {"value": {"field": "v", "kind": "text"}},
            {"text_bytes": 50},
            "to accept longer texts, raise splitter.limits.text_bytes",
        ),
        (
            {"k": ["a", "b"]},
            {"key": {"field": "k[]"}},
            {"tuples_per_record": 1},
            "to accept more tuples of a record, raise splitter.limits.tuples_per_record",
        ),
        ({"k": "a", "o": [[[]]]}, {}, {"max_depth": 2}, "to read deeper records, raise splitter.limits.max_depth"),
        ({"o": "a"}, {}, {}, None),
    ],
)
def test_remedy_of_a_record_names_the_setting_with_which_it_is_valid(
    record: Any, splitter: dict[str, Any], limits: dict[str, int], remedy: str | None
) -> None:
    settings = ParsingSettings.model_validate({"format": "json", "key": {"field": "k"}, "limits": limits, **splitter})
    value = None if record is None else json.dumps(record).encode()
    ((_, reason),) = RecordParser(settings).parse(RecordColumns.of_values([value], np.zeros(1, np.int64))).invalid
    assert remedy_of(reason) == remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("empty record", None),
        ("longer than 5 bytes", "to read longer records, raise join.left.limits.record_bytes"),
        ("id field user is longer than 5 bytes", "to accept longer keys, raise join.left.limits.key_bytes"),
        ("id is longer than 5 bytes", "to accept longer keys, raise join.left.limits.key_bytes"),
        ("broken Avro: is nested too deep (schema 3)", "to read deeper records, raise join.left.limits.max_depth"),
    ],
)
def test_remedy_of_a_side_of_a_join_names_its_section(reason: str, remedy: str | None) -> None:
    assert remedy_of(reason, "join.left") == remedy


@pytest.mark.parametrize(
    ("key", "limits", "remedy"),
    [
        (b'{"k":"aaaa"}', {"record_bytes": 5}, "to read longer records, raise splitter.limits.record_bytes"),
        (b'{"k":[[[]]]}', {"max_depth": 2}, "to read deeper records, raise splitter.limits.max_depth"),
    ],
)
def test_remedy_of_a_record_key_with_a_format_names_the_setting(
    key: bytes, limits: dict[str, int], remedy: str
) -> None:
    source = {"from": "record_key", "encoding": "json", "field": "k"}
    parser = RecordParser(ParsingSettings.model_validate({"key": source, "limits": limits}))
    ((_, reason),) = parser.parse(RecordColumns([b"{}"], np.zeros(1, np.int64), [key], [()])).invalid
    assert reason.startswith("record key: ")
    assert remedy_of(reason) == remedy
