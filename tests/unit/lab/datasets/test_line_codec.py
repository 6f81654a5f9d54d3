"""Conversion of lines between both encodings, with times in any unit."""

from __future__ import annotations

import msgspec
import pytest

from skewless.lab.datasets.base import Encoding
from skewless.lab.datasets.country import COUNTRIES
from skewless.lab.datasets.line_codec import LineCodec, milliseconds
from skewless.lab.datasets.recorded_files import CLICKSTREAM, PAGE_COUNTS, PAGES, POSTS, SALES, TICKS

CASES: list[tuple[LineCodec, bytes, bytes, int]] = [
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


@pytest.mark.parametrize(("codec", "raw", "written", "time"), CASES)
def test_line_codec_encodings_convert_into_each_other(codec: LineCodec, raw: bytes, written: bytes, time: int) -> None:
    encodings: list[tuple[Encoding, bytes]] = [("raw", raw), ("json", written)]
    for encoding, expected in encodings:
        assert [codec.convert(line, encoding, 7) for line in (raw, written)] == [(expected, time)] * 2


def test_line_codec_country_without_a_time_gets_the_given_one() -> None:
    line = b'{"timestamp":5000000000000,"country":"Chile"}'
    assert COUNTRIES.convert(b"Chile\r", "json", 5_000_000_000_000) == (line, 5_000_000_000_000)
    assert COUNTRIES.convert(line, "json", 7) == (line, 5_000_000_000_000)
    assert COUNTRIES.convert(line, "raw", 7) == (b"Chile", 5_000_000_000_000)
    assert COUNTRIES.convert(b"Chile", "raw", 7) == (b"Chile", 7)


def test_line_codec_line_in_the_target_encoding_keeps_all_its_fields() -> None:
    for line in (b'{"page": "A", "timestamp": 1442018952942, "more": [1]}', b"1442018952942\tA\tmore"):
        encoding: Encoding = "json" if line.startswith(b"{") else "raw"
        assert PAGES.convert(line, encoding, 7) == (line, 1442018952942)


def test_line_codec_additional_columns_are_left_out_of_json() -> None:
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
def test_line_codec_times_in_seconds_or_iso_8601_become_milliseconds(time: float | str, instant: int) -> None:
    assert milliseconds(time) == instant


@pytest.mark.parametrize("time", [-1, "-5", "soon", "", "9" * 30, 1e300, "1969-12-31"])
def test_line_codec_invalid_or_out_of_bounds_time_is_refused(time: float | str) -> None:
    with pytest.raises(ValueError, match=r"bounds|isoformat"):
        milliseconds(time)


@pytest.mark.parametrize(
    ("codec", "line"),
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
def test_line_codec_malformed_line_is_refused(codec: LineCodec, line: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        codec.convert(line, "json", 7)


def test_line_codec_text_that_contains_the_delimiter_is_refused() -> None:
    with pytest.raises(ValueError, match="delimiter"):
        PAGE_COUNTS.convert(b'{"lang":"en","page":"A B","views":3,"bytes":5}', "raw", 7)
