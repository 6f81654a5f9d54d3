from __future__ import annotations

from decimal import Context, Decimal
from math import inf, nan
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.aggregates import results
from skewless.algorithms.aggregates import (
    AGGREGATES,
    Aggregate,
    FixedPointResults,
    Partials,
    ResultCondition,
    ResultField,
    Results,
    as_python,
    columns_of,
    counting_column,
)
from skewless.algorithms.int128 import full, widen
from skewless.algorithms.value_type import ValueType
from skewless.wire.aggregates import aggregate_type, encode_json


class Float(Aggregate):
    """Returns floats, whatever its partials are."""

    name: ClassVar[str] = "float"
    columns = (counting_column("float_count"),)

    def __init__(self, results: Results, result_type: pa.DataType) -> None:
        self._results, self._result_type = results, result_type

    def result_type(self, decimals: int) -> pa.DataType:
        return self._result_type

    def present(self, partials: Partials, decimals: int) -> Results:
        return self._results


def test_aggregate_columns_shared_by_several_aggregates_are_stored_once() -> None:
    columns = columns_of(results("count", "mean", "sum", "max"))
    assert [column.name for column in columns] == ["count", "sum", "max"]


def test_aggregate_columns_of_the_same_name_are_one_column() -> None:
    """Otherwise two aggregates would write different values to the same column."""
    columns = columns_of(list(AGGREGATES.values()))
    assert len({column.name for column in columns}) == len(columns)


def test_mean_aggregate_of_integers_can_be_a_fraction() -> None:
    partials = {"sum": widen(np.array([7, -3])), "count": np.array([2, 3])}
    assert as_python(AGGREGATES["mean"].present(partials, decimals=0)) == [3.5, -1.0]


@pytest.mark.parametrize(
    ("total", "decimals", "text"),
    [
        (2**63, 0, "9223372036854775808"),
        (-(2**63) - 1, 0, "-9223372036854775809"),
        (2**126, 0, "85070591730234615865843651857942052864"),
        (1_234_567_890_123_456_789, 2, "12345678901234567.89"),
        (-(10**19), 2, "-100000000000000000.00"),
        (10**15, 9, "1000000.000000000"),
        (123, 2, "1.23"),
        (1, 9, "1e-9"),
        (-100, 2, "-1.0"),
        (0, 2, "0.0"),
    ],
)
def test_sum_result_has_all_digits_as_json_number_text_and_decimal(total: int, decimals: int, text: str) -> None:
    results = AGGREGATES["sum"].present({"sum": full(1, total)}, decimals)
    assert isinstance(results, FixedPointResults)
    encode = msgspec.json.Encoder(decimal_format="number").encode
    assert [encode(number).decode() for number in results.to_list()] == [text]
    exact = Decimal(total).scaleb(-decimals, Context(prec=50))
    assert (Decimal(text), [Decimal(number) for number in results.to_texts()]) == (exact, [exact])
    assert results.to_arrow().to_pylist() == [exact]


@given(numbers=st.lists(st.integers(-(10**15) + 1, 10**15 - 1)), decimals=st.integers(1, 9))
def test_results_of_up_to_15_digits_are_doubles_with_the_same_digits(numbers: list[int], decimals: int) -> None:
    results = FixedPointResults(np.array(numbers, dtype=np.int64), decimals).to_list()
    assert [Decimal(repr(number)) for number in results] == [Decimal(number).scaleb(-decimals) for number in numbers]


@pytest.mark.parametrize(
    ("computed", "result_type", "expected"),
    [
        (np.array([0.5, nan, inf, -inf]), pa.float64(), [0.5, None, None, None]),
        ([0.5, None, -inf], pa.float64(), [0.5, None, None]),
        ([[0.5, 1.5], [0.5, nan], [], None], pa.list_(pa.float64()), [[0.5, 1.5], None, [], None]),
    ],
)
@pytest.mark.parametrize("optional", [True, False])
def test_result_that_is_not_finite_is_null_in_json_and_in_spark(
    computed: Results, result_type: pa.DataType, expected: list[Any], *, optional: bool
) -> None:
    field = ResultField("ratio", Float(computed, result_type), ValueType(optional=optional))
    partials = {column.name: np.ones(len(expected), np.int64) for column in field.columns}
    assert field.to_python(partials) == field.to_arrow(partials).to_pylist() == expected
    assert field.can_be_null
    record_type: Any = aggregate_type([field])
    for result in expected:
        assert msgspec.json.decode(encode_json(record_type("a", 0, 1, result, 0)), type=record_type).ratio == result


def test_result_that_is_a_list_with_null_beside_finite_numbers_stays() -> None:
    field = ResultField("ratio", Float([[0.5, None], [None, inf], [None]], pa.list_(pa.float64())), ValueType())
    partials = {column.name: np.ones(3, np.int64) for column in field.columns}
    assert field.to_python(partials) == field.to_arrow(partials).to_pylist() == [[0.5, None], None, [None]]


@pytest.mark.parametrize(
    ("computed", "result_type", "expected"),
    [
        ([np.float64(0.5), None, 1.5, np.float64(nan)], pa.float64(), [0.5, None, 1.5, None]),
        ([np.int64(2**60), 1], pa.int64(), [2**60, 1]),
        ([np.bool_(1), False], pa.bool_(), [True, False]),
        (np.array([np.float64(0.5), None]), pa.float64(), [0.5, None]),
        ([[np.float64(0.5), None], (1.5,), np.array([2.5])], pa.list_(pa.float64()), [[0.5, None], [1.5], [2.5]]),
        ([[np.bool_(1)], np.array([False])], pa.list_(pa.bool_()), [[True], [False]]),
    ],
)
def test_result_of_a_type_of_numpy_becomes_that_of_python(
    computed: Results, result_type: pa.DataType, expected: list[Any]
) -> None:
    field = ResultField("ratio", Float(computed, result_type), ValueType())
    partials = {column.name: np.ones(len(expected), np.int64) for column in field.columns}
    found = field.to_python(partials)
    assert found == field.to_arrow(partials).to_pylist() == expected
    assert msgspec.json.decode(encode_json(found)) == expected
    if result_type == pa.float64():
        above = ResultCondition(field, "above", 1.0).matches(partials).tolist()
        assert above == [number is not None and number > 1 for number in expected]


@pytest.mark.parametrize("name", ["count", "sum", "min", "max", "mean", "quantile"])
def test_result_of_a_built_in_aggregate_is_never_null(name: str) -> None:
    (field,) = results(name)
    assert not field.can_be_null


@pytest.mark.parametrize("can_be_null", [True, False])
@pytest.mark.parametrize("result_type", [pa.int64(), pa.float64()], ids=str)
def test_aggregate_that_sets_whether_results_can_be_null_when_it_is_created_decides_it(
    result_type: pa.DataType, *, can_be_null: bool
) -> None:
    class Own(Float):
        def __init__(self) -> None:
            super().__init__([], result_type)
            self.can_be_null = can_be_null

    assert ResultField("own", Own(), ValueType()).can_be_null == can_be_null
