from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from skewless.parsing import formats
from skewless.parsing.field_settings import FieldSettings, KeySettings, TimeSettings
from skewless.parsing.formats import BUILT_IN
from skewless.parsing.formats.avro import Avro
from skewless.parsing.formats.base import FormatSettings
from skewless.parsing.formats.schema_format import SchemaFormatSettings
from skewless.parsing.formats.text import Text, TextSettings
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.schema_registry.settings import RegistrySettings

KEY: dict[str, Any] = {"field": "k"}
PROBLEMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown format": ({"format": "xml"}, ["unknown format xml", ", ".join(sorted(BUILT_IN))]),
    "json without key": ({}, ["key.field: missing"]),
    "csv without key": ({"format": "csv"}, ["key.field: missing"]),
    "json by number": ({"key": {"field": 3}}, ["key.field: 3 is not a path"]),
    "no path": ({"key": {"field": "a..b"}}, ["key.field: 'a..b' is not a path"]),
    "name with a quotation mark": ({"key": {"field": 'a.b"c'}}, ["a name cannot have a quotation mark"]),
    "name with a backslash": (
        {"key": KEY, "where": [{"field": "a\\", "is": 1}]},
        ["a name cannot have a quotation mark"],
    ),
    "name with a control character": ({"key": KEY, "time": {"field": "t\n"}}, ["a name cannot have a quotation mark"]),
    "name with half a surrogate": ({"key": {"field": "\ud800"}}, ["is not a path"]),
    "field is an object too": ({"key": KEY, "value": {"field": "k.v"}}, ["value.field: conflicts with key.field"]),
    "object is a list too": (
        {"key": {"field": "a.k"}, "value": {"field": "a[].v"}},
        ["value.field: conflicts with key.field"],
    ),
    "time in a list": ({"key": KEY, "time": {"field": "h[].t"}}, ["time.field: must not contain a list"]),
    "value in another list": ({"key": KEY, "value": {"field": "h[].v"}}, ["value.field: must contain only lists"]),
    "columns of json": (
        {"key": KEY, "format": {"name": "json", "columns": ["a"]}},
        ["Extra inputs are not permitted"],
    ),
    "fields of text": ({"format": "text", "key": KEY}, ["key.field: text has no fields"]),
    "no such column": (
        {"format": {"name": "csv", "columns": ["a", "b"]}, "key": {"field": "c"}},
        ["no column is named 'c', use one of format.columns (a, b)"],
    ),
    "no columns": ({"format": "csv", "key": {"field": "c"}}, ["no column is named 'c', use a column number"]),
    "negative column": ({"format": "csv", "key": {"field": -1}}, ["greater than or equal to 0"]),
    "double column": (
        {"format": {"name": "csv", "columns": ["a", "a"]}, "key": {"field": 0}},
        ["format.columns: a name is listed twice"],
    ),
    "quoting of tsv": (
        {"format": {"name": "tsv", "quoting": True}, "key": {"field": 0}},
        ["Extra inputs are not permitted"],
    ),
    "quoting with a long delimiter": (
        {"format": {"name": "csv", "quoting": True, "delimiter": "::"}, "key": {"field": 0}},
        ["format.quoting: needs a delimiter of one character"],
    ),
    "empty delimiter": ({"format": {"name": "csv", "delimiter": ""}, "key": {"field": 0}}, ["at least 1 character"]),
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
    "empty text to skip": (
        {"key": {"field": "k", "drop_if_contains": [""]}},
        ["key.drop_if_contains.0", "at least 1 character"],
    ),
    "empty text to merge": (
        {"key": {"field": "k", "rename_if_contains": {"a": [""]}}},
        ["key.rename_if_contains.a.0", "at least 1 character"],
    ),
    "merged into nothing": (
        {"key": {"field": "k", "rename_if_contains": {"": ["a"]}}},
        ["key.rename_if_contains", "at least 1 character"],
    ),
    "list of mappings with two entries": (
        {"key": {"field": "k", "rename_if_contains": [{"a": ["x"], "b": ["y"]}]}},
        ["key.rename_if_contains", "should be a mapping, or a list of mappings with one entry each"],
    ),
    "list of texts to merge": (
        {"key": {"field": "k", "rename_if_contains": [{"a": ["x"]}, "b"]}},
        ["key.rename_if_contains", "should be a mapping, or a list of mappings with one entry each"],
    ),
    "list with a name twice": (
        {"key": {"field": "k", "rename_if_contains": [{"a": ["x"]}, {"a": ["y"]}]}},
        ["key.rename_if_contains", "two entries have the same name"],
    ),
    "default with a field": (
        {"key": KEY, "value": {"field": "v", "constant": 2}},
        ["value.constant: only for tuples"],
    ),
    "default too large": ({"key": KEY, "value": {"decimals": 9, "constant": 2**53}}, ["larger than 2**53"]),
    "unit without a field": ({"key": KEY, "time": {"unit": "s"}}, ["time.unit: set time.field too"]),
    "time of day without a date": (
        {"key": KEY, "time": {"of_day": "t", "unit": "iso8601"}},
        ["of_day: needs the field of the date as field, and unit: iso8601"],
    ),
    "time of day of a number": (
        {"key": KEY, "time": {"field": "d", "of_day": "t"}},
        ["of_day: needs the field of the date as field, and unit: iso8601"],
    ),
    "time of day in a list": (
        {"key": KEY, "time": {"field": "d", "of_day": "t[]", "unit": "iso8601"}},
        ["time.of_day: must not contain a list"],
    ),
    "unknown unit": ({"key": KEY, "time": {"field": "t", "unit": "min"}}, ["'ms', 's', 'us', 'ns' or 'iso8601'"]),
    "bounds the wrong way round": ({"key": KEY, "time": {"earliest": 5, "latest": 4}}, ["time.earliest: is after"]),
    "several at once": (
        {"format": {"name": "csv", "quoting": True, "delimiter": "::"}, "time": {"unit": "s"}},
        ["key.field: missing", "format.quoting: needs", "time.unit: set"],
    ),
}


@pytest.mark.parametrize(("settings", "expected"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_parsing_settings_with_problems_report_each_of_them(settings: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        ParsingSettings.model_validate(settings)
    message = str(caught.value)
    assert [part for part in expected if part not in message] == []


def test_key_settings_list_of_new_keys_is_a_mapping_in_its_order() -> None:
    as_list = {"field": "k", "rename_if_contains": [{"Weather": ["rain", "snow"]}, {"Election": ["vote", "train"]}]}
    settings = KeySettings.model_validate(as_list)
    assert list(settings.rename_if_contains) == ["Weather", "Election"]
    assert KeySettings.model_validate(settings.model_dump(exclude_unset=True)) == settings


def test_time_settings_bounds_are_numbers_or_iso_8601() -> None:
    settings = TimeSettings.model_validate({"earliest": "2016-11-08T01:20:50Z", "latest": "1478568050001"})
    assert (settings.earliest, settings.latest) == (1478568050000, 1478568050001)


def test_time_settings_bound_that_is_not_a_time_is_refused() -> None:
    with pytest.raises(ValidationError, match="earliest"):
        TimeSettings.model_validate({"earliest": "yesterday"})


class ShoutSettings(FormatSettings):
    suffix: str = "!"


class Shout(Text):
    settings = ShoutSettings

    def __init__(self, settings: ShoutSettings, fields: FieldSettings) -> None:
        super().__init__(TextSettings(), fields)
        self.suffix = settings.suffix

    @classmethod
    def validate(cls, settings: Any, fields: FieldSettings) -> Iterator[str]:
        assert isinstance(settings, ShoutSettings)
        if fields.key.lowercase:
            yield "key.lowercase: shouting is upper case"


def test_format_registry_package_adds_a_format_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    # A real entry point needs an installed distribution. The lookup is the same.
    added = EntryPoints([EntryPoint("shout", f"{__name__}:Shout", "skewless.formats")])
    monkeypatch.setattr(EntryPoint, "load", lambda _: Shout)
    monkeypatch.setattr(formats, "entry_points", lambda group: added.select(group=group))
    opened = RecordParser(ParsingSettings.model_validate({"format": {"name": "shout", "suffix": "?"}}))._format
    assert isinstance(opened, Shout)
    assert opened.suffix == "?"
    with pytest.raises(ValidationError, match=r"sufix: unknown setting of this format \(known: name, suffix"):
        ParsingSettings.model_validate({"format": {"name": "shout", "sufix": "?"}})
    with pytest.raises(ValidationError, match="shouting is upper case"):
        ParsingSettings.model_validate({"format": "shout", "key": {"lowercase": True}})
    with pytest.raises(ValidationError, match=r"unknown format whisper.*shout"):
        ParsingSettings.model_validate({"format": "whisper"})


def test_format_of_a_package_with_schemas_gets_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    class Added(Avro):
        settings = SchemaFormatSettings

    added = EntryPoints([EntryPoint("added", f"{__name__}:Added", "skewless.formats")])
    monkeypatch.setattr(EntryPoint, "load", lambda _: Added)
    monkeypatch.setattr(formats, "entry_points", lambda group: added.select(group=group))
    settings = ParsingSettings.model_validate({"format": "added", "key": {"field": "k"}})
    (problem,) = settings.bind(None)
    assert problem.startswith("format: schemas are missing for the format added: set registry.url")
    assert settings.bind(RegistrySettings.model_validate({"url": "http://localhost:1"})) == []
    assert len(RecordParser(settings).schemas) == 1


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "ModuleNotFoundError: No module named 'broken'"),
        ("a b", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("raise ValueError('size changed')", "ValueError: size changed"),
    ],
)
def test_format_registry_package_that_cannot_be_imported_is_refused_and_does_not_stop_detection(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    module: str | None,
    reason: str,
) -> None:
    if module is not None:
        (tmp_path / "broken.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    added = EntryPoints([EntryPoint("broken", "broken:F", "skewless.formats")])
    monkeypatch.setattr(formats, "entry_points", lambda group: added.select(group=group))
    problem = f"format broken: broken:F cannot be imported ({reason}): repair its package"
    with pytest.raises(ValidationError, match=re.escape(problem)):
        ParsingSettings.model_validate({"format": "broken"})
    assert formats.all_formats() == BUILT_IN
    assert problem in caplog.text
