"""The smallest value of a group."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import MIN, Aggregate, PartialColumn


class Min(Aggregate):
    """Smallest value."""

    name: ClassVar[str] = "min"
    columns: ClassVar[tuple[PartialColumn, ...]] = (MIN,)
