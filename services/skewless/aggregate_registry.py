"""Finds aggregates by name. A package adds an aggregate with an entry point of the group `skewless.aggregates`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import msgspec

from skewless.algorithms.aggregates import AGGREGATES, Aggregate
from skewless.algorithms.windowing.window_store import EMIT_COUNT
from skewless.errors import ConfigurationError, unknown
from skewless.wire.aggregates import aggregate_type, json_type
from skewless.wire.partials import FIELD_TYPES

_GROUP = "skewless.aggregates"
_NAME_RULE = "it must be an identifier in lower case"
_RESERVED_RESULTS = {*(field.name for field in msgspec.structs.fields(aggregate_type(()))), "partition"}
"""Columns of results, in records and in Spark. No aggregate may be named after one."""
_RESERVED_COLUMNS = {
    *FIELD_TYPES,
    EMIT_COUNT.name,
    *("window", "revision", "source_partition", "block", "first_offset", "kind", "time", "late", "reread"),
    "watermark_ms",
}
"""Columns of partials, in records, in the store of windows and in Spark. No partial column may be named after one."""


def find_aggregate(name: str) -> Aggregate:
    """Return the aggregate with this name, preferably a built-in one.

    Raises ConfigurationError if there is none, or if that of a package is invalid.
    """
    if name in AGGREGATES:
        return AGGREGATES[name]
    added = entry_points(group=_GROUP)
    if name not in added.names:
        raise ConfigurationError(unknown("aggregate", name, [*AGGREGATES, *added.names]))
    return _load(added[name])


def find_aggregates(names: Iterable[str]) -> tuple[Aggregate, ...]:
    """Return the aggregates with these names. Raises ConfigurationError with the problems of all of them."""
    aggregates: list[Aggregate] = []
    problems: list[str] = []
    for name in names:
        try:
            aggregates.append(find_aggregate(name))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    return tuple(aggregates)


def _load(entry_point: EntryPoint) -> Aggregate:
    try:
        aggregate = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"aggregate {entry_point.name}: {entry_point.value} cannot be imported ({error}): repair its package"
        ) from error
    problem = _problem(entry_point.name, aggregate)
    if problem:
        raise ConfigurationError(f"aggregate {entry_point.name} of {entry_point.value}: {problem}")
    valid: Aggregate = aggregate
    return valid


def _is_name(text: str) -> bool:
    # Spark does not distinguish upper and lower case in names of columns.
    return text.isidentifier() and text == text.lower()


def _problem(name: str, aggregate: object) -> str | None:
    """Return what is wrong with an aggregate of a package; None if nothing is."""
    if not isinstance(aggregate, Aggregate):
        return "is not an instance of skewless.algorithms.aggregates.Aggregate"
    if aggregate.name != name or not _is_name(name):
        return f"its name is {aggregate.name!r}: {_NAME_RULE}, and equal the name of the entry point"
    if name in _RESERVED_RESULTS:
        return "its name is reserved for a column of results: choose another one"
    for column in aggregate.columns:
        if column.name in _RESERVED_COLUMNS or not _is_name(column.name):
            return f"its partial column is {column.name!r}: {_NAME_RULE}, and none of {sorted(_RESERVED_COLUMNS)}"
    for decimals in (0, 1):
        try:
            json_type(aggregate.result_type(decimals))
        except KeyError:
            return f"its results are {aggregate.result_type(decimals)}: use int64, double, string, bool, or a list"
    return None
