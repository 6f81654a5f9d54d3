from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from pydantic import ValidationError

from skewless.splitter import formats
from skewless.splitter.formats import create_format
from skewless.splitter.formats.text import Text
from skewless.splitter.settings import SplitterSettings, TimeSettings

KEY: dict[str, Any] = {"field": "k"}
PROBLEMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown format": ({"format": "xml"}, ["unknown format 'xml'", "json, csv, tsv, text"]),
    "json without key": ({}, ["key.field: missing"]),
    "csv without key": ({"format": "csv"}, ["key.field: missing"]),
    "json by number": ({"key": {"field": 3}}, ["key.field: 3 is no path"]),
    "no path": ({"key": {"field": "a..b"}}, ["key.field: 'a..b' is no path"]),
    "field is an object too": ({"key": KEY, "value": {"field": "k.v"}}, ["value.field: collides with key.field"]),
    "object is a list too": (
        {"key": {"field": "a.k"}, "value": {"field": "a[].v"}},
        ["value.field: collides with key.field"],
    ),
    "time in a list": ({"key": KEY, "time": {"field": "h[].t"}}, ["time.field: may not go through a list"]),
    "value in another list": ({"key": KEY, "value": {"field": "h[].v"}}, ["value.field: may go only through lists"]),
    "columns of json": ({"key": KEY, "columns": ["a"], "separator": ","}, ["separator: only for", "columns: only for"]),
    "fields of text": ({"format": "text", "key": KEY}, ["key.field: text has no fields"]),
    "no such column": (
        {"format": "csv", "columns": ["a", "b"], "key": {"field": "c"}},
        ["no column is named 'c', use one of columns (a, b)"],
    ),
    "no columns": ({"format": "csv", "key": {"field": "c"}}, ["no column is named 'c', use a column number"]),
    "negative column": ({"format": "csv", "key": {"field": -1}}, ["greater than or equal to 0"]),
    "double column": (
        {"format": "csv", "columns": ["a", "a"], "key": {"field": 0}},
        ["columns: a name stands there twice"],
    ),
    "quoting of tsv": ({"format": "tsv", "quoting": True, "key": {"field": 0}}, ["quoting: only for csv"]),
    "quoting with a long separator": (
        {"format": "csv", "quoting": True, "separator": "::", "key": {"field": 0}},
        ["quoting: needs a separator of one character"],
    ),
    "empty separator": ({"format": "csv", "separator": "", "key": {"field": 0}}, ["at least 1 character"]),
    "pattern does not compile": (
        {"key": {"field": "k", "pattern": "("}},
        ["not a regular expression of RE2", "missing ): ("],
    ),
    "pattern that looks ahead": ({"key": {"field": "k", "pattern": "a(?=b)"}}, ["no lookaround", "(?="]),
    "pattern that looks back": ({"key": {"field": "k", "pattern": "(?<!a)b"}}, ["no lookaround", "(?<"]),
    "pattern that refers back": ({"key": {"field": "k", "pattern": r"(a)\1"}}, ["no backreferences", r"\1"]),
    "pattern that keeps what it has": ({"key": {"field": "k", "pattern": "a++"}}, ["bad repetition operator: ++"]),
    "pattern that is too large": (
        {"key": {"field": "k", "pattern": r"((\pL{100}){100}){10}"}},
        ["not a regular expression of RE2"],
    ),
    "pattern of bytes": ({"key": {"field": "k", "pattern": r"a\\\C"}}, [r"\C may match a part of a character"]),
    "pattern with two groups": ({"key": {"field": "k", "pattern": "(a)(b)"}}, ["has more than one group"]),
    "empty text to skip": ({"key": {"field": "k", "skip": [""]}}, ["key.skip.0", "at least 1 character"]),
    "empty text to merge": ({"key": {"field": "k", "merge": {"a": [""]}}}, ["key.merge.a.0", "at least 1 character"]),
    "merged into nothing": ({"key": {"field": "k", "merge": {"": ["a"]}}}, ["key.merge", "at least 1 character"]),
    "default beside a field": ({"key": KEY, "value": {"field": "v", "default": 2}}, ["value.default: only for tuples"]),
    "default too large": ({"key": KEY, "value": {"decimals": 9, "default": 2**53}}, ["beyond 2**53"]),
    "unit without a field": ({"key": KEY, "time": {"unit": "s"}}, ["time.unit: set time.field too"]),
    "unknown unit": ({"key": KEY, "time": {"field": "t", "unit": "ns"}}, ["'ms', 's', 'us' or 'iso8601'"]),
    "bounds the wrong way round": ({"key": KEY, "time": {"earliest": 5, "latest": 4}}, ["time.earliest: is after"]),
    "several at once": (
        {"format": "csv", "quoting": True, "separator": "::", "time": {"unit": "s"}},
        ["key.field: missing", "quoting: needs", "time.unit: set"],
    ),
}


@pytest.mark.parametrize(("settings", "expected"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_every_mistake_is_told(settings: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        SplitterSettings.model_validate(settings)
    message = str(caught.value)
    assert [part for part in expected if part not in message] == []


def test_bounds_of_time_are_numbers_or_iso_8601() -> None:
    settings = TimeSettings.model_validate({"earliest": "2016-11-08T01:20:50Z", "latest": "1478568050001"})
    assert (settings.earliest, settings.latest) == (1478568050000, 1478568050001)


def test_a_bound_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValidationError, match="earliest"):
        TimeSettings.model_validate({"earliest": "yesterday"})


class Shout(Text):
    @staticmethod
    def problems(settings: SplitterSettings) -> Iterator[str]:
        if settings.key.lower:
            yield "key.lower: shouting is upper case"


def test_a_package_adds_a_format_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its real counterpart needs an installed distribution; what is looked up is the same.
    added = EntryPoints([EntryPoint("shout", f"{__name__}:Shout", "skewless.formats")])
    monkeypatch.setattr(EntryPoint, "load", lambda _: Shout)
    monkeypatch.setattr(formats, "entry_points", lambda group: added.select(group=group))
    assert isinstance(create_format(SplitterSettings(format="shout")), Shout)
    with pytest.raises(ValidationError, match="shouting is upper case"):
        SplitterSettings.model_validate({"format": "shout", "key": {"lower": True}})
    with pytest.raises(ValidationError, match="json, csv, tsv, text, shout"):
        SplitterSettings.model_validate({"format": "whisper"})
