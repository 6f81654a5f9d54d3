"""Number of tuples in a group."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from skewless.algorithms.aggregates.base import COUNT, Aggregate, Results
from skewless.algorithms.aggregates.partial_column import PartialColumn, Partials


class Count(Aggregate):
    """Number of tuples."""

    name: ClassVar[str] = "count"
    columns: ClassVar[tuple[PartialColumn, ...]] = (COUNT,)

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - not in the unit of the values
        """Return the type of an integer."""
        return pa.int64()

    def present(self, partials: Partials, decimals: int) -> Results:  # noqa: ARG002 - not in the unit of the values
        """Return the counts."""
        return partials[COUNT.name]
