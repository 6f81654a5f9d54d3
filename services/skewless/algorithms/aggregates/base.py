"""Mergeable aggregates over columns: tuples become partials, partials merge, and results are computed from them.

The three steps are those of Algebird's `Aggregator`: prepare, merge, present. A partial column has the first two, an
aggregate the third.

Values are int64 on the wire (the splitter scales decimals to fixed point). A sum is therefore exact and does not depend
on the order of its terms. For the same reason there is no sum of floats.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.partial_column import (
    IntegerColumn,
    PartialColumn,
    Partials,
    counting_column,
    value_of,
)

Results: TypeAlias = NDArray[Any] | list[Any]
"""One result per group: an array of numbers, or a list of Python values."""

COUNT = counting_column("count")
SUM = IntegerColumn("sum", value_of, "sum")
MIN = IntegerColumn("min", value_of, "min")
MAX = IntegerColumn("max", value_of, "max")


class Aggregate:
    """The partial columns to maintain for a group of tuples, and the result to compute from them.

    The defaults of the methods are those of a number in the unit of the values.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[PartialColumn, ...]]

    def result_type(self, decimals: int) -> pa.DataType:
        """Return the type of a result: int64, float64, string, bool, or a list of one of these."""
        return pa.float64() if decimals else pa.int64()

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return one result per group (row). The default is the first column.

        `partials` has at least this aggregate's columns. `decimals` is the number of decimal places of the fixed-point
        values.
        """
        return in_source_unit(partials[self.columns[0].name], decimals)


def in_source_unit(fixed_point: NDArray[Any], decimals: int) -> NDArray[Any]:
    """Return fixed-point numbers in the unit of the source."""
    return fixed_point / 10**decimals if decimals else fixed_point
