"""A function of the user replaces documents; its errors are invalid records, and never stop the others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from skewless.errors import ConfigurationError
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.python_function import add_search_folder, find_function
from skewless.parsing.record_parser import RecordParser, python_function
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import NO_TIME
from skewless.stages.splitter.settings import SplitterSettings

KAFKA_TIME = 1_000
KEY: dict[str, Any] = {"key": {"field": "k"}}
ORDERS: dict[str, Any] = {
    "python": "helpers.user_functions:orders",
    "key": {"field": "lines[].k"},
    "value": {"field": "lines[].v", "decimals": 2},
    "time": {"field": "t"},
}


def settings(**changes: Any) -> ParsingSettings:
    return ParsingSettings.model_validate(changes)


def parse(found: ParsingSettings, *values: bytes | None) -> ParsedBatch:
    timestamps = np.full(len(values), KAFKA_TIME, np.int64)
    return RecordParser(found).parse(RecordColumns.of_values(values, timestamps))


def order(currency: str, at: int, *prices: float, test: bool = False) -> bytes:
    lines = ",".join(f'{{"sku":"s{i}","price":{price}}}' for i, price in enumerate(prices))
    return f'{{"currency":"{currency}","at":{at},"lines":[{lines}],"test":{str(test).lower()}}}'.encode()


def test_function_fields_of_its_documents_give_the_tuples_of_their_records() -> None:
    parsed = parse(
        settings(**ORDERS),
        order("EUR", 5, 1.5, 2),
        order("EUR", 6, test=True),
        order("EUR", 7),
        order("USD", 8, 10),
    )
    assert list(zip(parsed.keys, parsed.values["value"].to_pylist(), parsed.records.tolist(), strict=True)) == [
        ("s0", 150, 0),
        ("s1", 200, 0),
        ("s0", 900, 3),
    ]
    assert (parsed.times.tolist(), parsed.filtered.tolist(), parsed.invalid) == ([5, NO_TIME, 7, 8], [1], [])


def test_function_error_makes_only_its_records_invalid() -> None:
    values = [order("EUR", 5, 1), order("GBP", 6, 1), b"{", None, order("CHF", 7, 1), order("USD", 8, 1)]
    parsed = parse(settings(**ORDERS), *values)
    assert (parsed.keys, parsed.records.tolist()) == (["s0", "s0"], [0, 5])
    assert [row for row, _ in parsed.invalid] == [1, 2, 3, 4]
    reasons = dict(parsed.invalid)
    assert reasons[1].startswith("splitter.python raised KeyError (user_functions.py:")
    assert (reasons[1], reasons[2], reasons[3]) == (reasons[4], "malformed JSON", "empty record")
    assert parsed.tracebacks.keys() == {1, 4}
    assert parsed.tracebacks[1].startswith('Traceback (most recent call last):\n  File "')
    assert parsed.tracebacks[1].endswith("KeyError: 'GBP'\n")
    assert "python_function.py" not in parsed.tracebacks[1]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"is":5}', "splitter.python returned int, should return dict or None for each record"),
        (b'{"is":[{}]}', "splitter.python returned list, should return dict or None for each record"),
        (b'{"is":"object"}', "splitter.python returned a document that JSON cannot contain: TypeError"),
        (b'{"is":{"k":null}}', "key field k has the wrong type or is out of range"),
        (b'{"is":{}}', "key field k is missing"),
        (b'{"is":1e400}', "has a number that is out of range"),
    ],
)
def test_function_wrong_document_is_an_invalid_record(record: bytes, reason: str) -> None:
    parsed = parse(settings(python="helpers.user_functions:kinds", **KEY), b'{"is":{"k":"a"}}', record)
    assert (parsed.keys, parsed.invalid) == (["a"], [(1, reason)])


def test_function_that_empties_its_list_gives_the_tuples_of_its_documents() -> None:
    parsed = parse(settings(python="helpers.user_functions:taken", **KEY), b'{"k":"a"}', b'{"k":"b"}')
    assert (parsed.keys, parsed.invalid) == (["a", "b"], [])


@pytest.mark.parametrize("function", ["first", "without_first"])
def test_function_wrong_number_of_documents_is_reported_per_record(function: str) -> None:
    parsed = parse(settings(python=f"helpers.user_functions:{function}", **KEY), b'{"k":"a"}', b'{"k":"b"}')
    reason = "splitter.python returned 0 results for 1 records"
    assert (parsed.keys, parsed.invalid) == ([], [(0, reason), (1, reason)])


def test_function_numbers_and_times_of_python_are_fields() -> None:
    values = {"v": {"field": "v", "decimals": 2}, "w": {"field": "w"}}
    time = {"field": "t", "unit": "iso8601"}
    parsed = parse(settings(python="helpers.user_functions:types", **KEY, values=values, time=time), b"{}")
    found = (parsed.keys, parsed.values["v"].to_pylist(), parsed.values["w"].to_pylist(), parsed.times.tolist())
    assert found == (["a"], [30], [7], [1000])


@pytest.mark.parametrize(
    ("form", "function", "record", "keys"),
    [
        ("csv", "columns", b"a,b", ["a-b"]),
        ({"name": "csv", "quoting": True}, "columns", b'"a,b",c', ["a,b-c"]),
        ({"name": "tsv", "columns": ["x", "k"]}, "unchanged", b"a\tb\tc", ["b"]),
    ],
)
def test_function_of_columns_gets_lists_or_dicts(form: Any, function: str, record: bytes, keys: list[str]) -> None:
    found = settings(format=form, python=f"helpers.user_functions:{function}", **KEY)
    assert parse(found, record).keys == keys


def test_function_conditions_name_its_fields_and_other_parts_are_those_of_the_record() -> None:
    where = [{"header": "h", "is": "1"}, {"field": "n", "above": 1}]
    found = settings(format="text", python="helpers.user_functions:words", key={"field": "k[]"}, where=where)
    headers = [[("h", header)] for header in (b"1", b"2", b"1")]
    records = RecordColumns([b"a b", b"c d", b"e"], np.array([1, 2, 3]), [None] * 3, headers)
    parsed = RecordParser(found).parse(records)
    assert (parsed.keys, parsed.filtered.tolist(), parsed.times.tolist()) == (["a", "b"], [1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"python": "shop"}, "pattern"),
        ({"python": "a:b", "envelope": "debezium"}, "python: not with an envelope"),
        ({"python": "a:b", "format": {"name": "avro", "schema": "x"}}, "python: not with the format avro, the func"),
        ({"python": "a:b", "key": {"field": 5}}, "key.field"),
        ({"python": "a:b", "format": {"name": "csv", "quoting": True, "delimiter": "ab"}}, "format.quoting: needs"),
    ],
)
def test_function_settings_that_do_not_fit_are_invalid(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        settings(**{**KEY, **changes})


def test_function_with_held_tuples_is_invalid() -> None:
    local = {"mode": "windows", "window_s": 5}
    with pytest.raises(ValidationError, match=r"local\.mode: not windows with python"):
        SplitterSettings.model_validate({**KEY, "python": "a:b", "local": local})


def test_function_that_does_not_exist_is_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_needs.py").write_text("import no_such_package_of_anyone\n")
    (tmp_path / "own_broken.py").write_text("x = 1\nx = {}['k']\n")
    with pytest.raises(ConfigurationError, match=r"there is no module own_needs: put it next to the pipeline file"):
        find_function("own_needs:f")
    add_search_folder(tmp_path)
    assert sys.path[-1] in {str(tmp_path), str(Path.cwd())}
    for reference, problem in (
        ("own_needs:f", "module own_needs imports no_such_package_of_anyone, which is not installed"),
        ("own_broken:f", r"module own_broken cannot be imported, correct it: KeyError: 'k' \(own_broken.py:2\)"),
        ("helpers.nothing:f", "there is no module helpers.nothing: put it"),
        ("helpers.user_functions:f", "user_functions.py has no function f, define it there"),
        ("helpers.user_functions:NOT_A_FUNCTION", "has no function NOT_A_FUNCTION"),
    ):
        with pytest.raises(ConfigurationError, match=f"^splitter.python: .*{problem}"):
            find_function(reference)


def test_function_module_with_the_name_of_another_pipelines_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for folder, result in (("first", "[]"), ("same", "[]"), ("other", "documents")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "functions_of_pipelines.py").write_text(f"def f(documents):\n    return {result}\n")
    for folder in ("first", "same"):
        add_search_folder(tmp_path / folder)
        find_function("functions_of_pipelines:f")
    add_search_folder(tmp_path / "other")
    with pytest.raises(
        ConfigurationError, match=r"/first/functions_of_pipelines.py for another pipeline .* rename one"
    ):
        find_function("functions_of_pipelines:f")


@pytest.mark.parametrize(
    ("function", "unstable"), [("unchanged", []), ("numbered", [0, 1]), ("of_batch", [0, 1]), ("first", [])]
)
def test_function_that_depends_on_more_than_the_record_is_unstable(function: str, unstable: list[int]) -> None:
    found = python_function(settings(python=f"helpers.user_functions:{function}", **KEY))
    assert found.unstable([b'{"k":"a"}', b'{"k":"b"}']) == unstable
