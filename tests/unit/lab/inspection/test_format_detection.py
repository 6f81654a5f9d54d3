"""The format and the fields that are detected from values of records."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from skewless.lab.inspection.field_roles import (
    TimeField,
    UnreadTime,
    key_fields,
    time_fields,
    unread_time_of_lines,
    unread_times,
)
from skewless.lab.inspection.format_detection import detect, detect_in
from skewless.parsing.envelopes import ENVELOPES

AT_S = 1_795_862_000
TEXT = "2026-11-28T10:30:00Z"


def documents(count: int = 100) -> list[bytes | None]:
    return [
        json.dumps(
            {"id": i, "user": {"name": f"u{i % 7}"}, "tags": [f"t{i % 3}"], "price": i + 0.5, "at": 1_700_000_000 + i}
        ).encode()
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("values", "description", "settings"),
    [
        (documents(), "JSON", {"name": "json"}),
        ([b"1;a;3", b"2;b;4"] * 20, '3 columns, delimiter ";"', {"name": "csv", "delimiter": ";"}),
        ([b"1\ta, b\n", b"2\tc\n"] * 20, "2 columns, delimiter tab", {"name": "tsv"}),
        ([b'1,"a"', b"2,b"] * 20, '2 columns, delimiter ","', {"name": "csv", "delimiter": ",", "quoting": True}),
        (
            [b"en Main_Page 42 1000", b"de Haus 1 2"] * 20,
            "4 columns, delimiter space",
            {"name": "csv", "delimiter": " "},
        ),
        (
            [b"1995-07-01 04:00:00,%03d INFO x" % i for i in range(20)],
            "4 columns, delimiter space",
            {"name": "csv", "delimiter": " "},
        ),
        ([b"the quick brown fox", b"jumps", b"over the dog"] * 20, "text", {"name": "text"}),
        ([b"\xff\xfe"] * 20, "binary", None),
        ([None, None], "no values", None),
    ],
)
def test_detect_values_of_a_format_are_recognised(
    values: list[bytes | None], description: str, settings: dict[str, Any] | None
) -> None:
    found = detect(values)
    assert (found.description, found.settings) == (description, settings)


@pytest.mark.parametrize(
    ("pattern", "description"),
    [
        (b"[%s]", "JSON arrays"),
        (b"[1, 2]", "JSON arrays"),
        (b'"{\\"user\\": 1, \\"at\\": 2}"', "JSON objects in JSON strings"),
        (b"%s\n%s\n", "several JSON objects per record"),
        (b"\xef\xbb\xbf%s", "JSON objects after a byte order mark"),
    ],
)
def test_detect_json_that_is_not_one_object_per_record_is_no_columns(pattern: bytes, description: str) -> None:
    values = [pattern.replace(b"%s", document or b"") for document in documents()]
    found = detect([*values, b"broken", None])
    assert (found.description, found.settings) == (description, None)
    assert "splitter.python" in (found.advice or "")


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"user.id": 7, "user": "u1"}, "'user.id'"),
        ({"user": {"id[]": 7}}, "'id[]'"),
        ({"users": [{"id": 7, "": 8}]}, "''"),
        ({"user": 'u"1"', "tags": ["a.b"]}, None),
    ],
)
def test_detect_field_that_no_setting_can_name_is_advised(document: dict[str, Any], name: str | None) -> None:
    found = detect([*documents(), json.dumps(document).encode()])
    assert (found.settings, found.advice is None) == ({"name": "json"}, name is None)
    assert name is None or f"no setting can name the field {name}: a function in splitter.python" in (
        found.advice or ""
    )


def test_detect_in_an_envelope_no_function_is_advised() -> None:
    document = json.dumps({"user.id": 7}).encode()
    assert detect_in(ENVELOPES["cloudevents"].model_validate({}), [document]).advice is None


@pytest.mark.parametrize("value", [b'"a,b","c"', b"[1995] GET /", b'"a, b"', b"[1, 2", b"{\n}\nx"])
def test_detect_lines_that_begin_as_json_are_lines(value: bytes) -> None:
    found = detect([value] * 20)
    assert (found.settings or {})["name"] in {"csv", "text"}


def test_detect_a_few_broken_records_do_not_change_the_format() -> None:
    assert detect([*documents(), b"{", None, b"\xff"]).settings == {"name": "json"}


@pytest.mark.parametrize(
    "broken", [b"{", b'{"user": ', b'{"user": "\xff"}', b"\xff\x00", b'{"user": ' + b"[" * 100_000]
)
def test_detect_json_of_which_a_third_is_broken_is_json(broken: bytes) -> None:
    found = detect([*documents(200), *[broken] * 100])
    assert found.settings == {"name": "json"}
    assert {field.reference for field in found.fields} >= {"user.name", "at"}


def test_detect_json_fields_have_paths_of_settings_and_their_share() -> None:
    found = {field.reference: field.share for field in detect([*documents(), b'{"id": 1, "a.b": 2}']).fields}
    assert found.keys() == {"id", "user.name", "tags[]", "price", "at"}
    assert found["id"] == 1
    assert found["at"] == pytest.approx(100 / 101)


def test_key_fields_repeated_texts_come_first_and_measures_and_times_are_left_out() -> None:
    found = detect(documents())
    assert list(key_fields(found, time_fields(found))) == ["user.name", "tags[]", "id"]


def test_key_fields_list_that_is_empty_in_most_records_is_a_candidate() -> None:
    values: list[bytes | None] = [b'{"tags": ["a"]}' if i % 10 == 0 else b'{"tags": []}' for i in range(100)]
    assert list(key_fields(detect(values), [])) == ["tags[]"]


def test_key_fields_list_that_is_empty_in_some_records_comes_after_a_field_of_all() -> None:
    found = detect(
        [json.dumps({"city": f"c{i % 4}", "items": [f"i{i % 30}"] if i % 5 else []}).encode() for i in range(200)]
    )
    assert list(key_fields(found, [])) == ["city", "items[]"]


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        (1_700_000_000, "s"),
        (1_700_000_000_000, "ms"),
        (1_700_000_000_000_000, "us"),
        (1_700_000_000_000_000_000, "ns"),
        ("2026-03-01 10:00:00", "iso8601"),
        ("2026-03-01T10:00:00+01:00", "iso8601"),
        ("1700000000", "s"),
    ],
)
def test_time_fields_unit_is_detected(time: Any, unit: str) -> None:
    values: list[bytes | None] = [json.dumps({"key": "a", "when": time}).encode()] * 10
    assert [(field.reference, field.unit) for field in time_fields(detect(values))] == [("when", unit)]


def test_time_fields_numbers_that_are_no_times_are_left_out() -> None:
    values: list[bytes | None] = [
        json.dumps({"bytes": size, "day": "20101201"}).encode() for size in (1, 5_000_000_000)
    ]
    assert time_fields(detect(values)) == []


def test_time_fields_columns_are_numbers() -> None:
    assert time_fields(detect([b"1700000000\ta", b"1700000001\tb"] * 10)) == [TimeField(0, "s")]


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([b"1995-07-01 04:00:%02d,000 INFO" % i for i in range(9)], [TimeField(0, "iso8601", 1)]),
        ([b"1995-07-01;4;%d" % i for i in range(9)], [TimeField(0, "iso8601")]),
        (
            [b'{"day": "1995-07-01", "at": "1995-07-01T04:00:00Z"}'],
            [TimeField("at", "iso8601"), TimeField("day", "iso8601")],
        ),
        ([b'{"clock": "04:00", "day": "1995-07-01"}'], [TimeField("day", "iso8601", "clock")]),
    ],
)
def test_time_fields_date_is_joined_with_a_time_of_day_or_comes_last(
    records: list[bytes | None], found: list[TimeField]
) -> None:
    assert time_fields(detect(records)) == found


def test_key_fields_time_of_day_is_left_out() -> None:
    found = detect([b"1995-07-01 04:00:%02d,000 INFO" % (i % 5) for i in range(20)])
    assert key_fields(found, time_fields(found)) == {2: True}


def test_detect_values_of_several_kinds_have_their_shares() -> None:
    registry = b"\x00\x00\x00\x01\x07\xfe\xff"
    found = detect([*documents(60), *[b"a text"] * 20, *[registry] * 15, *[b"\xff\xfe"] * 5])
    assert found.settings == {"name": "json"}
    assert found.kinds == {"JSON": 0.6, "text": 0.2, "binary with a schema id": 0.15, "binary": 0.05}
    assert detect(documents()).kinds == {}


def test_time_fields_basic_form_of_iso_8601_is_read() -> None:
    values: list[bytes | None] = [b'{"at": "20261128T103000Z", "day": "20261128", "n": 20261128}'] * 10
    assert time_fields(detect(values)) == [TimeField("at", "iso8601")]


@pytest.mark.parametrize(
    ("records", "name"),
    [
        ([{"at": TEXT} if number % 4 else {} for number in range(40)], "at"),
        ([{"at": TEXT} if number % 5 > 2 else {"at": None} for number in range(40)], "at"),
        ([{"at": TEXT if number % 5 else ""} for number in range(40)], "at"),
        ([{"at": "NULL" if number % 5 > 1 else TEXT} for number in range(40)], "at"),
        ([{"at": TEXT if number % 3 else AT_S} for number in range(40)], "at"),
        ([{"at": AT_S * (1000 if number % 4 else 1)} for number in range(40)], "at"),
        ([{"at": (AT_S + number) * (10**9 if number % 4 else 1)} for number in range(40)], "at"),
        ([{"at": (AT_S + number) * (1000 if number % 3 else 10**6)} for number in range(40)], "at"),
        ([{"at": AT_S * 1000 ** (number % 3)} for number in range(40)], "at"),
        ([{"at": (AT_S + number) * 10**6 if number % 5 else 0} for number in range(40)], "at"),
        ([{"at": (AT_S + number) * 1000 if number % 5 else -1} for number in range(40)], "at"),
        ([{"at": str(AT_S + number) if number % 5 else "n/a"} for number in range(40)], "at"),
        ([{"readings": [{"t": AT_S * 1000}]}] * 40, "readings[].t"),
    ],
)
def test_unread_times_are_those_that_cannot_be_the_event_time(records: list[dict[str, Any]], name: str) -> None:
    found = detect([json.dumps({"user": f"u{i % 9}"} | each).encode() for i, each in enumerate(records)])
    times = unread_times(found, [AT_S * 1000])
    assert list(times) == [name]
    assert list(key_fields(found, time_fields(found), times)) == ["user"]


def test_unread_times_have_the_shares_of_their_kinds() -> None:
    ats: list[Any] = [AT_S, AT_S * 1000, AT_S * 1000, None, "", 0, 0, 0, 0, "so", *[AT_S + 1] * 10]
    found = detect([json.dumps({"at": at}).encode() for at in ats])
    shares = {"s": 0.55, '"0"': 0.2, "ms": 0.1, '""': 0.05, "no times": 0.05, "missing or null": 0.05}
    assert unread_times(found) == {"at": UnreadTime(str(AT_S + 1), pytest.approx(shares))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value_of",
    [
        lambda random: random.randrange(2**32),
        lambda random: random.randrange(2_000_000_000, 9_999_999_999),
        lambda random: random.choice([0, 0, 5_000, 1_500_000_000, 3_500_000_000]),
        lambda random: random.randrange(4_000_000_000_000_000, 5_500_000_000_000_000),
        lambda random: random.choice([None, 1_460_000_000_000_000_000 + random.randrange(10**15)]),
        lambda random: random.choice([AT_S, *range(8)]),
        lambda random: random.choice([None] * 9 + [TEXT]),
        lambda random: f"order {random.randrange(99)}",
        lambda random: random.choice(["", "-", "0"]),
        lambda random: random.random() * 1e9,
    ],
    ids=["hash", "phone", "bytes", "card", "snowflake", "few", "rare", "text", "unset", "price"],
)
def test_unread_times_of_other_values_are_none(value_of: Callable[[Random], Any]) -> None:
    random = Random(7)  # noqa: S311 - values of a test
    found = detect([json.dumps({"user": f"u{i % 9}", "n": value_of(random)}).encode() for i in range(1_000)])
    assert unread_times(found, [AT_S * 1000]) == {}


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-11-28 10:30:00.123 ERROR svc0: {} words", "2026-11-28 10:30"),
        ("ts=2026-11-28T10:30:00Z level=info n={}", "2026-11-28T10:30"),
        ("127.0.0.1 - - [28/Nov/2026:10:30:00 +0000] GET /{}", "28/Nov/2026:10:30"),
        ("order {} of 2026-11-28", None),
    ],
)
def test_unread_time_of_lines_is_that_of_nearly_all_lines(line: str, time: str | None) -> None:
    assert unread_time_of_lines(line.format(number).encode() for number in range(40)) == time
    assert unread_time_of_lines([None, b"\xff", *[line.encode()] * 10]) is None


def test_key_fields_fraction_with_a_comma_is_none() -> None:
    found = detect([f"S{number % 7};{number % 9},{number % 10};x".encode() for number in range(40)])
    assert 1 not in key_fields(found, ())


@pytest.mark.parametrize(
    ("time", "is_one"),
    [
        ("28/Nov/2026:10:30:00 +0000", True),
        ("[28/Nov/2026:10:30:00", True),
        ("11/28/2026 10:30 AM", True),
        ("28.11.2026", True),
        ("2026/11/28 10:30:00", True),
        ("Sat, 28 Nov 2026 10:30:00 GMT", True),
        ("Sat Nov 28 10:30:00 2026", True),
        ("Nov 28 10:30:00", True),
        ("2026-11-28 10:30:00 UTC", True),
        ("2026-11-28T10:30:00.123+01:00[Europe/Vienna]", True),
        ("20261128103000", True),
        (20261128103000, True),
        (20261328103000, False),
        ("20261128T103000Z", False),
        ("2026-11-28T10:30:00Z", False),
        ("10.0.0.1", False),
        ("555-123-4567", False),
        ("20/20", False),
        ("May 28", False),
        (1_700_000_000, False),
    ],
)
def test_unread_times_are_those_in_other_forms(time: Any, *, is_one: bool) -> None:
    values: list[bytes | None] = [json.dumps({"key": "a", "when": time}).encode()] * 10
    assert unread_times(detect(values)) == ({"when": UnreadTime(str(time), {})} if is_one else {})
