"""Conversion of lines into records, with times in any unit."""

from __future__ import annotations

import msgspec
import pytest

from skewless.lab.datasets.country import COUNTRIES
from skewless.lab.datasets.line_codec import LineCodec, milliseconds
from skewless.lab.datasets.recorded_files import CLICKSTREAM, PAGE_COUNTS, PAGES, POSTS, SALES, TICKS

POST = b'{"timestamp":1478568050001,"hashtags":["A","B"]}'
CASES: list[tuple[LineCodec, bytes, bytes, int]] = [
    (TICKS, b"1388531408665\tAAPL", b'{"timestamp":1388531408665,"ticker":"AAPL"}', 1388531408665),
    (TICKS, b"1388531408\tAAPL\tmore\r", b'{"timestamp":1388531408000,"ticker":"AAPL"}', 1388531408000),
    (TICKS, b'{"ticker": "A", "timestamp": 1388531408}', b'{"timestamp":1388531408000,"ticker":"A"}', 1388531408000),
    (PAGES, b"1442018952\tA\tmore", b"1442018952000\tA\tmore", 1442018952000),
    (SALES, b"2010-12-01 08:26:00;85123A;France;-6;2.55", b"1291191960000;85123A;France;-6;2.55", 1291191960000),
    (
        POSTS,
        b'{"timestamp_ms":"1478568050001","text":"#A #B","entities":{"hashtags":[{"text":"A"},{"text":"B"}]}}',
        POST,
        1478568050001,
    ),
    (POSTS, b'{"timestamp":"1478568050001","hashtags":["A","B"]}', POST, 1478568050001),
]


@pytest.mark.parametrize(("codec", "line", "record", "time"), CASES)
def test_line_codec_converts_a_line_into_the_record_with_its_time(
    codec: LineCodec, line: bytes, record: bytes, time: int
) -> None:
    assert codec.convert(line, 7) == codec.convert(record, 7) == (record, time)


def test_line_codec_country_without_a_time_gets_the_given_one() -> None:
    line = b'{"timestamp":5000000000000,"country":"Chile"}'
    assert COUNTRIES.convert(b"Chile\r", 5_000_000_000_000) == (line, 5_000_000_000_000)
    assert COUNTRIES.convert(line, 7) == (line, 5_000_000_000_000)


@pytest.mark.parametrize(
    ("codec", "line", "time"),
    [
        (TICKS, b'{"ticker": "A", "timestamp": 1442018952942, "more": [1]}', 1442018952942),
        (POSTS, b'{"hashtags": ["A"], "timestamp": 1442018952942, "more": [1]}', 1442018952942),
        (PAGES, b"1442018952942\tA\tmore", 1442018952942),
        (PAGE_COUNTS, b"en.m A 3 500", 7),
        (CLICKSTREAM, b"A\tB\tlink\t3", 7),
    ],
)
def test_line_codec_record_with_milliseconds_is_unchanged(codec: LineCodec, line: bytes, time: int) -> None:
    assert codec.convert(line, 7) == (line, time)


@pytest.mark.parametrize(
    ("time", "instant"),
    [
        (1388531408, 1388531408000),
        (1388531408.25, 1388531408250),
        ("1388531408", 1388531408000),
        ("1388531408665", 1388531408665),
        ("1388531408.25", 1388531408250),
        ("2010-12-01 08:26:00", 1291191960000),
        ("2010-12-01T09:26:00.125+01:00", 1291191960125),
        ("2017-06-14", 1497398400000),
        ("1970-01-02", 86_400_000),
        ("9999-12-31T23:59:59", 253_402_300_799_000),
        (0, 0),
    ],
)
def test_line_codec_times_in_seconds_or_iso_8601_become_milliseconds(time: float | str, instant: int) -> None:
    assert milliseconds(time) == instant


@pytest.mark.parametrize("time", [-1, "-5", "soon", "", "9" * 30, 1e300, "nan", "inf", "1969-12-31"])
def test_line_codec_invalid_or_out_of_bounds_time_is_refused(time: float | str) -> None:
    with pytest.raises(ValueError, match=r"bounds|isoformat"):
        milliseconds(time)


@pytest.mark.parametrize(
    ("codec", "line"),
    [
        (PAGE_COUNTS, b"en A 3"),
        (PAGES, b"soon\tA"),
        (TICKS, b"1388531408665"),
        (TICKS, b"1388531408665\t\xff"),
        (POSTS, b'{"timestamp":1478568050001}'),
        (POSTS, b'{"hashtags":["a"]}'),
        (POSTS, b'{"timestamp":"x","hashtags":["a"]}'),
        (POSTS, b"[]"),
    ],
)
def test_line_codec_malformed_line_is_refused(codec: LineCodec, line: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        codec.convert(line, 7)
