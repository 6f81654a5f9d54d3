"""The known aggregates. To add one: its class in a file of its own, and its line here; the laws then run on it."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.algorithms.aggregates.base import Aggregate, PartialColumn, Results
from skewless.algorithms.aggregates.count import Count
from skewless.algorithms.aggregates.max import Max
from skewless.algorithms.aggregates.mean import Mean
from skewless.algorithms.aggregates.min import Min
from skewless.algorithms.aggregates.sum import Sum
from skewless.errors import ConfigurationError

__all__ = ["AGGREGATES", "Aggregate", "PartialColumn", "Results", "columns_of", "create"]

AGGREGATES: dict[str, Aggregate] = {
    aggregate.name: aggregate
    for aggregate in (
        Count(),
        Sum(),
        Mean(),
        Min(),
        Max(),
    )
}


def create(name: str) -> Aggregate:
    """Return the aggregate of this name; ConfigurationError when there is none."""
    if name not in AGGREGATES:
        raise ConfigurationError(f"aggregate {name!r} is unknown: choose from {', '.join(AGGREGATES)}")
    return AGGREGATES[name]


def columns_of(aggregates: Sequence[Aggregate]) -> tuple[PartialColumn, ...]:
    """Collect the columns that these aggregates need, each stored once however many of them share it."""
    return tuple(dict.fromkeys(column for aggregate in aggregates for column in aggregate.columns))
