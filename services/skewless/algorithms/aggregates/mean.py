"""Arithmetic mean of the values in a group."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from skewless.algorithms.aggregates.base import COUNT, SUM, Aggregate, Results, in_source_unit
from skewless.algorithms.aggregates.partial_column import PartialColumn, Partials


class Mean(Aggregate):
    """Arithmetic mean of the values. Stored as sum and count, so that partial results merge."""

    name: ClassVar[str] = "mean"
    columns: ClassVar[tuple[PartialColumn, ...]] = (SUM, COUNT)

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - a mean of integers has decimals, too
        """Return the type of a number with decimals."""
        return pa.float64()

    def present(self, partials: Partials, decimals: int) -> Results:
        """Divide sum by count. The result is the nearest double while the sum is below 2^53."""
        return in_source_unit(partials[SUM.name] / partials[COUNT.name], decimals)
