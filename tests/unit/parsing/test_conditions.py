"""Conditions of `splitter.where`: each operator, every type of entry, and what they mean for a batch of records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from skewless.algorithms.watermark import WatermarkGenerator
from skewless.parsing.conditions import Condition
from skewless.parsing.field_settings import ConditionSettings
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import NO_TIME, TOO_FAR_AHEAD, EventTimeRules, classify
from skewless.wire.record import Headers

ENTRIES: list[Any] = ["sale", "5", " 5 ", "5.0", 5, 5.5, True, 1, 2**63, "nan", "", None, {"a": 1}, [5]]


def met(**operators: Any) -> list[Any]:
    """Give the entries that meet a condition."""
    settings = ConditionSettings.model_validate({"field": "f", **operators})
    return [entry for entry, meets in zip(ENTRIES, Condition(settings).meets(ENTRIES), strict=True) if meets]


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ({"is": "sale"}, ["sale"]),
        ({"is": "5"}, ["5", 5]),
        ({"is": 5}, ["5", " 5 ", "5.0", 5]),
        ({"is": True}, [True]),
        ({"is": 1}, [1]),
        ({"in": ["sale", 5.5]}, ["sale", 5.5]),
        ({"is_not": 5}, ["sale", 5.5, True, 1, 2**63, "nan", ""]),
        ({"not_in": ["sale", 5, 1, "true", ""]}, [5.5, 2**63, "nan"]),
        ({"above": 5}, [5.5, 2**63]),
        ({"above": 2**63 - 1}, [2**63]),
        ({"at_least": 5, "below": 5.5}, ["5", " 5 ", "5.0", 5]),
        ({"at_most": 1.0}, [1]),
        ({"matches": "^[0-9]"}, ["5", "5.0", 5, 5.5, 1, 2**63]),
        ({"matches": "(s)(al)e|(z)"}, ["sale"]),
        ({"matches": "al", "is_not": "nan"}, ["sale"]),
        ({"exists": True}, ENTRIES[:11] + ENTRIES[12:]),
        ({"exists": False}, [None]),
    ],
    ids=str,
)
def test_condition_with_each_operator_is_met_by_equal_or_comparable_entries(
    operators: dict[str, Any], expected: list[Any]
) -> None:
    found = met(**operators)
    assert [(type(entry), entry) for entry in found] == [(type(entry), entry) for entry in expected]


@pytest.mark.parametrize(
    "operators",
    [{"matches": "^-"}, {"is": "0.0"}, {"is_not": "-0.0"}, {"in": ["0", "false"]}, {"at_least": 0}],
    ids=str,
)
def test_condition_each_entry_alone_gives_the_result_of_any_column(operators: dict[str, Any]) -> None:
    condition = Condition(ConditionSettings.model_validate({"field": "f", **operators}))
    column = [*ENTRIES, 0.0, -0.0, 0, "0", "-0.0", False, 0.0]
    alone = [condition.meets([entry])[0] for entry in column]
    assert condition.meets(column) == alone
    assert condition.meets(column[::-1]) == alone[::-1]


def test_condition_texts_of_a_class_of_their_own_are_compared_one_by_one() -> None:
    class Text(str):
        __slots__ = ()

    condition = Condition(ConditionSettings.model_validate({"field": "f", "is": "DE"}))
    assert condition.meets([Text("FR"), Text("DE"), "DE", Text(""), Text("FR")]) == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ({"is": 1}, "exactly one of field and header"),
        ({"field": "a", "header": "b", "is": 1}, "exactly one of field and header"),
        ({"field": "a"}, "needs an operator: one of is, is_not, in, not_in, above"),
        ({"field": "a", "above": True}, "should be a number"),
        ({"field": "a", "matches": "("}, "not a regular expression"),
        ({"field": "a", "equals": 1}, "equals"),
        ({"field": "a", "in": []}, "at least 1 item"),
        ({"field": "a", "exists": False, "is": "b"}, "exists: false needs an absent field"),
    ],
)
def test_condition_settings_without_meaning_are_refused(condition: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ConditionSettings.model_validate(condition)


@pytest.mark.parametrize(
    ("splitter", "problem"),
    [
        ({"key": {"field": "k"}, "where": [{"field": "a[]", "is": 1}]}, r"where.0.field: must not contain a list"),
        ({"key": {"field": "k"}, "where": [{"field": "a..b", "is": 1}]}, r"where.0.field: 'a..b' is not a path"),
        ({"format": "text", "where": [{"field": "a", "is": 1}]}, r"where.0.field: text has no fields"),
        ({"format": "csv", "key": {"field": 0}, "where": [{"field": "a", "is": 1}]}, "where.0.field: no column"),
    ],
)
def test_condition_on_a_field_that_the_format_cannot_have_is_refused(splitter: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ParsingSettings.model_validate(splitter)


SALES = {"where": [{"field": "type", "is": "sale"}], "key": {"field": "k"}, "time": {"field": "at"}}


def parse(settings: dict[str, Any], *values: bytes | None) -> ParsedBatch:
    headers: list[Headers] = [[("h", b"x")], *[()] * len(values)]
    records = RecordColumns(values, np.arange(len(values), dtype=np.int64), headers=headers)
    return RecordParser(ParsingSettings.model_validate(settings)).parse(records)


def test_parser_record_that_does_not_meet_the_conditions_is_neither_tuple_nor_invalid() -> None:
    parsed = parse(
        SALES,
        b'{"type": "view", "at": 1}',
        b'{"type": "sale", "k": "a", "at": 2}',
        b"{",
        b'{"at": "never"}',
        b"[]",
        b'{"type": "sale", "at": 3}',
        None,
        b'{"type": {"sale": 1}, "k": "b", "at": 4}',
    )
    assert (parsed.keys, parsed.records.tolist(), parsed.filtered.tolist()) == (["a"], [1], [0, 3, 4, 7])
    assert parsed.invalid == [(2, "malformed JSON"), (5, "key field k is missing"), (6, "empty record")]
    assert parsed.times[[0, 1, 7]].tolist() == [1, 2, 4]


@pytest.mark.parametrize("text", [b"127.0.0.1 - - [10/Oct", b"5abc", b"[1,2", b"true story", b'"a', b"{} {}"])
def test_parser_text_that_only_begins_as_json_is_invalid_and_not_filtered(text: bytes) -> None:
    parsed = parse(SALES, text, b"[1,2]")
    assert (parsed.invalid, parsed.filtered.tolist()) == ([(0, "malformed JSON")], [1])


@pytest.mark.parametrize("number", [b"1e400", b"9" * 5_000], ids=["double", "integer"])
@pytest.mark.parametrize("operators", [{"is": "click"}, {"exists": False}], ids=["is", "exists"])
def test_parser_number_out_of_range_next_to_the_field_of_a_condition_makes_its_record_invalid(
    number: bytes, operators: dict[str, Any]
) -> None:
    settings = {"key": {"field": "k"}, "where": [{"field": "meta.type", **operators}]}
    parsed = parse(settings, b' {"k": "a", "meta": {"type": "click", "x": %b}}' % number, b"5")
    assert (parsed.keys, parsed.filtered.tolist()) == ([], [1] if "is" in operators else [])
    assert parsed.invalid[0] == (0, "has a number that is out of range")


def test_parser_conditions_on_columns_and_headers_combine() -> None:
    csv = {"format": "csv", "key": {"field": 0}, "where": [{"field": 2, "exists": True}]}
    assert parse(csv, b"a,1,x", b"b,1", b"c,1,").keys == ["a", "c"]
    header = {"format": "text", "where": [{"header": "h", "is": "x"}]}
    parsed = parse(header, b"a", b"b")
    assert (parsed.keys, parsed.filtered.tolist(), parsed.times.tolist()) == (["a"], [1], [0, 1])


def test_parser_filtered_record_has_the_time_of_its_date_and_time_of_day() -> None:
    time = {"field": 0, "of_day": 1, "unit": "iso8601"}
    settings = {"format": "csv", "key": {"field": 2}, "time": time, "where": [{"field": 3, "is": "sale"}]}
    parsed = parse(settings, b"1970-01-02,00:00:01,a,sale", b"1970-01-02,00:00:02,a,view", b"1970-01-02")
    assert (parsed.filtered.tolist(), parsed.times.tolist()) == ([1, 2], [86_401_000, 86_402_000, NO_TIME])


def test_classification_filtered_records_advance_the_watermark_within_bounds_only() -> None:
    parsed = parse(
        SALES,
        b'{"type": "view", "at": 1000}',
        b'{"type": "sale", "k": "late", "at": 500}',
        b'{"type": "view", "at": 70000}',
        b'{"type": "view", "at": -5}',
        b'{"type": "view"}',
        b'{"type": "view", "at": 40000}',
        b'{"type": "sale", "k": "ok", "at": 1500}',
    )
    rules = EventTimeRules(lateness_ms=0, max_ahead_ms=10_000, earliest=0, latest=60_000)
    generator = WatermarkGenerator(0)
    classified = classify(parsed, rules, generator, now=20_000)
    assert dict(classified.invalid) == {5: TOO_FAR_AHEAD}, "only the clock's decision has to be in the stream"
    assert classified.filtered == 4
    assert classified.tuples()[0].to_pylist() == ["ok"]
    assert generator.max_time == 1_500
