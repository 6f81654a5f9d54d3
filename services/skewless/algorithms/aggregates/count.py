"""How many tuples a group has."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import COUNT, Aggregate, PartialColumn


class Count(Aggregate):
    """Number of tuples."""

    name: ClassVar[str] = "count"
    columns: ClassVar[tuple[PartialColumn, ...]] = (COUNT,)
