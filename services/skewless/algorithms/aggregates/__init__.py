"""The built-in aggregates. To add one, define its class in a new file and list it here: the law tests cover it.

Only this package knows what they compute. All other modules use the names and columns of `Aggregate` objects, and the
constants of this module.
"""

from __future__ import annotations

from collections.abc import Iterable

from skewless.algorithms.aggregates.base import (
    COUNT,
    Aggregate,
    Results,
    as_python,
    as_result_array,
    in_source_unit,
)
from skewless.algorithms.aggregates.count import Count
from skewless.algorithms.aggregates.distinct import Distinct
from skewless.algorithms.aggregates.first import First
from skewless.algorithms.aggregates.fixed_point_results import FixedPointResults
from skewless.algorithms.aggregates.having import ResultCondition, selected
from skewless.algorithms.aggregates.largest import Largest
from skewless.algorithms.aggregates.last import Last
from skewless.algorithms.aggregates.max import Max
from skewless.algorithms.aggregates.mean import Mean
from skewless.algorithms.aggregates.min import Min
from skewless.algorithms.aggregates.partial_column import (
    BinaryColumn,
    Int128Column,
    IntegerColumn,
    PartialColumn,
    Partials,
    Tuples,
    as_arrow,
    as_objects,
    counting_column,
)
from skewless.algorithms.aggregates.quantile import Quantile
from skewless.algorithms.aggregates.result_field import ResultField, default_fields, parts_of
from skewless.algorithms.aggregates.smallest import Smallest
from skewless.algorithms.aggregates.stddev import Stddev
from skewless.algorithms.aggregates.sum import Sum
from skewless.errors import ConfigurationError

__all__ = [
    "AGGREGATES",
    "DEFAULT",
    "LOAD_COLUMN",
    "ROWS_COLUMN",
    "TUPLE_COUNT",
    "Aggregate",
    "BinaryColumn",
    "FixedPointResults",
    "Int128Column",
    "IntegerColumn",
    "PartialColumn",
    "Partials",
    "ResultCondition",
    "ResultField",
    "Results",
    "Tuples",
    "as_arrow",
    "as_objects",
    "as_python",
    "as_result_array",
    "columns_of",
    "counting_column",
    "default_fields",
    "in_source_unit",
    "parts_of",
    "selected",
    "wire_columns_of",
]

AGGREGATES: dict[str, Aggregate] = {
    aggregate.name: aggregate
    for aggregate in (
        Count(),
        Sum(),
        Mean(),
        Min(),
        Max(),
        First(),
        Last(),
        Largest(),
        Smallest(),
        Stddev(),
        Distinct(),
        Quantile(),
    )
}
"""The built-in aggregates by name."""

DEFAULT = (Count.name, Sum.name)
"""Names of the aggregates that a pipeline computes by default."""

LOAD_COLUMN = COUNT
"""Column that all partials have: the number of tuples. Stages count tuples by it."""

ROWS_COLUMN = counting_column("rows")
"""Column of the number of rows that a worker has processed for a partial: tuples, or rows in which the splitter has
aggregated several tuples. Partials without it have one row per tuple. The load of workers is measured by it."""

TUPLE_COUNT = AGGREGATES[Count.name]
"""Aggregate whose result is the number of tuples. The demo and the smoke test compare it with their own count."""


def columns_of(aggregates: Iterable[Aggregate | ResultField]) -> tuple[PartialColumn, ...]:
    """Return the columns that these aggregates need. A column that several aggregates share is included once.

    Raises ConfigurationError if two of them define a column of the same name differently.
    """
    columns: dict[str, PartialColumn] = {}
    for aggregate in aggregates:
        for column in aggregate.columns:
            if columns.setdefault(column.name, column) != column:
                raise ConfigurationError(
                    f"aggregate {aggregate.name} defines the partial column {column.name} differently than another "
                    "aggregate: rename one of the columns"
                )
    return tuple(columns.values())


def wire_columns_of(aggregates: Iterable[Aggregate | ResultField]) -> tuple[PartialColumn, ...]:
    """Return the columns of partials in records: LOAD_COLUMN and those that these aggregates need."""
    return columns_of([TUPLE_COUNT, *aggregates])
