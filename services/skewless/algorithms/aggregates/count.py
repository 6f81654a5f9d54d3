"""Number of tuples in a group."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from skewless.algorithms.aggregates.base import COUNT, Aggregate, Results
from skewless.algorithms.aggregates.partial_column import PartialColumn, Partials
from skewless.algorithms.value_type import Kind


class Count(Aggregate):
    """Number of tuples; with a value, of the tuples that have it."""

    name: ClassVar[str] = "count"
    mergeable: ClassVar[bool] = True
    columns: tuple[PartialColumn, ...] = (COUNT,)
    kinds: ClassVar[tuple[Kind, ...]] = ("number", "text")
    needs_value: ClassVar[bool] = False
    empty: ClassVar[int] = 0

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - not in the unit of the values
        """Return the type of an integer."""
        return pa.int64()

    def present(self, partials: Partials, decimals: int) -> Results:  # noqa: ARG002 - not in the unit of the values
        """Return the counts."""
        return partials[COUNT.name]
