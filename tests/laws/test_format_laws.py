"""Laws of every record format, for every input."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.formats import SIMPLEST
from skewless.parsing.converters import LARGEST_VALUE
from skewless.parsing.fixed_point import FixedPoint
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

LIMITS = {"record_bytes": 60, "key_bytes": 8, "max_depth": 3, "tuples_per_record": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    **SIMPLEST,
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


LONG_NUMBERS = st.builds(
    "{}.{}{}".format,
    st.integers(-(10**12), 10**12),
    st.text("0123456789", max_size=6),
    st.sampled_from(["", "9" * 9, "0" * 9, "0" * 8 + "1"]),
)
"""Texts with more digits than their doubles, often near one with few digits."""


@given(
    column=st.lists(st.integers() | st.integers(-(10**17), 10**17) | st.floats() | st.floats(-1e6, 1e6))
    | st.lists(st.integers(-(10**6), 10**6).map(lambda thousandths: thousandths / 1000))
    | st.lists(st.integers().map(str) | st.floats().map(str) | st.text("0123456789.-+eE_ ", max_size=8))
    | st.lists(LONG_NUMBERS),
    decimals=st.integers(0, 9),
    rounding=st.sampled_from([ROUND_FLOOR, ROUND_HALF_EVEN]),
    limit=st.sampled_from([2**53, 253_402_300_799_999, 253_402_300_799_999_999]),
)
def test_fixed_point_column_equals_decimal_arithmetic(
    column: list[str | int | float], decimals: int, rounding: str, limit: int
) -> None:
    fixed = FixedPoint(decimals, rounding, limit)
    result, failed, _ = fixed.convert(column)
    exact = [fixed.exact(entry) for entry in column]
    assert failed == [i for i, number in enumerate(exact) if number is None]
    assert result.tolist() == [number or 0 for number in exact]


SHORT_NUMBERS = st.builds("{}.{}".format, st.integers(-(10**6), 10**6), st.text("0123456789", max_size=6))


@given(numbers=st.lists(SHORT_NUMBERS), decimals=st.integers(0, 7), is_text=st.booleans(), is_alone=st.booleans())
def test_fixed_point_rounded_numbers_are_those_with_more_decimals(
    numbers: list[str], decimals: int, *, is_text: bool, is_alone: bool
) -> None:
    fixed = FixedPoint(decimals, ROUND_HALF_EVEN, LARGEST_VALUE)
    column = [number if is_text else float(number) for number in numbers]
    # A word among the numbers makes the conversion read each one alone.
    converted = fixed.convert([*column, "word"] if is_alone else column)
    exact = [Decimal(number).scaleb(decimals) for number in numbers]
    assert converted.rounded == sum(number != number.to_integral_value() for number in exact)
    products = fixed.convert_products([*column, "word"] if is_alone else column, [1] * (len(column) + is_alone))
    assert (products.numbers.tolist(), *products[1:]) == (converted.numbers.tolist(), *converted[1:])


@st.composite
def json_numbers(draw: st.DrawFn) -> str:
    """Return a JSON number with up to 40 digits, often near a half, near a double or near the largest value."""
    kind = draw(st.sampled_from(["digits", "half", "double", "limit"]))
    if kind == "double":
        return repr(draw(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e17, max_value=1e17)))
    sign = draw(st.sampled_from(["", "-"]))
    if kind == "limit":
        digits = str(2**63 + draw(st.integers(-2, 1)))
        point = draw(st.integers(0, 9))
        fraction = digits[len(digits) - point :] + draw(st.sampled_from(["", "0", "4999", "5", "5001"]))
        return f"{sign}{digits[: len(digits) - point]}" + (f".{fraction}" if fraction else "")
    integer = draw(st.integers(0, 10 ** draw(st.integers(0, 19))))
    fraction = draw(st.text("0123456789", max_size=20))
    if kind == "half":
        fraction = fraction[:9] + "5" + draw(st.sampled_from(["", "0" * 15, "0" * 20 + "1"]))
    exponent = draw(st.sampled_from(["", "", "", "e0", "E+2", "e-3", "e17", "e-25"]))
    return f"{sign}{integer}" + (f".{fraction}" if fraction else "") + exponent


def fixed_point_of(number: Decimal, decimals: int) -> int | None:
    """Return the number in units of its last decimal place, computed with `decimal` alone."""
    exact = Context(prec=200)
    rounded = int(number.scaleb(decimals, exact).to_integral_value(ROUND_HALF_EVEN, exact))
    return rounded if abs(rounded) < 2**63 else None


def parsed_values(settings: dict[str, Any], records: Sequence[str]) -> list[int | None]:
    """Return the value of each record, or None if it is a dead letter."""
    parser = RecordParser(ParsingSettings.model_validate(settings))
    values = [record.encode() for record in records]
    parsed = parser.parse(RecordColumns.of_values(values, np.zeros(len(values), np.int64)))
    assert {reason for _, reason in parsed.invalid} <= {
        "value field v is not a number within bounds",
        "value field 1 is not a number within bounds",
        "value field x times y is not a product of two numbers within bounds",
    }
    found = dict(zip(parsed.records.tolist(), parsed.values["value"].to_pylist(), strict=True))
    return [found.get(i) for i in range(len(records))]


@given(numbers=st.lists(json_numbers(), max_size=6), decimals=st.integers(0, 9))
def test_value_of_any_number_has_all_digits_of_its_text_in_every_format(numbers: list[str], decimals: int) -> None:
    expected = [fixed_point_of(Decimal(number), decimals) for number in numbers]
    value = {"field": "v", "decimals": decimals}
    as_json = {"key": {"field": "k"}, "value": value}
    assert parsed_values(as_json, [f'{{"k":"a","v":{number}}}' for number in numbers]) == expected
    assert parsed_values(as_json, [f'{{"k":"a","v":" 00{number.lstrip("-")}"}}' for number in numbers]) == [
        fixed_point_of(Decimal(number).copy_abs(), decimals) for number in numbers
    ]
    csv = {"format": "csv", "key": {"field": 0}, "value": {"field": 1, "decimals": decimals}}
    assert parsed_values(csv, [f"a,{number}" for number in numbers]) == expected


@given(numbers=st.lists(st.none() | json_numbers(), max_size=6), decimals=st.integers(0, 9))
def test_optional_value_in_a_list_has_all_digits_of_its_text(numbers: list[str | None], decimals: int) -> None:
    valid = [n for n in numbers if n is None or fixed_point_of(Decimal(n), decimals) is not None]
    value = {"field": "i[].v", "decimals": decimals, "missing": "skip"}
    settings = ParsingSettings.model_validate({"key": {"field": "i[].k"}, "value": value})
    records = [valid[:1], [], valid[1:]]
    texts = [",".join(f'{{"k":"a","v":{"null" if n is None else n}}}' for n in record) for record in records]
    parsed = RecordParser(settings).parse(
        RecordColumns.of_values([f'{{"i":[{text}]}}'.encode() for text in texts], np.zeros(3, np.int64))
    )
    expected = [None if n is None else fixed_point_of(Decimal(n), decimals) for n in valid]
    assert parsed.values["value"].to_pylist() == expected


@given(pairs=st.lists(st.tuples(json_numbers(), json_numbers()), max_size=4), decimals=st.integers(0, 9))
def test_product_of_any_numbers_has_all_digits_of_their_texts(pairs: list[tuple[str, str]], decimals: int) -> None:
    exact = Context(prec=200)
    expected = [fixed_point_of(exact.multiply(Decimal(x), Decimal(y)), decimals) for x, y in pairs]
    settings = {"key": {"field": "k"}, "value": {"field": "x", "times": "y", "decimals": decimals}}
    assert parsed_values(settings, [f'{{"k":"a","x":{x},"y":"{y}"}}' for x, y in pairs]) == expected
    assert parsed_values(settings, [f'{{"k":"a","x":{x},"y":{y}}}' for x, y in pairs]) == expected


@given(pairs=st.lists(st.tuples(json_numbers(), json_numbers()), min_size=1, max_size=4), data=st.data())
def test_product_of_a_record_with_a_long_number_does_not_depend_on_its_batch(
    pairs: list[tuple[str, str]], data: st.DataObject
) -> None:
    """A long text is invalid, and a long number is read as a double, in whatever way the batch is converted."""
    zeros = data.draw(st.integers(990, 1_010))
    long = f"{data.draw(st.integers(1, 9))}.{'0' * zeros}{data.draw(st.sampled_from(['', '1']))}"
    settings = ParsingSettings.model_validate({"key": {"field": "k"}, "value": {"field": "x", "times": "y"}})
    for quote in ("", '"'):
        records = [f'{{"k":"a","x":{quote}{x}{quote},"y":{y}}}'.encode() for x, y in (*pairs, (long, "2.5"))]
        alone, batch = (
            RecordParser(settings).parse(RecordColumns.of_values(part, np.zeros(len(part), np.int64)))
            for part in (records[-1:], records)
        )
        assert (dict(alone.invalid).get(0) is None) == (len(long) <= 1_000 or not quote)
        assert dict(batch.invalid).get(len(pairs)) == dict(alone.invalid).get(0)
        is_last = batch.records == len(pairs)
        assert batch.values["value"].filter(pa.array(is_last)).to_pylist() == alone.values["value"].to_pylist()
