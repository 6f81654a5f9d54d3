"""Sum of the values in a group."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from skewless.algorithms.aggregates.base import SUM, Aggregate
from skewless.algorithms.aggregates.partial_column import PartialColumn


class Sum(Aggregate):
    """Exact sum of the values. It has at most 38 digits, more than any number of values can reach."""

    name: ClassVar[str] = "sum"
    mergeable: ClassVar[bool] = True
    columns: tuple[PartialColumn, ...] = (SUM,)

    def result_type(self, decimals: int) -> pa.DataType:
        """Return the type of a decimal of 38 digits, which holds every sum."""
        return pa.decimal128(38, decimals)
