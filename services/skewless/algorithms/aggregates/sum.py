"""Sum of the values in a group."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import SUM, Aggregate
from skewless.algorithms.aggregates.partial_column import PartialColumn


class Sum(Aggregate):
    """Exact sum of the values. It must fit into 64 bits."""

    name: ClassVar[str] = "sum"
    columns: ClassVar[tuple[PartialColumn, ...]] = (SUM,)
