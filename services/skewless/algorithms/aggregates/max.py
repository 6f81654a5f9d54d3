"""The largest value of a group."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import MAX, Aggregate, PartialColumn


class Max(Aggregate):
    """Largest value."""

    name: ClassVar[str] = "max"
    columns: ClassVar[tuple[PartialColumn, ...]] = (MAX,)
