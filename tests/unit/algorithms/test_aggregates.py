from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.aggregates import AGGREGATES, columns_of, create
from skewless.errors import ConfigurationError


def test_columns_that_aggregates_share_are_stored_once() -> None:
    columns = columns_of([create("count"), create("mean"), create("sum"), create("max")])
    assert [column.name for column in columns] == ["count", "sum", "max"]


def test_columns_of_one_name_are_one_column() -> None:
    """Otherwise two aggregates would fill the same place with different things."""
    columns = columns_of(list(AGGREGATES.values()))
    assert len({column.name for column in columns}) == len(columns)


def test_a_mean_of_integers_may_be_a_fraction() -> None:
    partials = {"sum": np.array([7, -3]), "count": np.array([2, 3])}
    assert create("mean").result(partials).tolist() == [3.5, -1.0]


def test_an_unknown_aggregate_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match="aggregate 'median' is unknown: choose from count, sum, mean, min, max"
    ):
        create("median")
