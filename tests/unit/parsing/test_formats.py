from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

KAFKA_TIME = 1_000


def parse(settings: dict[str, Any], *values: bytes | None) -> ParsedBatch:
    timestamps = np.full(len(values), KAFKA_TIME, np.int64)
    return RecordParser(ParsingSettings.model_validate(settings)).parse(RecordColumns.of_values(values, timestamps))


@dataclass(frozen=True)
class Good:
    """A record, and its expected (key, value) tuples and time."""

    settings: dict[str, Any]
    record: bytes
    tuples: list[tuple[str, int]]
    time: int = KAFKA_TIME


@dataclass(frozen=True)
class Invalid:
    """An invalid record, and the reason of its dead letter."""

    settings: dict[str, Any]
    record: bytes | None
    reason: str


KEY: dict[str, Any] = {"key": {"field": "k"}}
KEY_VALUE = {**KEY, "value": {"field": "v"}}
KEY_CENTS = {**KEY, "value": {"field": "v", "decimals": 2}}
KEY_TIME = {**KEY, "time": {"field": "t"}}
TAGS = {"key": {"field": "entities.hashtags[].text"}, "value": {"field": "n"}}
TSV = {"format": "tsv", "key": {"field": 1}, "time": {"field": 0}}
CSV: dict[str, Any] = {
    "format": {"name": "csv", "columns": ["at", "name", "n"]},
    "key": {"field": "name"},
    "value": {"field": "n"},
}
QUOTED = {**CSV, "format": {**CSV["format"], "quoting": True}}
BLANKS = {"format": {"name": "csv", "delimiter": " "}, "key": {"field": 0, "pattern": r"^[^.]+"}, "value": {"field": 2}}
TEXT: dict[str, Any] = {"format": "text"}
LOG = {
    "format": {"name": "csv", "delimiter": " "},
    "key": {"field": 2},
    "time": {"field": 0, "of_day": 1, "unit": "iso8601"},
}
LOG_BY_DAY = {**LOG, "key": {"field": 0}}
DATED = {**KEY, "time": {"field": "d", "of_day": "t", "unit": "iso8601"}}
VOTES: dict[str, Any] = {
    "key": {"field": "h[]", "drop_if_contains": ["?"], "rename_if_contains": {"ElectionDay": ["vote", "usa"]}},
    "value": {"field": "n"},
}
WORDS = {"format": "text", "key": {"pattern": r"\w+", "lowercase": True}}


def timed(unit: str) -> dict[str, Any]:
    return {**KEY, "time": {"field": "t", "unit": unit}}


GOOD = {
    "json: counts without a value field": Good(KEY, b'{"k":"a"}', [("a", 1)]),
    "json: default scaled": Good({**KEY, "value": {"constant": 3, "decimals": 2}}, b'{"k":"a"}', [("a", 300)]),
    "json: empty key": Good(KEY, b'{"k":""}', [("", 1)]),
    "json: integer key": Good(KEY, b'{"k":5}', [("5", 1)]),
    "json: thirty digits are a key": Good(KEY, b'{"k":123456789012345678901234567890}', [("1234567890" * 3, 1)]),
    "json: float key": Good(KEY, b'{"k":1.50}', [("1.5", 1)]),
    "json: true key": Good(KEY, b'{"k":true}', [("true", 1)]),
    "json: false key": Good(KEY, b'{"k":false}', [("false", 1)]),
    "json: of a doubled name the last wins": Good(KEY, b'{"k":"a","k":"b"}', [("b", 1)]),
    "json: escapes": Good(KEY, rb'{"k":"\u00e9\n\ud83d\ude00"}', [("é\n😀", 1)]),
    "json: UTF-8": Good(KEY, '{"k":"é😀"}'.encode(), [("é😀", 1)]),
    "json: blanks around": Good(KEY, b' {"k" : "a" }\n', [("a", 1)]),
    "json: other fields of any kind": Good(KEY, b'{"x":[{"k":"no"},null,1e5],"k":"a","y":{}}', [("a", 1)]),
    "json: brackets in strings are not depth": Good(KEY, b'{"k":"a","x":"' + b"[" * 99 + b'"}', [("a", 1)]),
    "json: many shallow lists are not depth": Good(KEY, b'{"k":"a","x":[' + b"[]," * 99 + b"[]]}", [("a", 1)]),
    "json: as deep as allowed": Good(KEY, b'{"k":"a","x":' + b"[" * 31 + b"]" * 31 + b"}", [("a", 1)]),
    "json: nested key": Good({"key": {"field": "a.b.c"}}, b'{"a":{"b":{"c":"x"}}}', [("x", 1)]),
    "json: list of strings": Good({"key": {"field": "h[]"}}, b'{"h":["a","b","a"]}', [("a", 1), ("b", 1), ("a", 1)]),
    "json: list at the root": Good({"key": {"field": "[].k"}}, b'[{"k":"a"},{"k":2}]', [("a", 1), ("2", 1)]),
    "json: list of lists": Good({"key": {"field": "h[][]"}}, b'{"h":[["a"],[],["b"]]}', [("a", 1), ("b", 1)]),
    "json: list of objects, one value": Good(
        TAGS, b'{"n":3,"entities":{"hashtags":[{"text":"A"},{"text":"B"}]}}', [("A", 3), ("B", 3)]
    ),
    "json: no element, no tuple": Good(TAGS, b'{"n":3,"entities":{"hashtags":[]}}', []),
    "json: value inside the key's lists": Good(
        {"key": {"field": "o[].i[].s"}, "value": {"field": "o[].v"}},
        b'{"o":[{"v":3,"i":[{"s":"x"},{"s":"y"}]},{"v":9,"i":[]},{"v":4,"i":[{"s":"z"}]}]}',
        [("x", 3), ("y", 3), ("z", 4)],
    ),
    "json: value next to the key in the list": Good(
        {"key": {"field": "i[].s"}, "value": {"field": "i[].n"}},
        b'{"i":[{"s":"x","n":1},{"s":"y","n":2}]}',
        [("x", 1), ("y", 2)],
    ),
    "json: key and time from one field": Good(
        {"key": {"field": "t"}, "time": {"field": "t"}}, b'{"t":5}', [("5", 1)], time=5
    ),
    "json: integer value": Good(KEY_VALUE, b'{"k":"a","v":-7}', [("a", -7)]),
    "json: number in a string": Good(KEY_VALUE, b'{"k":"a","v":" 7 "}', [("a", 7)]),
    "json: exponent": Good(KEY_VALUE, b'{"k":"a","v":1e2}', [("a", 100)]),
    "json: rounds half to even, up": Good(KEY_VALUE, b'{"k":"a","v":1.5}', [("a", 2)]),
    "json: rounds half to even, down": Good(KEY_VALUE, b'{"k":"a","v":2.5}', [("a", 2)]),
    "json: rounds the decimal, not the product": Good(KEY_CENTS, b'{"k":"a","v":0.285}', [("a", 28)]),
    "json: rounds 1.005 as written": Good(KEY_CENTS, b'{"k":"a","v":1.005}', [("a", 100)]),
    "json: rounds 1.015 as written": Good(KEY_CENTS, b'{"k":"a","v":1.015}', [("a", 102)]),
    "json: largest value": Good(KEY_VALUE, b'{"k":"a","v":9223372036854775807}', [("a", 2**63 - 1)]),
    "json: sixteen digits with a fraction": Good(
        KEY_CENTS, b'{"k":"a","v":89070440662435.13}', [("a", 8907044066243513)]
    ),
    "json: time in ms": Good(KEY_TIME, b'{"k":"a","t":1478568050123}', [("a", 1)], 1478568050123),
    "json: time in a string": Good(KEY_TIME, b'{"k":"a","t":"1478568050123"}', [("a", 1)], 1478568050123),
    "json: time before 1970": Good(KEY_TIME, b'{"k":"a","t":-1}', [("a", 1)], -1),
    "json: s with seven decimals in a string": Good(
        timed("s"), b'{"k":"a","t":"748957000.7309999"}', [("a", 1)], 748957000730
    ),
    "json: time with thousands of digits in a string": Good(
        timed("s"), b'{"k":"a","t":"0001767225599.' + b"0" * 4_400 + b'"}', [("a", 1)], 1767225599000
    ),
    "csv: time with thousands of digits": Good(
        {**CSV, "time": {"field": 3, "unit": "ms"}},
        b"x,ann,2,1767225599000." + b"0" * 4_400,
        [("ann", 2)],
        1767225599000,
    ),
    "json: s with ns in a string": Good(timed("s"), b'{"k":"a","t":"1767225599.999999999"}', [("a", 1)], 1767225599999),
    "json: fraction of a ms is cut off": Good(KEY_TIME, b'{"k":"a","t":-1.25}', [("a", 1)], -2),
    "json: s": Good(timed("s"), b'{"k":"a","t":1478568050}', [("a", 1)], 1478568050000),
    "json: s with ms": Good(timed("s"), b'{"k":"a","t":1478568050.123}', [("a", 1)], 1478568050123),
    "json: s with us": Good(timed("s"), b'{"k":"a","t":1478568050.123999}', [("a", 1)], 1478568050123),
    "json: us": Good(timed("us"), b'{"k":"a","t":1478568050123999}', [("a", 1)], 1478568050123),
    "json: us before 1970": Good(timed("us"), b'{"k":"a","t":-1}', [("a", 1)], -1),
    "json: last us": Good(timed("us"), b'{"k":"a","t":253402300799999999}', [("a", 1)], 253402300799999),
    "json: ns": Good(timed("ns"), b'{"k":"a","t":1478568050123999999}', [("a", 1)], 1478568050123),
    "json: ns in a string": Good(timed("ns"), b'{"k":"a","t":"1478568050123999999"}', [("a", 1)], 1478568050123),
    "json: ns before 1970": Good(timed("ns"), b'{"k":"a","t":-1}', [("a", 1)], -1),
    "json: last ns": Good(timed("ns"), b'{"k":"a","t":9223372036854775807}', [("a", 1)], 9223372036854),
    "json: ISO 8601 in UTC": Good(
        timed("iso8601"), b'{"k":"a","t":"2016-11-08T01:20:50.123Z"}', [("a", 1)], 1478568050123
    ),
    "json: ISO 8601 zone": Good(
        timed("iso8601"), b'{"k":"a","t":"2016-11-08T03:20:50+02:00"}', [("a", 1)], 1478568050000
    ),
    "json: ISO 8601 without zone": Good(
        timed("iso8601"), b'{"k":"a","t":"2016-11-08T01:20:50"}', [("a", 1)], 1478568050000
    ),
    "json: ISO 8601 with a blank": Good(
        timed("iso8601"), b'{"k":"a","t":"2016-11-08 01:20:50"}', [("a", 1)], 1478568050000
    ),
    "json: date and time of day": Good(DATED, b'{"k":"a","d":"1970-01-01","t":"00:00:01"}', [("a", 1)], 1_000),
    "csv: date and time of day": Good(LOG, b"1970-01-02 04:00:00,123 INFO x", [("INFO", 1)], 100_800_123),
    "csv: date is key and time": Good(LOG_BY_DAY, b"1970-01-02 04:00 INFO", [("1970-01-02", 1)], 100_800_000),
    "csv: time of day with a zone": Good(LOG, b"1970-01-02 04:00+01:00 INFO", [("INFO", 1)], 97_200_000),
    "tsv": Good(TSV, b"5\tpage one", [("page one", 1)], 5),
    "tsv: more columns": Good(TSV, b"5\tp\tx\ty", [("p", 1)], 5),
    "tsv: empty key": Good(TSV, b"5\t", [("", 1)], 5),
    "tsv: line end of a file": Good(TSV, b"5\tp\r\n", [("p", 1)], 5),
    "tsv: NUL is a character": Good(TSV, b"5\ta\0b", [("a\0b", 1)], 5),
    "tsv: quotes are characters": Good(TSV, b'5\t"p"', [('"p"', 1)], 5),
    "tsv: prefix off": Good(
        {"format": "tsv", "key": {"field": 0, "strip_prefix": "http://w/"}}, b"http://w/Page", [("Page", 1)]
    ),
    "csv: named columns": Good(CSV, b"x,ann,7", [("ann", 7)]),
    "csv: padded number": Good(CSV, b"x,ann, 7", [("ann", 7)]),
    "csv: delimiter of several characters": Good(
        {"format": {"name": "csv", "delimiter": "::"}, "key": {"field": 2}}, b"1::2::x::y", [("x", 1)]
    ),
    "csv: quoted": Good(QUOTED, b'"a,b","say ""hi""",7', [('say "hi"', 7)]),
    "csv: long column in quotes": Good(QUOTED, b'"%b",ann,7' % (b"a," * 70_000), [("ann", 7)]),
    "csv: line end in quotes": Good(QUOTED, b'x,"a\nb",7', [("a\nb", 7)]),
    "csv: blanks, language up to the dot": Good(BLANKS, b"en.m A%20 5 100", [("en", 5)]),
    "csv: key by a group": Good({"format": "csv", "key": {"field": 0, "pattern": r"^(\w+)\."}}, b"en.m,x", [("en", 1)]),
    "csv: several keys in a column": Good(
        {"format": {"name": "csv", "delimiter": ";"}, "key": {"field": 1, "pattern": "[^,]+"}, "value": {"field": 0}},
        b"3;a,b",
        [("a", 3), ("b", 3)],
    ),
    "json: keys skipped and merged": Good(
        VOTES,
        b'{"n":3,"h":["iVOTEd","why?","News","vote?","usa"]}',
        [("ElectionDay", 3), ("News", 3), ("ElectionDay", 3)],
    ),
    "json: every key skipped, no tuple": Good(VOTES, b'{"n":3,"h":["?"]}', []),
    "csv: several keys in a column, one skipped": Good(
        {
            "format": {"name": "csv", "delimiter": ";"},
            "key": {"field": 1, "pattern": "[^,]+", "lowercase": True, "drop_if_contains": ["B"]},
            "value": {"field": 0},
        },
        b"3;A,b,C",
        [("a", 3), ("c", 3)],
    ),
    "text: a key that is merged may be longer than keys": Good(
        {"format": "text", "key": {"rename_if_contains": {"long": ["aaaa"]}}}, b"a" * 2000, [("long", 1)]
    ),
    "text: the line": Good(TEXT, b"United Kingdom\n", [("United Kingdom", 1)]),
    "text: empty line": Good(TEXT, b"", [("", 1)]),
    "text: words": Good(WORDS, b"To be, or not to", [("to", 1), ("be", 1), ("or", 1), ("not", 1), ("to", 1)]),
    "text: no word": Good(WORDS, b"...", []),
    "text: empty matches are ignored": Good({"format": "text", "key": {"pattern": "a*"}}, b"baab", [("aa", 1)]),
}

INVALID = {
    "json: tombstone": Invalid(KEY, None, "empty record"),
    "json: nothing": Invalid(KEY, b"", "malformed JSON"),
    "json: cut": Invalid(KEY, b'{"k":"a"', "malformed JSON"),
    "json: number at the begin": Invalid(KEY, b"127.0.0.1 - -", "malformed JSON"),
    "json: cut after the wrong type": Invalid(KEY, b'{"k":{},', "malformed JSON"),
    "json: trailing": Invalid(KEY, b'{"k":"a"}{"k":"b"}', "malformed JSON"),
    "json: NUL": Invalid(KEY, b'{"k":"a\0"}', "malformed JSON"),
    "json: byte order mark": Invalid(KEY, b'\xef\xbb\xbf{"k":"a"}', "malformed JSON"),
    "json: half a surrogate pair": Invalid(KEY, rb'{"k":"\ud800"}', "malformed JSON"),
    "json: not UTF-8 in the key": Invalid(KEY, b'{"k":"\xff"}', "not UTF-8"),
    "json: not UTF-8 elsewhere": Invalid(KEY, b'{"k":"a","x":"\xc3"}', "not UTF-8"),
    "json: key missing": Invalid(KEY, b'{"x":1}', "key field k is missing"),
    "json: key null": Invalid(KEY, b'{"k":null}', "key field k has the wrong type or is out of range"),
    "json: key object": Invalid(KEY, b'{"k":{}}', "key field k has the wrong type or is out of range"),
    "json: root is not an object": Invalid(KEY, b"[1]", "key field k is missing"),
    "json: list missing": Invalid(TAGS, b'{"n":1,"entities":{}}', "key field entities.hashtags[].text is missing"),
    "json: object null": Invalid(TAGS, b'{"n":1,"entities":null}', "key field entities.hashtags[].text is missing"),
    "json: element without key": Invalid(
        TAGS, b'{"n":1,"entities":{"hashtags":[{"text":"a"},{}]}}', "key field entities.hashtags[].text is missing"
    ),
    "json: element null": Invalid(
        TAGS,
        b'{"n":1,"entities":{"hashtags":[{"text":null}]}}',
        "key field entities.hashtags[].text has the wrong type or is out of range",
    ),
    "json: value missing": Invalid(KEY_VALUE, b'{"k":"a"}', "value field v is missing"),
    "json: value boolean": Invalid(
        KEY_VALUE, b'{"k":"a","v":true}', "value field v has the wrong type or is out of range"
    ),
    "json: value NaN": Invalid(KEY_VALUE, b'{"k":"a","v":NaN}', "malformed JSON"),
    "json: ns of more than 64 bits": Invalid(
        timed("ns"), b'{"k":"a","t":9223372036854775808}', "time field t is not a number within bounds"
    ),
    "json: value text": Invalid(KEY_VALUE, b'{"k":"a","v":"NaN"}', "value field v is not a number within bounds"),
    "json: value with underscore": Invalid(
        KEY_VALUE, b'{"k":"a","v":"1_0"}', "value field v is not a number within bounds"
    ),
    "json: value too large": Invalid(
        KEY_VALUE, b'{"k":"a","v":9223372036854775808}', "value field v is not a number within bounds"
    ),
    "json: value too large with decimals": Invalid(
        KEY_CENTS, b'{"k":"a","v":92233720368547758.08}', "value field v is not a number within bounds"
    ),
    "json: value of thirty digits": Invalid(
        KEY_VALUE, b'{"k":"a","v":' + b"9" * 30 + b"}", "value field v is not a number within bounds"
    ),
    "json: value beyond doubles": Invalid(
        KEY_VALUE, b'{"k":"a","v":1e400}', "value field v has the wrong type or is out of range"
    ),
    "json: time missing": Invalid(KEY_TIME, b'{"k":"a"}', "time field t is missing"),
    "json: time in another unit": Invalid(
        KEY_TIME, b'{"k":"a","t":"2016-02-29T10:00Z"}', "time field t is text in ISO 8601, but its unit is ms"
    ),
    "json: time in another unit and wrong": Invalid(
        KEY_TIME, b'{"k":"a","t":"2016-02-30T10:00Z"}', "time field t is not a number within bounds"
    ),
    "json: time after 9999": Invalid(
        KEY_TIME, b'{"k":"a","t":253402300800000}', "time field t is not a number within bounds"
    ),
    "json: time before year 1": Invalid(
        KEY_TIME, b'{"k":"a","t":-62135596800001}', "time field t is not a number within bounds"
    ),
    "json: time of day missing": Invalid(DATED, b'{"k":"a","d":"1970-01-01"}', "time.of_day field t is missing"),
    "csv: time of day missing": Invalid(LOG_BY_DAY, b"1970-01-02", "time.of_day field 1 is missing"),
    "csv: time of day wrong": Invalid(LOG, b"1970-01-02 25:00 INFO", "time field 0 with of_day 1 is not ISO 8601"),
    "json: time of day wrong": Invalid(
        DATED, b'{"k":"a","d":"1970-01-01","t":"9:00"}', "time field d with of_day t is not ISO 8601"
    ),
    "json: ISO 8601 number": Invalid(
        timed("iso8601"), b'{"k":"a","t":5}', "time field t is a number, but its unit is iso8601"
    ),
    "json: ISO 8601 wrong day": Invalid(
        timed("iso8601"), b'{"k":"a","t":"2016-02-30"}', "time field t is not ISO 8601"
    ),
    "json: ISO 8601 before year 1": Invalid(
        timed("iso8601"), b'{"k":"a","t":"0001-01-01T00:00:00+01:00"}', "time field t is not within the years 1 to 9999"
    ),
    "json: too deep": Invalid(KEY, b'{"k":"a","x":' + b"[" * 32 + b"]" * 32 + b"}", "nested deeper than 32"),
    "json: depth bomb": Invalid(KEY, b"[" * 100_000, "nested deeper than 32"),
    "json: balanced depth bomb": Invalid(
        KEY, b'{"k":"a","x":' + b"[" * 99_999 + b"]" * 99_999 + b"}", "nested deeper than 32"
    ),
    "json: depth bomb of objects": Invalid(KEY, b'{"k":' * 40_000, "nested deeper than 32"),
    "json: depth bomb with NULs": Invalid(KEY, b"[\0" * 50, "nested deeper than 32"),
    "json: too large": Invalid(KEY, b'{"k":"' + b"a" * 262_144 + b'"}', "longer than 262144 bytes"),
    "json: key too long": Invalid(KEY, b'{"k":"' + b"a" * 1025 + b'"}', "key field k is longer than 1024 bytes"),
    "json: key too long in UTF-8": Invalid(
        KEY, b'{"k":"%s"}' % ("é" * 513).encode(), "key field k is longer than 1024 bytes"
    ),
    "json: key of too many digits": Invalid(
        KEY, b'{"k":' + b"9" * 4000 + b"}", "key field k is longer than 1024 bytes"
    ),
    "json: too many tuples": Invalid(
        {"key": {"field": "h[]"}}, b'{"h":[0' + b",0" * 10_000 + b"]}", "more than 10000 tuples"
    ),
    "tsv: tombstone": Invalid(TSV, None, "empty record"),
    "tsv: nothing": Invalid(TSV, b"", "key field 1 is missing"),
    "tsv: too few columns": Invalid(TSV, b"5", "key field 1 is missing"),
    "tsv: not UTF-8": Invalid(TSV, b"5\t\xff", "not UTF-8"),
    "tsv: time is not a number": Invalid(TSV, b"x\tp", "time field 0 is not a number within bounds"),
    "tsv: time is empty": Invalid(TSV, b"\tp", "time field 0 is not a number within bounds"),
    "tsv: too large": Invalid(TSV, b"5\t" + b"p" * 262_144, "longer than 262144 bytes"),
    "csv: value column missing": Invalid(CSV, b"x,ann", "value field n is missing"),
    "csv: value is inf": Invalid(CSV, b"x,ann,inf", "value field n is not a number within bounds"),
    "csv: digits of another script": Invalid(CSV, "x,ann,٣".encode(), "value field n is not a number within bounds"),
    "csv: quote left open": Invalid(QUOTED, b'x,"ann,7', "malformed quoting"),
    "csv: text after a quote": Invalid(QUOTED, b'x,"ann"y,7', "malformed quoting"),
    "json: a skipped key hides no bad value": Invalid(
        VOTES, b'{"n":"x","h":["?"]}', "value field n is not a number within bounds"
    ),
    "text: tombstone": Invalid(TEXT, None, "empty record"),
    "text: too long a key": Invalid(TEXT, b"a" * 1025, "key is longer than 1024 bytes"),
    "text: too many words": Invalid(WORDS, b"a " * 10_001, "more than 10000 tuples"),
}


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD.keys())
def test_format_parser_valid_record_gives_its_tuples(case: Good) -> None:
    parsed = parse(case.settings, case.record)
    assert parsed.invalid == []
    assert list(zip(parsed.keys, parsed.values["value"].to_pylist(), strict=True)) == case.tuples
    assert parsed.records.tolist() == [0] * len(case.tuples)
    assert parsed.times.tolist() == [case.time]


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID.keys())
def test_format_parser_invalid_record_gives_a_reason_and_no_tuples(case: Invalid) -> None:
    parsed = parse(case.settings, case.record)
    assert parsed.invalid == [(0, case.reason)]
    assert parsed.keys == []
    assert len(parsed.values["value"]) == len(parsed.records) == 0
    assert len(parsed.times) == 1


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID.keys())
def test_format_parser_records_around_an_invalid_one_are_read(case: Invalid) -> None:
    good = next(good for good in GOOD.values() if good.settings == case.settings and good.tuples)
    parsed = parse(case.settings, good.record, case.record, good.record)
    assert parsed.invalid == [(1, case.reason)]
    assert list(zip(parsed.keys, parsed.values["value"].to_pylist(), strict=True)) == good.tuples * 2
    assert parsed.records.tolist() == [0] * len(good.tuples) + [2] * len(good.tuples)
    assert [parsed.times[0], parsed.times[2]] == [good.time] * 2


@pytest.mark.parametrize("settings", [KEY, TAGS, TSV, QUOTED, WORDS])
def test_format_parser_empty_batch_gives_no_tuples(settings: dict[str, Any]) -> None:
    parsed = parse(settings)
    assert (parsed.keys, parsed.invalid) == ([], [])
    assert len(parsed.values["value"]) == len(parsed.records) == len(parsed.times) == 0


def test_format_parser_two_malformed_records_are_not_joined_into_a_valid_one() -> None:
    assert [i for i, _ in parse(KEY, b'{"k":"', b'"}').invalid] == [0, 1]
    assert [i for i, _ in parse(QUOTED, b'x,"a', b'b",7').invalid] == [0, 1]


def test_text_parser_character_split_over_two_records_is_refused_in_both() -> None:
    assert parse(TEXT, b"a\xc3", b"\xa9b").invalid == [(0, "not UTF-8"), (1, "not UTF-8")]


def test_json_parser_invalid_value_in_a_list_refuses_the_whole_record() -> None:
    settings = {"key": {"field": "i[].s"}, "value": {"field": "i[].n"}}
    parsed = parse(settings, b'{"i":[{"s":"x","n":1},{"s":"y","n":"?"}]}', b'{"i":[{"s":"z","n":3}]}')
    assert parsed.invalid == [(0, "value field i[].n is not a number within bounds")]
    assert parsed.keys == ["z"]
    assert parsed.records.tolist() == [1]


def test_format_parser_without_a_time_field_uses_the_kafka_timestamps() -> None:
    timestamps = np.array([7, -1], np.int64)
    parsed = RecordParser(ParsingSettings.model_validate(TEXT)).parse(RecordColumns.of_values([b"a", b"b"], timestamps))
    assert parsed.times.tolist() == [7, -1]
