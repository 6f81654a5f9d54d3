"""Mergeable aggregates over columns: tuples are prepared into partial columns, partials merge, results are presented.

Values are int64 on the wire (decimals as fixed point: the splitter scales them), so that a sum is exact and does not
depend on the order of its terms. That is why there is no sum of floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Results: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class PartialColumn:
    """One int64 column of partial results; columns of the same name are the same column."""

    name: str
    source: Literal["one", "value"]
    """What a single tuple puts in: the number 1, or its value."""
    merge: Literal["sum", "min", "max"]
    """How two partial results become one: an associative and commutative operation."""


COUNT = PartialColumn("count", source="one", merge="sum")
SUM = PartialColumn("sum", source="value", merge="sum")
MIN = PartialColumn("min", source="value", merge="min")
MAX = PartialColumn("max", source="value", merge="max")


class Aggregate:
    """What to remember of a group of tuples, and what to make of it in the end."""

    name: ClassVar[str]
    columns: ClassVar[tuple[PartialColumn, ...]]

    def result(self, partials: Mapping[str, NDArray[np.int64]]) -> Results:
        """Make one result per group (row), in the unit of the values: here the first column as it is.

        `partials` has at least this aggregate's columns.
        """
        return partials[self.columns[0].name]
