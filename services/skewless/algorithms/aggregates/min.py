"""Smallest value in a group."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import MIN, Aggregate
from skewless.algorithms.aggregates.partial_column import PartialColumn


class Min(Aggregate):
    """Smallest value."""

    name: ClassVar[str] = "min"
    mergeable: ClassVar[bool] = True
    columns: tuple[PartialColumn, ...] = (MIN,)
