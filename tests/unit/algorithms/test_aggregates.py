from __future__ import annotations

import numpy as np

from skewless.aggregate_registry import find_aggregates
from skewless.algorithms.aggregates import AGGREGATES, columns_of


def test_aggregate_columns_shared_by_several_aggregates_are_stored_once() -> None:
    columns = columns_of(find_aggregates(["count", "mean", "sum", "max"]))
    assert [column.name for column in columns] == ["count", "sum", "max"]


def test_aggregate_columns_of_the_same_name_are_one_column() -> None:
    """Otherwise two aggregates would write different values to the same column."""
    columns = columns_of(list(AGGREGATES.values()))
    assert len({column.name for column in columns}) == len(columns)


def test_mean_aggregate_of_integers_can_be_a_fraction() -> None:
    partials = {"sum": np.array([7, -3]), "count": np.array([2, 3])}
    assert list(AGGREGATES["mean"].present(partials, decimals=0)) == [3.5, -1.0]
