from __future__ import annotations

from decimal import Context, Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.aggregates import results
from skewless.algorithms.aggregates import AGGREGATES, FixedPointResults, as_python, columns_of
from skewless.algorithms.int128 import full, widen


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
