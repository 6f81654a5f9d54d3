"""Lines from either form into either form, with times in whatever unit they have."""

from __future__ import annotations

import msgspec
import pytest

from skewless.datasets.base import Form
from skewless.datasets.country import COUNTRIES
from skewless.datasets.recorded import CLICKSTREAM, PAGE_COUNTS, PAGES, POSTS, SALES, TICKS
from skewless.datasets.shapes import Shape, milliseconds

CASES: list[tuple[Shape, bytes, bytes, int]] = [
    (TICKS, b"1388531408665\tAAPL", b'{"timestamp":1388531408665,"ticker":"AAPL"}', 1388531408665),
    (PAGES, b"1442018952942\tA", b'{"timestamp":1442018952942,"page":"A"}', 1442018952942),
    (PAGE_COUNTS, b"en.m A 3 500", b'{"lang":"en.m","page":"A","views":3,"bytes":500}', 7),
    (CLICKSTREAM, b"A\tB\tlink\t3", b'{"prev":"A","curr":"B","type":"link","n":3}', 7),
    (
        SALES,
        b"1291191960000;85123A;France;-6;2.55",
        b'{"time":1291191960000,"category":"85123A","country":"France","quantity":-6,"price":2.55}',
        1291191960000,
    ),
    (
        POSTS,
        b'{"timestamp_ms":"1478568050001","text":"#A #B","entities":{"hashtags":[{"text":"A"},{"text":"B"}]}}',
        b'{"timestamp":1478568050001,"hashtags":["A","B"]}',
        1478568050001,
    ),
]


@pytest.mark.parametrize(("shape", "raw", "written", "time"), CASES)
def test_each_form_becomes_itself_and_the_other(shape: Shape, raw: bytes, written: bytes, time: int) -> None:
    forms: list[tuple[Form, bytes]] = [("raw", raw), ("json", written)]
    for form, expected in forms:
        assert [shape.convert(line, form, 7) for line in (raw, written)] == [(expected, time)] * 2


def test_a_country_has_the_time_it_is_given_unless_it_says_one() -> None:
    line = b'{"timestamp":5000000000000,"country":"Chile"}'
    assert COUNTRIES.convert(b"Chile\r", "json", 5_000_000_000_000) == (line, 5_000_000_000_000)
    assert COUNTRIES.convert(line, "json", 7) == (line, 5_000_000_000_000)
    assert COUNTRIES.convert(line, "raw", 7) == (b"Chile", 5_000_000_000_000)
    assert COUNTRIES.convert(b"Chile", "raw", 7) == (b"Chile", 7)


def test_what_is_in_form_already_keeps_all_that_it_has() -> None:
    for line in (b'{"page": "A", "timestamp": 1442018952942, "more": [1]}', b"1442018952942\tA\tmore"):
        form: Form = "json" if line.startswith(b"{") else "raw"
        assert PAGES.convert(line, form, 7) == (line, 1442018952942)


def test_columns_behind_the_named_ones_are_left_out_of_json() -> None:
    assert PAGES.convert(b"1442018952942\tA\tmore", "json", 7)[0] == b'{"timestamp":1442018952942,"page":"A"}'


@pytest.mark.parametrize(
    ("time", "instant"),
    [
        (1388531408, 1388531408000),
        (1388531408.25, 1388531408250),
        ("1388531408", 1388531408000),
        ("1388531408665", 1388531408665),
        ("2010-12-01 08:26:00", 1291191960000),
        ("2010-12-01T09:26:00.125+01:00", 1291191960125),
        ("2017-06-14", 1497398400000),
        (0, 0),
    ],
)
def test_times_are_seconds_milliseconds_or_iso_8601(time: float | str, instant: int) -> None:
    assert milliseconds(time) == instant


@pytest.mark.parametrize("time", [-1, "-5", "soon", "", "9" * 30, 1e300, "1969-12-31"])
def test_what_is_no_time_within_bounds_is_refused(time: float | str) -> None:
    with pytest.raises(ValueError, match=r"bounds|isoformat"):
        milliseconds(time)


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (PAGE_COUNTS, b"en A x 500"),
        (PAGE_COUNTS, b"en A 3"),
        (PAGE_COUNTS, b'{"lang":"en","page":"A","views":"3","bytes":5}'),
        (TICKS, b"1388531408665\t\xff"),
        (POSTS, b'{"timestamp":1478568050001}'),
        (POSTS, b'{"hashtags":["a"]}'),
        (POSTS, b'{"timestamp":"x","hashtags":["a"]}'),
        (POSTS, b"[]"),
    ],
)
def test_a_malformed_line_is_refused(shape: Shape, line: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        shape.convert(line, "json", 7)


def test_a_text_with_the_separator_in_it_does_not_become_columns() -> None:
    with pytest.raises(ValueError, match="separator"):
        PAGE_COUNTS.convert(b'{"lang":"en","page":"A B","views":3,"bytes":5}', "raw", 7)
