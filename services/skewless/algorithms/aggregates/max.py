"""Largest value in a group."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import MAX, Aggregate
from skewless.algorithms.aggregates.partial_column import PartialColumn


class Max(Aggregate):
    """Largest value."""

    name: ClassVar[str] = "max"
    mergeable: ClassVar[bool] = True
    columns: tuple[PartialColumn, ...] = (MAX,)
