"""Laws of every record format, for every input."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.parsing.fixed_point import FixedPoint
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

LIMITS = {"record_bytes": 60, "key_bytes": 8, "max_depth": 3, "tuples_per_record": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "json": {"key": {"field": "k"}, "value": {"field": "v", "decimals": 2}, "time": {"field": "t", "unit": "s"}},
    "json list": {"key": {"field": "k[]", "lowercase": True, "pattern": "[a-z0-9]+"}, "time": {"field": "t"}},
    "json skip and merge": {
        "key": {"field": "k[]", "drop_if_contains": [" "], "rename_if_contains": {"one": ["X", "5"]}},
        "value": {"field": "v"},
    },
    "csv": {"format": "csv", "key": {"field": 1}, "value": {"field": 0}, "time": {"field": 2, "unit": "iso8601"}},
    "csv quoted": {
        "format": {"name": "csv", "quoting": True},
        "key": {"field": 0},
        "value": {"field": 1, "decimals": 1},
    },
    "tsv": {"format": "tsv", "key": {"field": 1, "pattern": "[^.]+"}, "time": {"field": 0, "unit": "us"}},
    "csv date and time": {
        "format": "csv",
        "key": {"field": 1},
        "time": {"field": 0, "of_day": 2, "unit": "iso8601"},
    },
    "text": {"format": "text", "key": {"pattern": r"\w+", "lowercase": True}},
}
SCALARS = [
    '"a"',
    '"A b"',
    '"1.5"',
    '"é"',
    "5",
    "-0.125",
    "1e3",
    "1e99",
    "9" * 20,
    "true",
    "null",
    "{}",
    "[]",
    '["x","Y z"]',
]
JSON = st.lists(st.tuples(st.sampled_from(["k", "v", "t", "x"]), st.sampled_from(SCALARS)), max_size=5).map(
    lambda fields: ("{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}").encode()
)
CELLS = ["a", "a.b", "7", "-1.25", "", '"q"', '"', "2016-11-08 01:20:50", "2016-11-08", "01:20:50,123", "é", "x" * 9]
LINES = st.tuples(st.lists(st.sampled_from(CELLS), max_size=4), st.sampled_from([",", "\t", " "])).map(
    lambda line: line[1].join(line[0]).encode()
)
NOISE = st.binary(max_size=80) | st.text('[]{}",:\\\0 0123456789.ek', max_size=70).map(str.encode)
RECORDS = st.lists(st.none() | JSON | LINES | NOISE, max_size=12)


def parse(name: str, values: Sequence[bytes | None]) -> ParsedBatch:
    settings = ParsingSettings.model_validate({**SETTINGS[name], "limits": LIMITS})
    return RecordParser(settings).parse(RecordColumns.of_values(values, np.arange(len(values), dtype=np.int64)))


def by_record(parsed: ParsedBatch) -> list[Any]:
    """Return, per record, the reason why it is invalid, or its tuples."""
    reasons = dict(parsed.invalid)
    tuples: list[list[tuple[str, int]]] = [[] for _ in parsed.times]
    for key, value, record in zip(
        parsed.keys, parsed.values["value"].to_pylist(), parsed.records.tolist(), strict=True
    ):
        tuples[record].append((key, value))
    return [reasons[i] if i in reasons else tuples[i] for i in range(len(parsed.times))]


@pytest.mark.parametrize("name", SETTINGS)
@given(values=RECORDS)
def test_format_parser_each_record_alone_gives_the_result_of_its_batch(name: str, values: list[bytes | None]) -> None:
    assert by_record(parse(name, values)) == [by_record(parse(name, [value]))[0] for value in values]


@pytest.mark.parametrize("name", SETTINGS)
@given(values=RECORDS, cut=st.integers(0, 12))
def test_format_parser_batch_split_anywhere_is_parsed_equally(name: str, values: list[bytes | None], cut: int) -> None:
    whole, left, right = parse(name, values), parse(name, values[:cut]), parse(name, values[cut:])
    assert by_record(whole) == by_record(left) + by_record(right)
    if "time" in SETTINGS[name]:
        good = [i for i in range(len(values)) if i not in dict(whole.invalid)]
        assert whole.times[good].tolist() == np.concatenate([left.times, right.times])[good].tolist()


@pytest.mark.parametrize("name", SETTINGS)
@given(values=RECORDS)
def test_format_parser_columns_of_any_batch_are_consistent(name: str, values: list[bytes | None]) -> None:
    parsed = parse(name, values)
    assert len(parsed.keys) == len(parsed.values["value"]) == len(parsed.records)
    assert len(parsed.times) == len(values)
    assert (np.diff(parsed.records) >= 0).all()
    assert not set(parsed.records.tolist()) & dict(parsed.invalid).keys()
    assert [i for i, _ in parsed.invalid] == sorted(dict(parsed.invalid))
    assert all(len(key.encode()) <= LIMITS["key_bytes"] for key in parsed.keys)
    assert [str(column.dtype) for column in (parsed.values["value"].to_numpy(), parsed.records, parsed.times)] == [
        "int64",
        "int32",
        "int64",
    ]


@given(
    column=st.lists(st.integers() | st.integers(-(10**17), 10**17) | st.floats() | st.floats(-1e6, 1e6))
    | st.lists(st.integers(-(10**6), 10**6).map(lambda thousandths: thousandths / 1000))
    | st.lists(st.integers().map(str) | st.floats().map(str) | st.text("0123456789.-+eE_ ", max_size=8)),
    decimals=st.integers(0, 9),
    rounding=st.sampled_from([ROUND_FLOOR, ROUND_HALF_EVEN]),
    limit=st.sampled_from([2**53, 253_402_300_799_999, 253_402_300_799_999_999]),
)
def test_fixed_point_column_equals_decimal_arithmetic(
    column: list[str | int | float], decimals: int, rounding: str, limit: int
) -> None:
    fixed = FixedPoint(decimals, rounding, limit)
    result, failed = fixed.convert(column)
    exact = [fixed.exact(entry) for entry in column]
    assert failed == [i for i, number in enumerate(exact) if number is None]
    assert result.tolist() == [number or 0 for number in exact]
