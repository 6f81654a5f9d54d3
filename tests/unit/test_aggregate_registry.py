"""Aggregates of packages are found by entry points. Invalid ones are refused before a stage starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from helpers.aggregates import DIGITS, LAST, Digits, install
from skewless.aggregate_registry import find_aggregate, find_aggregates
from skewless.algorithms.aggregates import (
    Aggregate,
    BinaryColumn,
    PartialColumn,
    as_python,
    columns_of,
    counting_column,
)
from skewless.algorithms.partials import merge_partials, to_partials
from skewless.asyncapi.document import document
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import state_schema_of
from skewless.errors import ConfigurationError


class Plain(Aggregate):
    """Base class of the other test aggregates."""

    name: ClassVar[str] = "plain"
    columns: ClassVar[tuple[PartialColumn, ...]] = (counting_column("plain_count"),)


class OtherName(Plain):
    name = "other"


class ResultField(Plain):
    name = "revision"


class ReservedColumn(Plain):
    columns = (counting_column("pane"),)


class UpperCaseColumn(Plain):
    columns = (counting_column("Total"),)


class StrangeResult(Plain):
    def result_type(self, decimals: int) -> pa.DataType:
        return pa.float32() if decimals else pa.int64()


class ReservedColumnName(Plain):
    columns = (BinaryColumn("sum", DIGITS.columns[0].prepare, Digits.columns[0].merge),)  # type: ignore[arg-type]


class TooManyColumns(Plain):
    columns = tuple(counting_column(f"a_long_name_of_a_column_{number}") for number in range(9))


PLAIN, OTHER_NAME, RESULT_FIELD, RESERVED_COLUMN = Plain(), OtherName(), ResultField(), ReservedColumn()
STRANGE_RESULT, RESERVED_COLUMN_NAME, TOO_MANY_COLUMNS = StrangeResult(), ReservedColumnName(), TooManyColumns()
UPPER_CASE_COLUMN, NO_AGGREGATE = UpperCaseColumn(), object()


def settings(*aggregates: str, **sections: Any) -> PipelineSettings:
    sections = {"name": "p", "source": {"topic": "t"}, "aggregator": {"aggregates": aggregates}} | sections
    return PipelineSettings.model_validate(sections)


def test_a_package_adds_an_aggregate_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert find_aggregates(["digits", "last"]) == (DIGITS, LAST)
    assert settings("count", "digits").aggregator.aggregates == ("count", "digits")


def test_built_in_aggregate_is_preferred_to_one_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("sum", f"{__name__}:PLAIN"))
    assert find_aggregate("sum") is not PLAIN


def test_unknown_aggregate_is_refused_with_the_known_ones_and_those_of_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    with pytest.raises(
        ConfigurationError, match=r"unknown aggregate digit, did you mean digits\? \(known: count, digits, last, max"
    ):
        find_aggregate("digit")


def test_all_unknown_aggregates_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as failed:
        find_aggregates(["median", "sum", "mode"])
    assert [problem.split(" (")[0] for problem in failed.value.problems] == [
        "unknown aggregate median, did you mean mean?",
        "unknown aggregate mode",
    ]


@pytest.mark.parametrize(
    ("name", "target", "problem"),
    [
        ("plain", "NOWHERE", "cannot be imported .*: repair its package"),
        ("plain", "NO_AGGREGATE", "is not an instance of"),
        ("plain", "OTHER_NAME", "its name is 'other'"),
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


def test_columns_of_one_name_that_differ_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rename one of the columns"):
        columns_of([find_aggregate("sum"), RESERVED_COLUMN_NAME])


def test_state_schema_names_the_type_of_a_binary_column(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert state_schema_of(settings("digits", "sum")).columns == "count,digit_set:binary,sum"


def test_columns_that_do_not_fit_into_the_metadata_of_an_offset_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("plain", f"{__name__}:TOO_MANY_COLUMNS"))
    with pytest.raises(ConfigurationError, match=r"aggregator\.aggregates: .* fewer aggregates or shorter names"):
        state_schema_of(settings("plain"))


def test_document_of_a_pipeline_has_the_result_types_of_added_aggregates(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    schemas = document(settings("count", "sum", "digits"))["components"]["schemas"]
    fields = schemas["Aggregate"]["properties"]
    assert fields["count"]["type"] == "integer"
    assert fields["sum"]["type"] == "number"
    assert (fields["digits"]["type"], fields["digits"]["items"]) == ("array", {"type": "integer"})
    assert fields["digits"]["description"] == "Distinct last two digits of the values, ascending."


def test_example_of_the_recipe_is_an_aggregate_with_the_result_that_it_describes() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module: dict[str, Any] = {}
    exec(code, module)  # noqa: S102 - a page of this repository
    first = module["FIRST"]
    keys = pa.array(["a", "b", "a", "a"]).dictionary_encode()
    columns = {"key": keys, "value": pa.array([5, 7, 4, 6]), "time": pa.array([3, 1, 2, 2])}
    batch = pa.record_batch(columns)
    merged = merge_partials(
        [to_partials([part], 10, first.columns) for part in (batch[2:], batch[:2])], ["key"], first.columns
    )
    partials = {"first_value": merged["first_value"].to_numpy()}
    results = as_python(first.present(partials, 1))
    assert dict(zip(merged["key"].to_pylist(), results, strict=True)) == {"a": 0.4, "b": 0.7}
