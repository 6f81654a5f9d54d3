"""Aggregates of packages are found by entry points. Invalid ones are refused before a stage starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from helpers.aggregates import DIGITS, NEWEST, Digits, install
from skewless.aggregate_registry import _RESERVED_COLUMNS, choices_of, find_aggregate, name_in, results_of
from skewless.algorithms.aggregates import (
    Aggregate,
    BinaryColumn,
    PartialColumn,
    as_python,
    columns_of,
    counting_column,
)
from skewless.algorithms.partials import merge_partials, to_partials
from skewless.algorithms.value_type import ValueType
from skewless.asyncapi.document import document
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import state_schema_of
from skewless.errors import ConfigurationError
from skewless.settings_base import SettingsModel
from skewless.spark.batch_pipeline import read_plan
from skewless.spark.partition_reader import row_schema


class Plain(Aggregate):
    """Base class of the other test aggregates."""

    name: ClassVar[str] = "plain"
    columns: tuple[PartialColumn, ...] = (counting_column("plain_count"),)


class OtherName(Plain):
    name = "other"


class ResultField(Plain):
    name = "revision"


class ReservedColumn(Plain):
    columns = (counting_column("pane"),)


class UpperCaseColumn(Plain):
    columns = (counting_column("Total"),)


class NoColumn(Plain):
    columns = ()


class TextAsColumn(Plain):
    columns = ("total",)  # type: ignore[assignment]


class Bare(Aggregate):
    """Declares neither a name nor a column."""


class Named(Aggregate):
    name = "plain"


class OfTexts(Plain):
    kinds = ("text",)
    columns = (counting_column("text_count"),)


class StrangeResult(Plain):
    def result_type(self, decimals: int) -> pa.DataType:
        return pa.float32() if decimals else pa.int64()


class ReservedColumnName(Plain):
    columns = (BinaryColumn("sum", DIGITS.columns[0].prepare, Digits.columns[0].merge),)  # type: ignore[arg-type]


class NthArguments(SettingsModel):
    limit: int


class Nth(Plain):
    name = "nth"
    arguments = NthArguments


NTH = Nth()
PLAIN, OTHER_NAME, RESULT_FIELD, RESERVED_COLUMN = Plain(), OtherName(), ResultField(), ReservedColumn()
STRANGE_RESULT, RESERVED_COLUMN_NAME, OF_TEXTS = StrangeResult(), ReservedColumnName(), OfTexts()
UPPER_CASE_COLUMN, NO_AGGREGATE = UpperCaseColumn(), object()
NO_COLUMN, TEXT_AS_COLUMN, BARE, NAMED = NoColumn(), TextAsColumn(), Bare(), Named()


def settings(*aggregates: Any, **sections: Any) -> PipelineSettings:
    sections = {"name": "p", "source": {"topic": "t"}, "aggregator": {"aggregates": aggregates}} | sections
    return PipelineSettings.model_validate(sections)


def test_a_package_adds_an_aggregate_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert [choice.aggregates for choice in choices_of(["digits", "newest"])] == [(DIGITS,), (NEWEST,)]
    assert settings("count", "digits").aggregator.aggregates == ("count", "digits")


def test_aggregate_of_a_package_is_found_after_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm writes the names of an element in the order of the alphabet."""
    install(monkeypatch, ("nth", f"{__name__}:NTH"))
    (choice,) = choices_of([{"as": "third", "limit": 3, "nth": "price"}])
    assert (choice.aggregates, choice.value, choice.names) == ((NTH,), "price", ["third"])
    assert name_in({"as": "third", "limit": 3, "nth": "price"}) == "nth"


def test_built_in_aggregate_is_preferred_to_one_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("sum", f"{__name__}:PLAIN"))
    assert find_aggregate("sum") is not PLAIN


def test_unknown_aggregate_is_refused_with_the_known_ones_and_those_of_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    with pytest.raises(
        ConfigurationError,
        match=r"unknown aggregate digit, did you mean digits\? \(known: count, digits, distinct, first, largest, last,",
    ):
        find_aggregate("digit")


def test_all_unknown_aggregates_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as failed:
        choices_of(["median", "sum", "mode"])
    assert [problem.split(" (")[0] for problem in failed.value.problems] == [
        "0: unknown aggregate median, did you mean mean?",
        "2: unknown aggregate mode",
    ]


@pytest.mark.parametrize(
    ("name", "target", "problem"),
    [
        ("plain", "NOWHERE", "cannot be imported .*: repair its package"),
        ("plain", "NO_AGGREGATE", "is not an instance of"),
        ("plain", "OTHER_NAME", "its name is 'other'"),
        ("plain", "BARE", "its name is None"),
        ("plain", "NAMED", "its columns are \\(\\): list at least one IntegerColumn"),
        ("plain", "NO_COLUMN", "its columns are \\(\\): list at least one IntegerColumn"),
        ("plain", "TEXT_AS_COLUMN", "its columns are \\('total',\\): list at least one IntegerColumn"),
        ("plain", "UPPER_CASE_COLUMN", "partial column is 'Total': it must be an identifier in lower case"),
        ("revision", "RESULT_FIELD", "its name is reserved for a column of results"),
        ("plain", "RESERVED_COLUMN", "partial column is 'pane'"),
        ("plain", "STRANGE_RESULT", "its results are float"),
        ("plain", "RESERVED_COLUMN_NAME", "defines the partial column sum differently"),
    ],
)
def test_invalid_aggregate_of_a_package_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, target: str, problem: str
) -> None:
    install(monkeypatch, (name, f"{__name__}:{target}"))
    with pytest.raises(ValueError, match=f"aggregate plain.*{problem}" if name == "plain" else problem):
        settings("sum", name)


def test_reserved_columns_have_those_of_the_rows_of_spark() -> None:
    plan = read_plan(settings("sum"), now=0)
    assert {*row_schema(pa.int32(), plan).names} - {column.name for column in plan.columns} <= _RESERVED_COLUMNS


def test_columns_of_one_name_that_differ_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rename one of the columns"):
        columns_of([find_aggregate("sum"), RESERVED_COLUMN_NAME])


def test_state_schema_names_the_type_of_a_binary_column(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert state_schema_of(settings("digits", "sum")).columns == "count,digit_set:binary,sum"


def test_state_schema_of_many_columns_has_a_digest_that_differs_for_other_columns() -> None:
    elements = ({"largest": "price", "n": 3}, {"stddev": "price"}, {"first": "price"}, {"distinct": "price"})

    def columns(decimals: int, *elements: Any) -> str:
        values = {"price": {"field": "p", "decimals": decimals}}
        splitter = {"key": {"field": "k"}, "values": values}
        return state_schema_of(settings(*elements, splitter=splitter)).columns

    digests = [columns(2, *elements), columns(3, *elements), columns(2, *elements[1:])]
    assert {(digest[:7], len(digest)) for digest in digests} == {("sha256:", 39)}
    assert len(set(digests)) == 3
    assert columns(2, *reversed(elements)) == digests[0]
    assert columns(2, {"sum": "price"}, {"distinct": "price"}) == "count,distinct_12_price:binary/2,sum_price/2"


def test_document_of_a_pipeline_has_the_result_types_of_added_aggregates(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    schemas = document(settings("count", "sum", "digits"))["components"]["schemas"]
    fields = schemas["Aggregate"]["properties"]
    assert fields["count"]["type"] == "integer"
    assert fields["sum"]["type"] == "integer"
    assert (fields["digits"]["type"], fields["digits"]["items"]) == ("array", {"type": "integer"})
    assert fields["digits"]["description"] == "Distinct last two digits of the values, ascending."


def test_example_of_the_recipe_is_an_aggregate_with_the_result_that_it_describes() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module: dict[str, Any] = {}
    exec(code, module)  # noqa: S102 - a page of this repository
    first = module["EARLIEST"]
    keys = pa.array(["a", "b", "a", "a"]).dictionary_encode()
    columns = {"key": keys, "value": pa.array([5, 7, 4, 6]), "time": pa.array([3, 1, 2, 2])}
    batch = pa.record_batch(columns)
    merged = merge_partials(
        [to_partials([part], 10, first.columns) for part in (batch[2:], batch[:2])], ["key"], first.columns
    )
    partials = {"earliest_value": merged["earliest_value"].to_numpy()}
    results = as_python(first.present(partials, 1))
    assert dict(zip(merged["key"].to_pylist(), results, strict=True)) == {"a": 0.4, "b": 0.7}


VALUES = (ValueType("price", decimals=2), ValueType("user", "text"), ValueType("score", optional=True))


@pytest.mark.parametrize(
    ("element", "names"),
    [
        ("count", ["count"]),
        ({"count": "user"}, ["count_user"]),
        ({"sum": "price"}, ["sum_price"]),
        ({"sum": "price", "as": "total"}, ["total"]),
        (
            {"quantile": "price", "at": [0.5, 0.99, 0.999, 0, 1]},
            [f"price_p{p}" for p in ("50", "99", "99_9", "0", "100")],
        ),
        ({"quantile": "price", "at": [0.5, 0.99], "as": ["median", "high"]}, ["median", "high"]),
        ({"largest": "price", "n": 3}, ["largest_price"]),
        ({"distinct": "user", "precision": 14}, ["distinct_user"]),
        ({"n": 2, "smallest": "price"}, ["smallest_price"]),
    ],
)
def test_results_of_an_element_have_names_by_rule_or_those_of_as(element: Any, names: list[str]) -> None:
    assert [result.name for result in results_of([element], VALUES)] == names


def test_element_whose_list_has_only_an_invalid_entry_has_no_other_problem() -> None:
    with pytest.raises(ConfigurationError) as failed:
        results_of([{"quantile": "price", "at": [50]}], VALUES)
    assert [*failed.value.problems] == ["0: at.0: should be less than or equal to 1"]


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ("sum", "sum: name a value, as in {sum: price}"),
        ({"sum": "prise"}, "sum: unknown value prise, did you mean price?"),
        ({"sum": "user"}, "sum: the value user is a text, but it needs a number"),
        ({"sum": ["price"]}, "sum: should be the name of a value"),
        ({"sum": "price", "n": 2}, "n: unknown argument of sum (known: as)"),
        ({"largest": "price", "n": 0}, "n: should be greater than or equal to 1"),
        ({"quantile": "price", "at": [1.5]}, "at.0: should be less than or equal to 1"),
        ({"quantile": "price", "at": "half"}, "at: should be a list"),
        ({"quantile": "price", "at": []}, "at: should have at least 1 element"),
        ({"quantile": "price", "relative_error": 0.00123}, "relative_error: should be a multiple of 0.0001"),
        ({"quantile": "price", "at": [0.1, 0.2], "as": "low"}, "as: should be a list of 2 names"),
        ({"sum": "price", "as": "Total"}, "as: 'Total' cannot be the name of a result"),
        ({"sum": "price", "as": "revision"}, "as: 'revision' cannot be the name of a result"),
        ({"distinct": "user", "precision": 9}, "precision: should be greater than or equal to 10"),
        ({"median": "price"}, "unknown aggregate median, did you mean mean?"),
        ({}, "unknown aggregate "),
    ],
)
def test_element_that_does_not_fit_is_refused_with_its_index_and_the_reason(element: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as failed:
        results_of(["count", element, "count"], VALUES)
    found = failed.value.problems
    assert [text for text in found if text.startswith(f"1: {problem}")]


def test_aggregate_of_texts_refuses_a_number_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("plain", f"{__name__}:OF_TEXTS"))
    with pytest.raises(ConfigurationError, match="0: plain: the value price is a number, but it needs a text"):
        results_of([{"plain": "price"}], VALUES)


def test_results_of_the_same_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="2: the result sum_price is there twice"):
        results_of(["count", {"sum": "price"}, {"sum": "price"}], VALUES)
