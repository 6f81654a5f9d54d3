"""Finds aggregates by name. A package adds an aggregate with an entry point of the group `skewless.aggregates`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from skewless.algorithms.aggregates import AGGREGATES, Aggregate, ResultField, columns_of
from skewless.algorithms.aggregates.partial_column import PartialColumn
from skewless.algorithms.value_type import VALUE, ValueType
from skewless.algorithms.windowing.sessions import FIRST, LAST, SESSION
from skewless.algorithms.windowing.window import EMIT_COUNT
from skewless.entry_points import AGGREGATE_GROUP, load
from skewless.errors import ConfigurationError, unknown
from skewless.settings_base import plain, without_consequences
from skewless.wire.aggregates import aggregate_type, json_type
from skewless.wire.partials import FIELD_TYPES

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_NAMES = "as"
"""Setting of an element with the names of its results."""
_NAME_RULE = "it must be an identifier in lower case"
RESERVED_RESULTS = {*(field.name for field in msgspec.structs.fields(aggregate_type(()))), "partition"}
"""Columns of results, in records and in Spark. No aggregate may be named after one."""
_RESERVED_COLUMNS = {
    *FIELD_TYPES,
    EMIT_COUNT.name,
    FIRST.name,
    LAST.name,
    SESSION,
    *("window", "revision", "source_partition", "block", "first_offset", "kind", "time", "late", "reread"),
    *("deadline", "watermark_ms"),
}
"""Columns of partials, in records, in the store of windows and in Spark. No partial column may be named after one."""


def find_aggregate(name: str) -> Aggregate:
    """Return the aggregate with this name, preferably a built-in one.

    Raises ConfigurationError if there is none, or if that of a package is invalid.
    """
    if name in AGGREGATES:
        return AGGREGATES[name]
    added = entry_points(group=AGGREGATE_GROUP)
    if name not in added.names:
        raise ConfigurationError(unknown("aggregate", name, [*AGGREGATES, *added.names]))
    return _load(added[name])


@dataclass(frozen=True, slots=True)
class AggregateChoice:
    """An element of `aggregator.aggregates`: an aggregate with its arguments, and the names of value and results."""

    aggregates: Sequence[Aggregate]
    value: str | None
    """None if the element names no value."""
    names: Sequence[str] | None
    """Names of the results if the element has `as`, one for each aggregate."""


def choices_of(elements: Iterable[str | Mapping[str, Any]]) -> list[AggregateChoice]:
    """Return what the elements of `aggregator.aggregates` choose.

    Raises ConfigurationError with the problems of all of them. A problem begins with the index of its element.
    """
    choices: list[AggregateChoice] = []
    problems: list[str] = []
    for index, element in enumerate(elements):
        try:
            choices.append(_choice({element: None} if isinstance(element, str) else element))
        except ConfigurationError as error:
            problems += [f"{index}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigurationError(*problems)
    return choices


def results_of(elements: Iterable[str | Mapping[str, Any]], values: Sequence[ValueType]) -> tuple[ResultField, ...]:
    """Return the results that the elements of `aggregator.aggregates` choose for tuples with these values.

    Raises ConfigurationError with the problems of all elements. A problem begins with the index of its element.
    """
    results: dict[str, ResultField] = {}
    problems: list[str] = []
    for index, choice in enumerate(choices_of(elements)):
        try:
            found = list(_results(choice, {value.name: value for value in values}))
            problems += [
                f"{index}: the result {result.name} is there twice: name one of them with `as`"
                for result in found
                if results.setdefault(result.name, result) is not result
            ]
        except ConfigurationError as error:
            problems += [f"{index}: {problem}" for problem in error.problems]
    try:
        columns_of(results.values())
    except ConfigurationError as error:
        problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    return tuple(results.values())


def name_in(element: Mapping[str, Any]) -> str:
    """Return the name of the aggregate of an element, whose arguments may precede it: Helm sorts all names."""
    if (built_in := next((name for name in element if name in AGGREGATES), None)) is not None:
        return built_in
    added = entry_points(group=AGGREGATE_GROUP).names
    return next((name for name in element if name in added), next(iter(element), ""))


def _choice(element: Mapping[str, Any]) -> AggregateChoice:
    arguments = dict(element)
    names = arguments.pop(_NAMES, None)
    name = name_in(arguments)
    value = arguments.pop(name, None)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name}: should be the name of a value")
    aggregate = find_aggregate(name)
    try:
        aggregates = aggregate.with_arguments(aggregate.arguments.model_validate(arguments))
    except ValidationError as error:
        problems = without_consequences(error.errors())
        raise ConfigurationError(*(_argument_problem(name, aggregate, problem) for problem in problems)) from None
    return AggregateChoice(aggregates, value, _checked_names(names, len(aggregates)))


def _argument_problem(name: str, aggregate: Aggregate, problem: ErrorDetails) -> str:
    path = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        known = ", ".join([*aggregate.arguments.model_fields, _NAMES])
        return f"{path}: unknown argument of {name} (known: {known})"
    return f"{path}: {plain(problem)}"


def _checked_names(names: Any, results: int) -> Sequence[str] | None:
    """Return the names of `as`: text for one result, a list for several."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or len(listed) != results:
        raise ConfigurationError(f"{_NAMES}: should be {'a name' if results == 1 else f'a list of {results} names'}")
    for name in listed:
        if not isinstance(name, str) or not _is_name(name) or name in RESERVED_RESULTS:
            raise ConfigurationError(
                f"{_NAMES}: {name!r} cannot be the name of a result: {_NAME_RULE}, and none of "
                f"{sorted(RESERVED_RESULTS)}"
            )
    return listed


def _results(choice: AggregateChoice, values: Mapping[str, ValueType]) -> Iterator[ResultField]:
    first = choice.aggregates[0]
    value = ValueType()
    if choice.value is not None or first.needs_value:
        name = choice.value or VALUE
        if name not in values and choice.value is None:
            raise ConfigurationError(f"{first.name}: name a value, as in {{{first.name}: {next(iter(values))}}}")
        if name not in values:
            raise ConfigurationError(f"{first.name}: {unknown('value', name, values)}")
        value = values[name]
    if value.kind not in first.kinds:
        needed = " or ".join(first.kinds)
        raise ConfigurationError(f"{first.name}: the value {value.name} is a {value.kind}, but it needs a {needed}")
    for index, aggregate in enumerate(choice.aggregates):
        default = (
            aggregate.name if choice.value is None and not first.needs_value else aggregate.result_name(value.name)
        )
        yield ResultField(choice.names[index] if choice.names else default, aggregate, value)


def _load(entry_point: EntryPoint) -> Aggregate:
    aggregate = load("aggregate", entry_point)
    problem = _problem(entry_point.name, aggregate)
    if problem:
        raise ConfigurationError(f"aggregate {entry_point.name} of {entry_point.value}: {problem}")
    valid: Aggregate = aggregate
    return valid


def _is_name(text: str) -> bool:
    # Spark does not distinguish upper and lower case in names of columns.
    return text.isidentifier() and text == text.lower()


def _column_problem(columns: Sequence[object]) -> str | None:
    for column in columns or [None]:
        if not isinstance(column, PartialColumn):
            return f"its columns are {columns!r}: list at least one IntegerColumn, Int128Column or BinaryColumn"
        if column.name in _RESERVED_COLUMNS or not _is_name(column.name):
            return f"its partial column is {column.name!r}: {_NAME_RULE}, and none of {sorted(_RESERVED_COLUMNS)}"
    return None


def _problem(name: str, aggregate: object) -> str | None:
    """Return what is wrong with an aggregate of a package; None if nothing is."""
    if not isinstance(aggregate, Aggregate):
        return "is not an instance of skewless.algorithms.aggregates.Aggregate"
    if (own := getattr(aggregate, "name", None)) != name or not _is_name(name):
        return f"its name is {own!r}: {_NAME_RULE}, and equal the name of the entry point"
    if name in RESERVED_RESULTS:
        return "its name is reserved for a column of results: choose another one"
    if problem := _column_problem(getattr(aggregate, "columns", ())):
        return problem
    for decimals in (0, 1):
        try:
            json_type(aggregate.result_type(decimals))
        except KeyError:
            found = aggregate.result_type(decimals)
            return f"its results are {found}: use int64, double, decimal128, string, bool, or a list"
    return None
