"""A ranking has the keys with the largest results: ties by key, nothing without a result."""

from __future__ import annotations

import pyarrow as pa
import pytest

from skewless.aggregate_registry import results_of
from skewless.algorithms.aggregates import ResultCondition, columns_of
from skewless.algorithms.partials import to_partials
from skewless.algorithms.ranking import Ranking
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.windowing.window import Emission

RESULTS = results_of(["count", "sum", "stddev"], [ValueType()])
COUNT, SUM, STDDEV = RESULTS


def emission(*tuples: tuple[str, int]) -> Emission:
    columns = {
        "key": pa.array([key for key, _ in tuples]).dictionary_encode(),
        "time": pa.array([0] * len(tuples), pa.int64()),
        "value": pa.array([value for _, value in tuples], pa.int64()),
    }
    partials = to_partials([pa.record_batch(columns)], 1, columns_of(RESULTS))
    data = {column.name: column.from_arrow(partials[column.name]) for column in columns_of(RESULTS)}
    return Emission(0, partials["key"].combine_chunks(), data)


def test_ranking_of_several_portions_is_that_of_all_rows() -> None:
    portions = [emission(("a", 1), ("b", 5)), emission(("c", 5)), emission(("d", 9), ("é", 0))]
    best = Ranking(3, SUM).best(portions)
    assert (best.keys.to_pylist(), SUM.to_python(best.data)) == (["d", "b", "c"], [9, 5, 5])


@pytest.mark.parametrize("n", [1, 2, 100])
def test_ranking_of_equal_results_is_in_the_order_of_the_keys_bytes(n: int) -> None:
    keys = ["ä", "b", "B", "a", "\U0001f600", "\uffff"]
    best = Ranking(n, COUNT).best([emission(*((key, 1) for key in keys))])
    assert best.keys.to_pylist() == sorted(keys, key=str.encode)[:n]


def test_ranking_leaves_out_keys_without_the_result_and_those_that_match_no_condition() -> None:
    rows = emission(("once", 9), ("low", 1), ("low", 2), ("high", 5), ("high", 15))
    assert Ranking(9, STDDEV).best([rows]).keys.to_pylist() == ["high", "low"]
    assert Ranking(9, STDDEV, [ResultCondition(SUM, "below", 5)]).best([rows]).keys.to_pylist() == ["low"]
    assert Ranking(9, STDDEV, [ResultCondition(SUM, "at_least", 5)]).best([rows]).keys.to_pylist() == ["high"]
    none = Ranking(9, STDDEV, [ResultCondition(SUM, "below", 0)]).best([rows])
    assert (len(none.keys), {len(values) for values in none.data.values()}) == (0, {0})


def test_ranking_of_sums_beyond_doubles_is_exact() -> None:
    large = 2**62
    rows = emission(*[("a", large)] * 8, *[("b", large)] * 8, ("b", 1), ("c", -1))
    best = Ranking(2, SUM).best([rows])
    assert (best.keys.to_pylist(), SUM.to_python(best.data)) == (["b", "a"], [8 * large + 1, 8 * large])
