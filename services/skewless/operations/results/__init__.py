"""Reads the results of a pipeline: the newest revision of each key and window, from its table or its topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from skewless.algorithms.aggregates.having import is_comparable
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError, ConfigurationError
from skewless.operations.results import topic
from skewless.operations.results.selection import ResultRecord, Selection, other_windows, selection


class Query(NamedTuple):
    """Results to read."""

    window: str
    """Choice of windows, as `selection` reads it."""
    select: Selection
    key: str | None
    """The only key. None: all keys."""
    top: int | None
    """Number of the largest results of each window. None: all."""
    by: str
    """Name of the result that is the order."""
    ranks: bool = False
    """Whether to read the ranks of topic `top` instead of the results."""


def query_of(  # noqa: PLR0913 - passed by name
    settings: PipelineSettings,
    *,
    window: str,
    key: str | None = None,
    top: int | None = None,
    by: str | None = None,
    on_open: Callable[[], None] = lambda: None,
) -> Query:
    """Return the query for results of a pipeline. `by` is by default the first result.

    `on_open` is that of `selection`. Raises ConfigurationError for an unknown window or result, for an order of results
    that are not numbers, and for a pipeline that only joins.
    """
    _ = settings.aggregated  # an error if the pipeline only joins
    results = {result.name: result for result in settings.results}
    if by is not None and by not in results:
        raise ConfigurationError(f"by: {by} is not a result of this pipeline: {', '.join(results)}")
    if top is not None and top < 1:
        raise ConfigurationError(f"top: {top} must be at least 1")
    order = by or next(iter(results))
    if (by or top) and not is_comparable(results[order]):
        numbers = [name for name, result in results.items() if is_comparable(result)]
        raise ConfigurationError(f"by: {order} is not a number (results that are: {', '.join(numbers) or 'none'})")
    return Query(window, selection(window, on_open), key, top, order)


def read(settings: PipelineSettings, query: Query, warn: Callable[[str], None]) -> Sequence[ResultRecord]:
    """Return the results by window, largest first. `warn` receives a warning of records that are not results.

    They are those of the table of `sink`, if the pipeline has one, else those of topic `aggregates`. Raises
    CheckFailedError if there are none.
    """
    if query.ranks:
        _ = settings.ranking  # an error if the pipeline ranks no keys
        found = topic.read(settings, query.select, query.key, warn, "top")
    elif settings.sink is None:
        found = topic.read(settings, query.select, query.key, warn)
    else:
        from skewless.operations.results import table

        found = table.read(settings, query.select, query.key)
    if not found:
        raise CheckFailedError(f"no results for window {query.window}: choose {other_windows(query.window)}")
    if query.ranks:
        return sorted(found, key=lambda result: (result["window_start"], result["rank"]))
    by_window: dict[int, list[ResultRecord]] = {}
    for result in sorted(
        found, key=lambda result: (result["window_start"], _order(result.get(query.by)), result["key"])
    ):
        by_window.setdefault(result["window_start"], []).append(result)
    return [result for window in by_window.values() for result in window[: query.top]]


def _order(value: Any) -> tuple[bool, Decimal]:
    """Return the place of a result: the largest number first, with all its digits, and results without one last."""
    try:
        return False, Decimal(str(value)).copy_negate()
    except InvalidOperation:
        return True, Decimal()
