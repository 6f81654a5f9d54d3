"""Limits of a record: bytes, depth, digits and tuples are bounded, and an oversized record affects no other."""

from __future__ import annotations

import pkgutil
import re
import string
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from skewless import parsing
from skewless.parsing.field_settings import LimitSettings
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

LIMIT = LimitSettings().record_bytes
CPU_S = 3.0
MEMORY = 96 * LIMIT
"""Maximum memory for parsing a record at the limit. A Python object per two bytes is 24 to 60 times the record."""
RUN = 5_000
"""Characters in which an expression of quadratic time takes seconds."""

JSON: dict[str, Any] = {"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}}
TAGS: dict[str, Any] = {"key": {"field": "h[]"}}
SHARED: dict[str, Any] = {"key": {"field": "h[]"}, "value": {"field": "v"}}
PRODUCTS: dict[str, Any] = {"key": {"field": "h[].n"}, "value": {"field": "v", "times": "h[].n"}}
CSV: dict[str, Any] = {
    "format": {"name": "csv", "quoting": True},
    "key": {"field": 0},
    "value": {"field": 1},
    "time": {"field": 2},
}
TSV: dict[str, Any] = {"format": "tsv", "key": {"field": 0}, "value": {"field": 1}}
TEXT: dict[str, Any] = {"format": "text"}
WORDS: dict[str, Any] = {"format": "text", "key": {"pattern": r"\w+"}}


def filled(head: bytes, middle: bytes, tail: bytes) -> bytes:
    """Repeat `middle` until the record has the maximum length."""
    return head + middle * ((LIMIT - len(head) - len(tail)) // len(middle)) + tail


LONG = b"0.5" + b"0" * (LIMIT // 4) + b"1"
GOOD: Mapping[str, tuple[dict[str, Any], bytes]] = {
    "json": (JSON, b'{"k":"a","v":1,"t":1}'),
    "tags": (TAGS, b'{"h":["a"]}'),
    "shared": (SHARED, b'{"v":1,"h":["a"]}'),
    "products": (PRODUCTS, b'{"v":1,"h":[{"n":1}]}'),
    "csv": (CSV, b"a,1,1"),
    "tsv": (TSV, b"a\t1"),
    "text": (TEXT, b"a"),
    "words": (WORDS, b"a"),
}

BOMBS: Mapping[str, tuple[str, bytes]] = {
    "lists in lists": ("json", filled(b'{"k":"a","v":1,"t":1,"x":', b"[", b"")),
    "lists in lists that are closed": ("json", b'{"k":"a","v":1,"t":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "objects in objects": ("json", filled(b"", b'{"k":', b"")),
    "lists where the key should be": ("json", b'{"k":' + b"[" * 100_000 + b"]" * 100_000 + b',"v":1,"t":1}'),
    "strings without an end": ("json", filled(b'{"k":"', b'\\"[', b"")),
    "an unterminated string": ("json", filled(b"[" * 40, b'"', b"")),
    "backslashes": ("json", filled(b"[" * 40 + b'"', b"\\", b"")),
    "a long key": ("json", filled(b'{"k":"', b"a", b'","v":1,"t":1}')),
    "a long name": ("json", filled(b'{"', b"a", b'":1}')),
    "digits in the key": ("json", filled(b'{"k":', b"9", b',"v":1,"t":1}')),
    "digits in the value": ("json", filled(b'{"k":"a","v":', b"9", b',"t":1}')),
    "digits in the value's text": ("json", filled(b'{"k":"a","v":"', b"9", b'","t":1}')),
    "digits after the point": ("json", filled(b'{"k":"a","v":"a","t":1.', b"9", b"}")),
    "digits in the exponent": ("json", filled(b'{"k":"a","t":1,"v":1e', b"9", b"}")),
    "digits in the exponent's text": ("json", filled(b'{"k":"a","t":1,"v":"1e-', b"9", b'x"}')),
    "a letter after the digits of the value's text": ("json", filled(b'{"k":"a","t":1,"v":"', b"9", b'x"}')),
    "a letter after the digits of the time's text": ("json", filled(b'{"k":"a","v":1,"t":"', b"9", b'x"}')),
    "4,301 digits in the key": ("json", b'{"k":' + b"9" * 4301 + b',"v":1,"t":1}'),
    "4,301 digits in the time": ("json", b'{"k":"a","v":1,"t":' + b"9" * 4301 + b"}"),
    "the same name again and again": ("json", filled(b'{"k":"a","v":1,"t":1', b',"v":null', b"}")),
    "not a number": ("json", b'{"k":"a","v":NaN,"t":1}'),
    "infinity": ("json", b'{"k":"a","v":1e999,"t":1}'),
    "surrogates": ("json", rb'{"k":"\ud800","v":1,"t":1}'),
    "half a character": ("json", b'{"k":"\xe4\xb8","v":1,"t":1}'),
    "nothing but NUL": ("json", b"\0" * LIMIT),
    "more than the limit": ("json", b" " * (LIMIT + 1)),
    "many elements": ("tags", filled(b'{"h":["a"', b',"a"', b"]}")),
    "many lists": ("tags", filled(b'{"h":[', b"[],", b"[]]}")),
    "many elements with one long text": ("shared", filled(b'{"v":"' + LONG + b'","h":["a"', b',"a"', b"]}")),
    "many elements with one long number": ("shared", filled(b'{"v":' + LONG + b',"h":["a"', b',"a"', b"]}")),
    "many factors of one long number": (
        "products",
        filled(b'{"v":0.5' + b"0" * (LIMIT // 2) + b'1,"h":[{"n":1}', b',{"n":2},{"n":1}', b"]}"),
    ),
    "many factors of one long text": (
        "products",
        filled(b'{"v":"0.5' + b"0" * (LIMIT // 2) + b'1","h":[{"n":1}', b',{"n":2},{"n":1}', b"]}"),
    ),
    "csv: quotes": ("csv", filled(b"", b'"', b"")),
    "csv: an open quote": ("csv", filled(b'"', b",", b"")),
    "csv: quoted quotes": ("csv", filled(b'"', b'""', b'",1,1')),
    "csv: separators": ("csv", filled(b"", b",", b"")),
    "csv: quoted columns": ("csv", filled(b"a", b',""', b"")),
    "csv: digits": ("csv", filled(b"a,", b"9", b",1")),
    "csv: blanks around a number": ("csv", filled(b"a,", b" ", b"x,1")),
    "csv: a long time": ("csv", filled(b"a,1,", b"1", b"")),
    "tsv: other digits": ("tsv", b"a\t" + "٣".encode() * 100_000),
    "tsv: signs": ("tsv", filled(b"a\t", b"-", b"")),
    "text: one key": ("text", filled(b"", b"a", b"")),
    "words: many": ("words", filled(b"", b"a ", b"")),
    "words: one": ("words", filled(b"", b"a", b"")),
}


def expressions() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the expressions of all modules of parsing."""
    for module in pkgutil.walk_packages(parsing.__path__, "skewless.parsing."):
        for name, found in vars(import_module(module.name)).items():
            if isinstance(found, re.Pattern):
                yield f"{module.name}.{name}", found


def match_s(expression: re.Pattern[Any]) -> float:
    """Return the CPU time in s for a long run of each character, after which the expression does not match."""
    texts = [character * RUN + "\0" for character in string.printable]
    began = time.process_time()
    for text in texts:
        expression.fullmatch(text.encode() if isinstance(expression.pattern, bytes) else text)
    return time.process_time() - began


def parse(settings: dict[str, Any], *values: bytes | None) -> ParsedBatch:
    form = RecordParser(ParsingSettings.model_validate(settings))
    return form.parse(RecordColumns.of_values(values, np.ones(len(values), np.int64)))


def test_expressions_long_run_of_a_character_takes_linear_time() -> None:
    assert [name for name, expression in expressions() if match_s(expression) > CPU_S / 4] == []


@pytest.mark.parametrize(("form", "bomb"), BOMBS.values(), ids=BOMBS)
def test_format_parser_oversized_record_is_refused_alone_in_bounded_time_and_memory(form: str, bomb: bytes) -> None:
    settings, good = GOOD[form]
    keys = parse(settings, good, good).keys  # the parser is created once, so its memory is not a cost of the record
    began = time.process_time()
    tracemalloc.start()
    try:
        parsed = parse(settings, good, bomb, good)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < CPU_S
    assert peak < MEMORY
    assert [index for index, _ in parsed.invalid] == [1]
    assert parsed.keys == keys
    assert parsed.records.tolist() == [0, 2]


@pytest.mark.parametrize(("form", "bomb"), BOMBS.values(), ids=BOMBS)
def test_format_parser_oversized_record_has_a_short_reason_without_its_content(form: str, bomb: bytes) -> None:
    ((_, reason),) = parse(GOOD[form][0], bomb).invalid
    assert len(reason) < 80


@pytest.mark.parametrize("form", GOOD)
def test_format_parser_oversized_record_of_another_format_raises_nothing(form: str) -> None:
    settings, good = GOOD[form]
    parsed = parse(settings, *[bomb for _, bomb in BOMBS.values()], good)
    assert len(BOMBS) not in dict(parsed.invalid)


@pytest.mark.parametrize("depth", [1, 32, 128])
def test_json_parser_depth_limit_refuses_deeper_records_only(depth: int) -> None:
    settings = {**JSON, "limits": {"max_depth": depth}}
    nested = [b'{"k":"a","v":1,"t":1,"x":' + b"[" * more + b"1" + b"]" * more + b"}" for more in (depth - 1, depth)]
    assert parse(settings, *nested).invalid == [(1, f"nested deeper than {depth}")]


def test_json_parser_record_of_the_allowed_length_is_read() -> None:
    record = filled(b'{"k":"a","v":1,"t":1,"x":"', b"x", b'"}')
    assert len(record) == LIMIT
    assert parse(JSON, record).keys == ["a"]
    assert parse(JSON, record + b" ").invalid == [(0, f"longer than {LIMIT} bytes")]
