"""The elements of `aggregator.aggregates` as functions, for pipelines that a program describes.

A function has the name of its aggregate, and returns what a pipeline file contains. `value` is the name of a value, and
`name` the name of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from skewless.algorithms.aggregates.count import Count
from skewless.algorithms.aggregates.distinct import Distinct
from skewless.algorithms.aggregates.first import First
from skewless.algorithms.aggregates.largest import Largest
from skewless.algorithms.aggregates.last import Last
from skewless.algorithms.aggregates.max import Max
from skewless.algorithms.aggregates.mean import Mean
from skewless.algorithms.aggregates.min import Min
from skewless.algorithms.aggregates.quantile import Quantile
from skewless.algorithms.aggregates.smallest import Smallest
from skewless.algorithms.aggregates.stddev import Stddev
from skewless.algorithms.aggregates.sum import Sum

Element: TypeAlias = str | dict[str, Any]
"""An element of `aggregator.aggregates`."""


def aggregate(
    aggregate: str, value: str | None = None, *, name: str | Sequence[str] | None = None, **arguments: Any
) -> Element:
    """Return the element of any aggregate, also of one that a package adds. Arguments that are None are left out."""
    given = {argument: setting for argument, setting in arguments.items() if setting is not None}
    if name is not None:
        given["as"] = name if isinstance(name, str) else list(name)
    return {aggregate: value, **given} if given or value is not None else aggregate


def count(value: str | None = None, *, name: str | None = None) -> Element:
    """Count the tuples, or those that have the value."""
    return aggregate(Count.name, value, name=name)


def sum(value: str, *, name: str | None = None) -> Element:  # noqa: A001 - the name of the aggregate
    """Sum the values, exactly."""
    return aggregate(Sum.name, value, name=name)


def mean(value: str, *, name: str | None = None) -> Element:
    """Compute the mean of the values."""
    return aggregate(Mean.name, value, name=name)


def min(value: str, *, name: str | None = None) -> Element:  # noqa: A001 - the name of the aggregate
    """Find the smallest value."""
    return aggregate(Min.name, value, name=name)


def max(value: str, *, name: str | None = None) -> Element:  # noqa: A001 - the name of the aggregate
    """Find the largest value."""
    return aggregate(Max.name, value, name=name)


def first(value: str, *, name: str | None = None) -> Element:
    """Find the value of the first tuple by event time."""
    return aggregate(First.name, value, name=name)


def last(value: str, *, name: str | None = None) -> Element:
    """Find the value of the last tuple by event time."""
    return aggregate(Last.name, value, name=name)


def largest(value: str, *, n: int | None = None, name: str | None = None) -> Element:
    """List the `n` largest values."""
    return aggregate(Largest.name, value, n=n, name=name)


def smallest(value: str, *, n: int | None = None, name: str | None = None) -> Element:
    """List the `n` smallest values."""
    return aggregate(Smallest.name, value, n=n, name=name)


def stddev(value: str, *, name: str | None = None) -> Element:
    """Compute the standard deviation of the values."""
    return aggregate(Stddev.name, value, name=name)


def distinct(value: str, *, precision: int | None = None, name: str | None = None) -> Element:
    """Count the distinct values."""
    return aggregate(Distinct.name, value, precision=precision, name=name)


def quantile(
    value: str, *at: float, relative_error: float | None = None, name: str | Sequence[str] | None = None
) -> Element:
    """Compute one or more quantiles of the values. Each is a result of its own."""
    return aggregate(Quantile.name, value, at=list(at) or None, relative_error=relative_error, name=name)
