"""The user's regular expression finds keys, and no text makes it take long."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import ConfigurationError
from skewless.splitter.formats import Parsed, create_format
from skewless.splitter.pattern import MARK, Pattern
from skewless.splitter.settings import LimitSettings, SplitterSettings

LONG = 262_144
CPU_S = 3.0
"""Of the process. Where an engine goes back and tries again, the fastest of the cases below takes minutes."""
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
"""Patterns that mean to RE2 what they mean to Python, as far as ASCII goes."""
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


def parse(settings: dict[str, Any], *values: bytes) -> Parsed:
    form = create_format(SplitterSettings.model_validate({"format": "text", **settings}))
    return form.parse(values, np.ones(len(values), np.int64))


@pytest.mark.parametrize("pattern", GREEDY.values(), ids=GREEDY)
def test_no_text_makes_a_pattern_slow(pattern: str) -> None:
    settings = {"key": {"pattern": pattern}, "limits": {"searched_bytes": LONG}}
    texts = [(of * LONG)[: LONG - 1].encode() + b"!" for of in ("a", "x", "xy", "a ", "aaaaaaa\n")]
    began = time.process_time()
    parse(settings, *texts)
    assert time.process_time() - began < CPU_S * len(texts)


def test_all_matches_of_a_pattern_that_looks_far_ahead_take_a_bounded_time() -> None:
    """The square that is left: each of n matches is looked for to the end of the text."""
    longest = LimitSettings().searched_bytes
    began = time.process_time()
    parsed = parse({"key": {"pattern": "a*b|a"}}, b"a" * longest)
    assert time.process_time() - began < 3 * CPU_S
    assert parsed.bad == [(0, "more than 10000 tuples")]


@pytest.mark.parametrize("pattern", AGREED)
@given(texts=st.lists(st.text("abcABl evel=.,_\n\0é", max_size=20), max_size=5))
def test_what_is_found_is_what_python_finds(pattern: str, texts: list[str]) -> None:
    lines = [text.rstrip("\r\n") for text in texts]
    find = re.compile(pattern, re.ASCII).findall
    keys, origins = Pattern(pattern).find(lines)
    expected = [(key, i) for i, line in enumerate(lines) for key in find(line) if key]
    assert list(zip(keys, origins.tolist(), strict=True)) == expected


def test_words_of_any_language_are_found() -> None:
    keys, _ = Pattern(r"[\pL\pN_]+").find(["naïve Straße, 東京! año2026"])
    assert keys == ["naïve", "Straße", "東京", "año2026"]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.items(), ids=REFUSED)
def test_a_pattern_that_cannot_be_searched_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Pattern(pattern)


def test_a_backslash_before_the_letter_c_is_none_of_half_characters() -> None:
    keys, _ = Pattern(r"\\C").find([r"a\C"])
    assert keys == [r"\C"]


def test_a_field_too_long_to_search_is_bad_alone() -> None:
    settings = {"key": {"pattern": r"\w+", "skip": ["c"], "merge": {"B": ["b"]}}, "limits": {"searched_bytes": 5}}
    parsed = parse(settings, b"a c b", b"a c b a", b"\xc3\xa9\xc3\xa9.", b"\xc3\xa9\xc3\xa9\xc3\xa9", b"b")
    reason = "key field longer than 5 bytes, too long for a pattern"
    assert parsed.bad == [(1, reason), (3, reason)]
    assert parsed.keys == ["a", "B", "B"]
    assert parsed.records.tolist() == [0, 0, 4]


def test_a_field_with_our_own_mark_is_bad_alone() -> None:
    parsed = parse({"key": {"pattern": "a"}}, b"a", f"a{MARK}a".encode(), b"xa")
    assert parsed.bad == [(1, "key field has U+FDD0, which is no character")]
    assert parsed.keys == ["a", "a"]
    assert parsed.records.tolist() == [0, 2]


def test_without_a_pattern_a_field_may_have_any_length_and_any_mark() -> None:
    parsed = parse({"limits": {"searched_bytes": 1}}, b"ab", MARK.encode())
    assert parsed.keys == ["ab", MARK]
