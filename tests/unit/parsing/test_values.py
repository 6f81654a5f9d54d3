"""Named values: products, texts, and what becomes of missing and invalid fields, in every format that has fields."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.algorithms.value_type import ValueType
from skewless.parsing.converters import LARGEST_VALUE, products
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.settings_base import InvalidSettingsError

VALUES = {
    "price": {"field": "p", "decimals": 2},
    "amount": {"field": "p", "times": "n", "decimals": 2},
    "user": {"field": "u", "kind": "text", "missing": "skip"},
    "score": {"field": "s", "decimals": 1, "missing": "skip"},
    "name": {"field": "m", "kind": "text"},
}
JSON = {"key": {"field": "k"}, "values": VALUES}
CSV = {"format": {"name": "csv", "columns": ["k", "p", "n", "m", "u", "s"]}, "key": {"field": "k"}, "values": VALUES}
NAMES = tuple(VALUES)


def parse(settings: dict[str, Any], *records: bytes) -> ParsedBatch:
    columns = RecordColumns.of_values(records, np.zeros(len(records), np.int64))
    return RecordParser(ParsingSettings.model_validate(settings)).parse(columns)


def rows(parsed: ParsedBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(parsed.values[name].to_pylist() for name in NAMES), strict=True))


def test_values_in_headers_are_named_optional_and_text() -> None:
    settings = {
        "key": {"field": "tags[]"},
        "values": {
            "price": {"header": "price", "decimals": 2},
            "amount": {"field": "n"},
            "shop": {"header": "shop", "kind": "text", "missing": "skip"},
        },
    }
    documents = [b'{"tags": ["a", "b"], "n": 3}', b'{"tags": ["c"], "n": 4}', b'{"tags": ["d"], "n": 5}']
    headers = [
        [("price", b"1.25"), ("shop", b"north")],
        [("price", b"2")],
        [("price", b"3"), ("shop", b"\xff")],
    ]
    records = RecordColumns(documents, np.zeros(3, np.int64), headers=headers)
    parsed = RecordParser(ParsingSettings.model_validate(settings)).parse(records)
    assert parsed.keys == ["a", "b", "c"]
    assert parsed.values["price"].to_pylist() == [125, 125, 200]
    assert parsed.values["amount"].to_pylist() == [3, 3, 4]
    assert parsed.values["shop"].to_pylist() == ["north", "north", None]
    assert parsed.invalid == [(2, "values.shop header shop is not UTF-8")]


def test_key_with_the_path_of_an_optional_value_is_required() -> None:
    settings = {"key": {"field": "a"}, "value": {"field": "a", "kind": "text", "missing": "skip"}}
    parsed = parse(settings, b'{"a": "x"}', b'{"a": null}', b"{}")
    assert (parsed.keys, [index for index, _ in parsed.invalid]) == (["x"], [1, 2])


def test_value_types_have_name_kind_decimals_and_whether_they_are_optional() -> None:
    assert ParsingSettings.model_validate(JSON).value_types == (
        ValueType("price", decimals=2),
        ValueType("amount", decimals=2),
        ValueType("user", "text", optional=True),
        ValueType("score", decimals=1, optional=True),
        ValueType("name", "text"),
    )


@pytest.mark.parametrize(
    ("settings", "records"),
    [
        (
            JSON,
            (
                b'{"k": "a", "p": 1.25, "n": 3, "m": "x", "u": "u1", "s": "0.5"}',
                b'{"k": "a", "p": "0.335", "n": 1, "m": 7, "u": null, "s": null}',
                b'{"k": "b", "p": -2, "n": 0.5, "m": true, "u": "", "s": ""}',
                b'{"k": "b", "p": 1e3, "n": 1, "m": "y"}',
            ),
        ),
        (CSV, (b"a,1.25,3,x,u1,0.5", b"a,0.335,1,7,,", b"b,-2,0.5,true,,", b"b,1e3,1,y")),
    ],
    ids=["json", "csv"],
)
def test_named_values_of_valid_records_are_converted_and_missing_ones_are_null(
    settings: dict[str, Any], records: tuple[bytes, ...]
) -> None:
    parsed = parse(settings, *records)
    assert parsed.invalid == []
    assert rows(parsed) == [
        (125, 375, "u1", 5, "x"),
        (34, 34, None, None, "7"),
        (-200, -100, None, None, "true"),
        (100_000, 100_000, None, None, "y"),
    ]


@pytest.mark.parametrize(
    ("field", "written", "reason"),
    [
        ("p", "null", "values.price field p has the wrong type or is out of range"),
        ("p", None, "values.price field p is missing"),
        ("p", '""', "values.price field p is not a number within bounds"),
        ("p", '"ten"', "values.price field p is not a number within bounds"),
        ("p", "1e400", "values.price field p has the wrong type or is out of range"),
        ("p", '"NaN"', "values.price field p is not a number within bounds"),
        ("p", '"Infinity"', "values.price field p is not a number within bounds"),
        ("p", "1e17", "values.price field p is not a number within bounds"),
        ("n", "1e18", "values.amount field p times n is not a product of two numbers within bounds"),
        ("n", "true", "values.amount.times field n has the wrong type or is out of range"),
        ("n", '"x"', "values.amount field p times n is not a product of two numbers within bounds"),
        ("m", "null", "values.name field m has the wrong type or is out of range"),
        ("m", '""', "values.name field m is missing"),
        ("m", '"' + 1025 * "x" + '"', "values.name field m is longer than 1024 bytes"),
        ("u", '"' + 400_000 * "x" + '"', "longer than 262144 bytes"),
        ("s", '"none"', "values.score field s is not a number within bounds"),
        ("s", "[]", "values.score field s has the wrong type or is out of range"),
    ],
)
def test_record_with_an_invalid_value_is_invalid_with_field_and_reason(
    field: str, written: str | None, reason: str
) -> None:
    fields = {"k": '"a"', "p": "1", "n": "1", "m": '"x"', "u": '"y"', "s": "1"}
    good = "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}"
    changed = fields | {field: written} if written is not None else {n: t for n, t in fields.items() if n != field}
    bad = "{" + ", ".join(f'"{name}": {text}' for name, text in changed.items()) + "}"
    parsed = parse(JSON, good.encode(), bad.encode(), good.encode())
    assert parsed.invalid == [(1, reason)]
    assert rows(parsed) == [(100, 100, "y", 10, "x")] * 2


def test_values_at_different_levels_of_lists_belong_to_the_tuples_of_their_element() -> None:
    settings = {
        "key": {"field": "items[].id"},
        "values": {
            "price": {"field": "items[].price", "missing": "skip"},
            "user": {"field": "customer.id", "kind": "text", "missing": "skip"},
        },
    }
    parsed = parse(
        settings,
        b'{"customer": {"id": "c1"}, "items": [{"id": "a", "price": 1}, {"id": "b"}]}',
        b'{"items": []}',
        b'{"items": [{"id": "c", "price": 3}]}',
        b'{"customer": null, "items": [{"id": "d", "price": null}]}',
    )
    assert parsed.invalid == []
    assert parsed.keys == ["a", "b", "c", "d"]
    assert parsed.values["price"].to_pylist() == [1, None, 3, None]
    assert parsed.values["user"].to_pylist() == ["c1", "c1", None, None]


def test_values_that_the_keys_of_a_record_share_are_those_of_their_own_record() -> None:
    """The same objects are in several records: Python has one object for each short text and small number."""
    values = {
        "v": {"field": "v"},
        "product": {"field": "v", "times": "n"},
        "name": {"field": "name", "kind": "text", "missing": "skip"},
        "each": {"field": "items[].e", "missing": "skip"},
    }
    items = [{"k": "a", "e": 1}, {"k": "b", "e": 1}, {"k": "c"}]
    records = [
        {"v": 1.6, "n": 2, "name": "x", "items": items},
        {"v": 2, "n": 2, "name": "x", "items": []},
        {"v": "x", "n": 2, "items": items},
        {"v": "x", "n": 2, "items": items},
        {"v": 2, "n": 3, "items": items[:1]},
        {"v": 2, "n": 2, "name": "x", "items": items[1:]},
    ]
    parsed = parse({"key": {"field": "items[].k"}, "values": values}, *map(msgspec.json.encode, records))
    columns = [parsed.records.tolist(), parsed.keys, *(parsed.values[name].to_pylist() for name in values)]
    assert list(zip(*columns, strict=True)) == [
        (0, "a", 2, 3, "x", 1),
        (0, "b", 2, 3, "x", 1),
        (0, "c", 2, 3, "x", None),
        (4, "a", 2, 6, None, 1),
        (5, "b", 2, 4, "x", 1),
        (5, "c", 2, 4, "x", None),
    ]
    assert parsed.invalid == [(row, "values.v field v is not a number within bounds") for row in (2, 3)]
    assert parsed.rounded == 2


def test_values_that_are_rounded_without_decimals_are_counted_with_one_warning_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = {
        "price": {"field": "p"},
        "amount": {"field": "p", "times": "n"},
        "whole": {"field": "p", "decimals": 0},
        "number": {"field": "n", "missing": "skip"},
    }
    parser = RecordParser(ParsingSettings.model_validate({"key": {"field": "k"}, "values": values}))
    records = [b'{"k": "a", "p": 1, "n": 2}', b'{"k": "a", "p": 1.5, "n": 2}', b'{"k": "a", "p": 0.25, "n": 3}']
    rounded = [
        parser.parse(RecordColumns.of_values(batch, np.zeros(len(batch), np.int64))).rounded
        for batch in (records[:1], records[1:], records[2:])
    ]
    assert rounded == [0, 5, 3]
    assert sorted(caplog.messages) == [
        f"values.{name} field p{times} is rounded to a whole number, as {of} numbers just now: "
        f"set splitter.values.{name}.decimals to the number of decimal places to keep, or to 0"
        for name, times, of in (("amount", " times n", "1 of 2"), ("price", "", "2 of 2"))
    ]


DAY_MS = 86_400_000
KAFKA_MS = 1_767_225_600_000


def warnings_of_times(caplog: pytest.LogCaptureFixture, unit: str, *batches: list[Any]) -> list[str]:
    """Parse batches of records with these times, which Kafka got in January 2026, and return the warnings."""
    settings = {"key": {"field": "k"}, "time": {"field": "at", "unit": unit}}
    parser = RecordParser(ParsingSettings.model_validate(settings))
    for batch in batches:
        values = [msgspec.json.encode({"at": at} if at == "no key" else {"k": "a", "at": at}) for at in batch]
        parser.parse(RecordColumns.of_values(values, np.full(len(values), KAFKA_MS)))
    return caplog.messages


@pytest.mark.parametrize(
    ("unit", "other", "per_second"), [("ms", "s", 1), ("us", "ms", 1000), ("us", "s", 1), ("ns", "us", 10**6)]
)
def test_times_in_a_longer_unit_than_the_set_one_are_warned_of_once(
    caplog: pytest.LogCaptureFixture, unit: str, other: str, per_second: int
) -> None:
    times = [KAFKA_MS // 1000 * per_second, (KAFKA_MS - DAY_MS) // 1000 * per_second]
    (warning,) = warnings_of_times(caplog, unit, ["no key"], times, times)
    assert warning == (
        f"time field at is in January 1970 if its unit is {unit}, and in {other} it is near the timestamps of the "
        f"records: set time.unit: {other}"
    )


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("ms", [KAFKA_MS]),
        ("ms", [0]),
        ("ms", [5 * 365 * DAY_MS]),  # 1974
        ("ms", [KAFKA_MS // 1000, KAFKA_MS]),
        ("ms", [KAFKA_MS // 1000 + 3 * DAY_MS // 1000]),  # later than the records in s
        ("s", [KAFKA_MS // 1000]),
        ("iso8601", ["1970-01-21T10:53:45"]),
    ],
)
def test_times_that_fit_no_longer_unit_are_not_warned_of(
    caplog: pytest.LogCaptureFixture, unit: str, times: list[Any]
) -> None:
    assert warnings_of_times(caplog, unit, times) == []


def test_values_are_repeated_for_all_matches_of_a_pattern() -> None:
    settings = {"key": {"field": "k", "pattern": "[a-z]+"}, "values": {"user": {"field": "u", "kind": "text"}}}
    parsed = parse(settings, b'{"k": "a b", "u": "x"}', b'{"k": "1", "u": "y"}', b'{"k": "c", "u": "z"}')
    assert (parsed.keys, parsed.values["user"].to_pylist()) == (["a", "b", "c"], ["x", "x", "z"])


numbers = st.one_of(
    st.integers(-(10**6), 10**6),
    st.decimals(-(10**5), 10**5, places=3).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**5), 10**5, places=2).map(str),
)


def test_products_of_a_number_with_more_than_1000_characters_have_its_double_and_a_text_is_refused() -> None:
    settings = {"key": {"field": "k"}, "value": {"field": "x", "times": "y"}}
    above_one = {length: "1." + "0" * (length - 3) + "1" for length in (1_000, 1_001)}
    for number, product in ((above_one[1_000], 3), (above_one[1_001], 2)):  # of exactly 2.5, half to even
        for x, y in ((number, "2.5"), ("2.5", number)):
            assert parse(settings, f'{{"k":"a","x":{x},"y":{y}}}'.encode()).values["value"].to_pylist() == [product]
            parsed = parse(settings, f'{{"k":"a","x":"{x}","y":"{y}"}}'.encode())
            assert len(parsed.invalid) == (product == 2)


@given(pairs=st.lists(st.tuples(numbers, numbers), max_size=8), decimals=st.integers(0, 4))
def test_products_of_any_numbers_are_exact_and_rounded_once(pairs: list[tuple[Any, Any]], decimals: int) -> None:
    found, problems, _ = products([x for x, _ in pairs], [y for _, y in pairs], decimals)
    for i, (x, y) in enumerate(pairs):
        exact = Decimal(str(x)) * Decimal(str(y)) * 10**decimals
        rounded = exact.to_integral_value(ROUND_HALF_EVEN) if exact.adjusted() < 20 else exact
        if abs(rounded) > LARGEST_VALUE:
            assert i in problems
        else:
            assert (i not in problems, int(found[i])) == (True, int(rounded))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"value": {"field": "v"}, "values": {"price": {"field": "p"}}}, "value: move it into values"),
        ({"values": {"time": {"field": "p"}}}, "values.time: this name is used by other fields"),
        ({"values": {"a": {"times": "n"}}}, "values.a.times: needs a field"),
        ({"values": {"a": {"kind": "text"}}}, "values.a.kind: needs a field"),
        ({"values": {"a": {"missing": "skip"}}}, "values.a.missing: needs a field"),
        ({"values": {"a": {"field": "p", "header": "h"}}}, "values.a.header: set only one of field and header"),
        ({"values": {"a": {"header": "h", "times": "p"}}}, "values.a.times: needs a field"),
        (
            {"key": {"fields": [{"field": "k"}, {"field": "P"}]}, "values": {"p": {"field": "p"}}},
            "key.fields.1.name: P is a value",
        ),
        (
            {"key": {"from": "record_key"}, "values": {"a": {"field": "x[].p"}}},
            "values.a.field: must not contain a list",
        ),
        ({"values": {"a": {"field": "p", "kind": "text", "decimals": 2}}}, "values.a.decimals: only for numbers"),
        ({"values": {"a": {"field": "p", "kind": "text", "times": "n"}}}, "values.a.times: only for numbers"),
        ({"values": {"a": {"field": "p", "constant": 2}}}, "values.a.constant: only for tuples without"),
        ({"values": {"a": {"field": "x[].p"}}}, "values.a.field: must contain only lists that key.field contains"),
        ({"values": {"a": {"field": "p", "times": "p.n"}}}, "values.a.times: conflicts with values.a.field"),
        ({"values": {"a": {"field": "p", "times": "."}}}, "values.a.times: '.' is not a path"),
    ],
)
def test_settings_of_values_that_do_not_fit_are_refused_by_their_path(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ParsingSettings.model_validate({"key": {"field": "k"}} | settings)
    (error,) = caught.value.errors()
    cause = error["ctx"]["error"]
    assert isinstance(cause, InvalidSettingsError)
    assert [text for text in cause.problems if text.startswith(problem)]
