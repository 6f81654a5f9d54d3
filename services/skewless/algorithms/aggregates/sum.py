"""What the values of a group add up to."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import SUM, Aggregate, PartialColumn


class Sum(Aggregate):
    """Exact sum of the values; it has to stay within 64 bits."""

    name: ClassVar[str] = "sum"
    columns: ClassVar[tuple[PartialColumn, ...]] = (SUM,)
