"""Value of the last tuple by event time."""

from __future__ import annotations

from typing import ClassVar

from skewless.algorithms.aggregates.base import Aggregate, Results, in_source_unit
from skewless.algorithms.aggregates.first import time_and_value, value_in
from skewless.algorithms.aggregates.partial_column import Int128Column, PartialColumn, Partials


class Last(Aggregate):
    """Value of the last tuple by event time; the largest one if several tuples have this time."""

    name: ClassVar[str] = "last"
    columns: tuple[PartialColumn, ...] = (Int128Column("last", time_and_value, "max"),)

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return the values."""
        return in_source_unit(value_in(partials[self.columns[0].name]), decimals)
