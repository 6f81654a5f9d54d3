"""The user's regular expression extracts keys in bounded time for every text."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import ConfigurationError
from skewless.parsing.field_settings import LimitSettings
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.pattern import DELIMITER, Pattern
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

LONG = 262_144
CPU_S = 3.0
"""CPU time of the process in s. With a backtracking engine the fastest of the cases below takes minutes."""
GREEDY = {
    "repeated repetitions": "^(a+)+$",
    "a repetition that may be empty": "(?:a*)*b",
    "alternatives alike": "^(?:a|a|aa)+$",
    "fifty that may be there": "a?" * 50 + "a" * 50 + "b",
    "the square of the length": "x.*y",
    "the cube of the length": ".*x.*y",
    "repetitions of words": r"^(?:\w+\s?)+:",
}
AGREED = [
    r"\w+",
    "[a-c]+",
    "^[^.]+",
    "(a|b)c",
    "a*",
    "(?i)AB?",
    r"level=(\w*)",
    "b$",
    "a|ab",
    "(?:ab)+?",
    "(a)?b",
    r"\.",
]
"""Patterns with the same meaning in RE2 and in Python for ASCII texts."""
REFUSED = {
    "(": "missing \\)",
    "a(?=b)": "no lookaround",
    "(?<!a)b": "no lookaround",
    r"(a)\1": "no backreferences",
    "a++": "bad repetition operator",
    "a{1001}": "invalid repetition size",
    "(a)(b)": "more than one group",
    "(a)(b)(c)": "more than one group",
    r"\C": "part of a character",
    r"a\\\C": "part of a character",
}


def parse(settings: dict[str, Any], *values: bytes) -> ParsedBatch:
    form = RecordParser(ParsingSettings.model_validate({"format": "text", **settings}))
    return form.parse(RecordColumns.of_values(values, np.ones(len(values), np.int64)))


@pytest.mark.parametrize("pattern", GREEDY.values(), ids=GREEDY)
def test_key_pattern_any_text_is_searched_in_linear_time(pattern: str) -> None:
    settings = {"key": {"pattern": pattern}, "limits": {"pattern_input_bytes": LONG}}
    texts = [(of * LONG)[: LONG - 1].encode() + b"!" for of in ("a", "x", "xy", "a ", "aaaaaaa\n")]
    began = time.process_time()
    parse(settings, *texts)
    assert time.process_time() - began < CPU_S * len(texts)


def test_key_pattern_with_long_lookahead_is_searched_in_bounded_time() -> None:
    """The remaining quadratic case: each of n matches is searched to the end of the text."""
    longest = LimitSettings().pattern_input_bytes
    began = time.process_time()
    parsed = parse({"key": {"pattern": "a*b|a"}}, b"a" * longest)
    assert time.process_time() - began < 3 * CPU_S
    assert parsed.invalid == [(0, "more than 10000 tuples")]


@pytest.mark.parametrize("pattern", AGREED)
@given(texts=st.lists(st.text("abcABl evel=.,_\n\0é", max_size=20), max_size=5))
def test_key_pattern_of_any_text_finds_the_matches_of_python(pattern: str, texts: list[str]) -> None:
    lines = [text.rstrip("\r\n") for text in texts]
    find = re.compile(pattern, re.ASCII).findall
    keys, source_partitions = Pattern(pattern).find(lines)
    expected = [(key, i) for i, line in enumerate(lines) for key in find(line) if key]
    assert list(zip(keys, source_partitions.tolist(), strict=True)) == expected


def test_key_pattern_words_of_any_language_are_found() -> None:
    keys, _ = Pattern(r"[\pL\pN_]+").find(["naïve Straße, 東京! año2026"])
    assert keys == ["naïve", "Straße", "東京", "año2026"]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.items(), ids=REFUSED)
def test_key_pattern_with_unsupported_syntax_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Pattern(pattern)


def test_key_pattern_escaped_backslash_before_c_is_accepted() -> None:
    keys, _ = Pattern(r"\\C").find([r"a\C"])
    assert keys == [r"\C"]


def test_key_pattern_field_beyond_the_search_limit_refuses_its_record_only() -> None:
    settings = {
        "key": {"pattern": r"\w+", "drop_if_contains": ["c"], "rename_if_contains": {"B": ["b"]}},
        "limits": {"pattern_input_bytes": 5},
    }
    parsed = parse(settings, b"a c b", b"a c b a", b"\xc3\xa9\xc3\xa9.", b"\xc3\xa9\xc3\xa9\xc3\xa9", b"b")
    reason = "key is longer than 5 bytes, too long for a pattern"
    assert parsed.invalid == [(1, reason), (3, reason)]
    assert parsed.keys == ["a", "B", "B"]
    assert parsed.records.tolist() == [0, 0, 4]


def test_key_pattern_field_that_contains_the_delimiter_refuses_its_record_only() -> None:
    parsed = parse({"key": {"pattern": "a"}}, b"a", f"a{DELIMITER}a".encode(), b"xa")
    assert parsed.invalid == [(1, "key contains U+FDD0, which is not a character")]
    assert parsed.keys == ["a", "a"]
    assert parsed.records.tolist() == [0, 2]


def test_key_field_without_a_pattern_may_have_any_length_and_the_delimiter() -> None:
    parsed = parse({"limits": {"pattern_input_bytes": 1}}, b"ab", DELIMITER.encode())
    assert parsed.keys == ["ab", DELIMITER]
