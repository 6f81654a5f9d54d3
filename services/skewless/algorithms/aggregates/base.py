"""Mergeable aggregates over columns: tuples become partials, partials merge, and results are computed from them.

The three steps are those of Algebird's `Aggregator`: prepare, merge, present. A partial column has the first two, an
aggregate the third.

Values are int64 on the wire (the splitter scales decimals to fixed point), and sums have 128 bits. A sum is therefore
exact and does not depend on the order of its terms. For the same reason there is no sum of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.fixed_point_results import FixedPointResults
from skewless.algorithms.aggregates.partial_column import (
    Int128Column,
    IntegerColumn,
    PartialColumn,
    Partials,
    counting_column,
    value_of,
)
from skewless.algorithms.value_type import VALUE, Kind
from skewless.settings_base import SettingsModel

Results: TypeAlias = NDArray[Any] | list[Any] | FixedPointResults
"""One result per group: an array of numbers, a list of Python values, or numbers that are exact to the last digit."""

COUNT = counting_column("count")
SUM = Int128Column("sum", value_of)
MIN = IntegerColumn("min", value_of, "min")
MAX = IntegerColumn("max", value_of, "max")
_PYTHON_TYPES = frozenset({int, float, bool, str, Decimal, type(None)})
"""Types of results that are no lists, as encoders accept them."""


class Aggregate:
    """The partial columns to maintain for a group of tuples, and the result to compute from them.

    The defaults of the methods are those of a number in the unit of the values.
    """

    name: ClassVar[str]
    columns: tuple[PartialColumn, ...]
    kinds: ClassVar[tuple[Kind, ...]] = ("number",)
    """Kinds of values that it can be computed from."""
    needs_value: ClassVar[bool] = True
    """Whether it is computed from a value. Otherwise it is computed from tuples, unless the settings name a value."""
    empty: ClassVar[Any] = None
    """Result of a group in which no tuple has the value."""
    mergeable: ClassVar[bool] = False
    """Whether a database can merge the results of two groups."""
    arguments: ClassVar[type[SettingsModel]] = SettingsModel
    """Settings of the aggregate. With the default it has none. `with_arguments` receives an object of this class."""

    def with_arguments(self, arguments: Any) -> Sequence[Aggregate]:  # noqa: ARG002 - for subclasses
        """Return the aggregates for these arguments: one, or several if they have several results."""
        return (self,)

    def result_name(self, value: str) -> str:
        """Return the default name of the result for a value."""
        return self.name if value == VALUE else f"{self.name}_{value}"

    def result_type(self, decimals: int) -> pa.DataType:
        """Return the type of a result: int64, float64, decimal128(38, decimals), string, bool, or a list of one."""
        return pa.decimal128(38, decimals) if decimals else pa.int64()

    @cached_property
    def can_be_null(self) -> bool:  # not a property, because `__init__` of a subclass may set it
        """Whether a group with values may have no result.

        By default it may if results are floats: those that are NaN or infinite become null, because JSON has neither.
        """
        return bool(pa.types.is_float64(item_type(self.result_type(1))))

    @property
    def parts(self) -> tuple[Aggregate, ...]:
        """Aggregates of one number each, which a database can merge, and from which it can compute the result.

        One is the result itself; of two, the result is the quotient. None: a database cannot compute the result.
        """
        return (self,) if self.mergeable else ()

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return one result per group (row). The default is the first column.

        `partials` has at least this aggregate's columns. `decimals` is the number of decimal places of the fixed-point
        values.
        """
        return in_source_unit(partials[self.columns[0].name], decimals)


def in_source_unit(fixed_point: NDArray[Any], decimals: int) -> Results:
    """Return fixed-point integers of 64 or 128 bits in the unit of the source, exact to the last digit."""
    return FixedPointResults(fixed_point, decimals) if decimals or fixed_point.ndim > 1 else fixed_point


def item_type(result_type: pa.DataType) -> pa.DataType:
    """Return the type of the items of a list, and any other type as it is."""
    return result_type.value_type if pa.types.is_list(result_type) else result_type


def as_python(results: Results) -> list[Any]:
    """Return results as Python values whose JSON has all their digits."""
    if isinstance(results, FixedPointResults):
        return results.to_list()
    listed: list[Any] = results if isinstance(results, list) else results.tolist()
    if isinstance(results, np.ndarray) and results.dtype != np.object_:
        return listed
    # What a package returns may contain numbers of NumPy, which encoders do not accept.
    return listed if _PYTHON_TYPES.issuperset(map(type, listed)) else list(map(_as_python, listed))


def _as_python(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return list(map(_as_python, result))
    return result.tolist() if isinstance(result, np.generic | np.ndarray) else result


def as_result_array(results: Results, result_type: pa.DataType) -> pa.Array:
    """Return results as an Arrow array of their type."""
    return results.to_arrow() if isinstance(results, FixedPointResults) else pa.array(results, result_type)
