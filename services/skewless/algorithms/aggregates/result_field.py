"""A field of the results: an aggregate of a named value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from skewless.algorithms.aggregates.base import COUNT, Aggregate, Results, as_python, as_result_array, item_type
from skewless.algorithms.aggregates.fixed_point_results import FixedPointResults
from skewless.algorithms.aggregates.partial_column import PartialColumn, Partials
from skewless.algorithms.value_type import VALUE, ValueType
from skewless.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ResultField:
    """One aggregate of one value, under the name that it has in the results."""

    name: str
    aggregate: Aggregate
    value: ValueType

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        """Partial columns of the aggregate for this value. An optional value has a count of its own."""
        columns = tuple(_column_of(column, self.value) for column in self.aggregate.columns)
        count = _column_of(COUNT, self.value)
        return columns if not self.value.optional or count in columns else (*columns, count)

    @property
    def result_type(self) -> pa.DataType:
        """Arrow type of a result."""
        return self.aggregate.result_type(self.value.decimals)

    @property
    def can_be_null(self) -> bool:
        """Whether a group may have no result."""
        return self.aggregate.can_be_null or (self.value.optional and self.aggregate.empty is None)

    @property
    def is_exact(self) -> bool:
        """Whether results are numbers that a double may not be able to represent."""
        return bool(pa.types.is_decimal(item_type(self.result_type)))

    def to_python(self, partials: Partials, *, as_text: bool = False) -> list[Any]:
        """Return one result per group. With `as_text`, exact numbers are text."""
        rows, results = self._present(partials)
        if as_text and isinstance(results, FixedPointResults) and self.is_exact:
            listed: list[Any] = results.to_texts()
        else:
            listed = as_python(results)
        if rows is None:
            return listed
        complete = [self.aggregate.empty] * len(partials[_column_of(COUNT, self.value).name])
        for row, result in zip(rows.tolist(), listed, strict=True):
            complete[row] = result
        return complete

    def to_arrow(self, partials: Partials) -> pa.Array:
        """Return one result per group."""
        rows, results = self._present(partials)
        array = as_result_array(results, self.result_type)
        if rows is None:
            return array
        index = np.full(len(partials[_column_of(COUNT, self.value).name]), -1)
        index[rows] = np.arange(len(rows))
        complete = array.take(pa.array(index, mask=index < 0))
        return complete if self.aggregate.empty is None else complete.fill_null(self.aggregate.empty)

    def _present(self, partials: Partials) -> tuple[np.ndarray[Any, np.dtype[np.int64]] | None, Results]:
        """Return the groups that have a value, None for all of them, and their results."""
        own = {column.name: partials[_column_of(column, self.value).name] for column in self.aggregate.columns}
        rows = None
        if self.value.optional:
            rows = np.flatnonzero(partials[_column_of(COUNT, self.value).name])
            own = {name: rows_of[rows] for name, rows_of in own.items()}
        results = self.aggregate.present(own, self.value.decimals)
        if self.aggregate.can_be_null and pa.types.is_float64(item_type(self.result_type)):
            results = _without_infinite(as_python(results), lists=pa.types.is_list(self.result_type))
        return rows, results


def _without_infinite(results: list[Any], *, lists: bool) -> list[Any]:
    """Return floats or lists of floats, with None in place of NaN, of an infinite number, and of a list with either."""
    if not lists:
        return [None if each is None or not math.isfinite(each) else each for each in results]
    return [None if each is None or not all(map(_is_finite_or_null, each)) else each for each in results]


def _is_finite_or_null(item: float | None) -> bool:
    return item is None or math.isfinite(item)


def _column_of(column: PartialColumn, value: ValueType) -> PartialColumn:
    """Return a column of an aggregate as the column for a value. All values share a count of tuples."""
    if column.value is None and not value.optional:
        return column
    has_plain_name = value.name == VALUE and column.value is not None
    name = column.name if has_plain_name else f"{column.name}_{value.name}"
    return replace(column, name=name, value=value.name, optional=value.optional)


def default_fields(aggregates: Iterable[Aggregate]) -> tuple[ResultField, ...]:
    """Return the results of these aggregates for the value named `value`."""
    return tuple(ResultField(aggregate.result_name(VALUE), aggregate, ValueType()) for aggregate in aggregates)


def parts_of(results: Sequence[ResultField]) -> dict[str, tuple[ResultField, ...]]:
    """Return for each result, by its name, the fields from which a database computes it (see `Aggregate.parts`).

    A part that is a result itself has its name, others have the name of their partial column. Raises
    ConfigurationError for results that a database cannot compute, and if another result has the name of a part.
    """
    problems = [
        f"{result.name}: a database cannot merge partial results of {result.aggregate.name}"
        for result in results
        if not result.aggregate.parts
    ]
    stored = {result.columns[0].name: result for result in reversed(results) if len(result.aggregate.parts) == 1}
    names = {result.name for result in results}
    parts: dict[str, tuple[ResultField, ...]] = {}
    for result in results:
        if len(result.aggregate.parts) == 1:
            parts[result.name] = (result,)
            continue
        fields = [replace(result, aggregate=aggregate) for aggregate in result.aggregate.parts]
        columns = [field.columns[0].name for field in fields]
        problems += [
            f"{column}: is the name of a column from which a database computes {result.name}: give the result another "
            "name with `as`"
            for column in columns
            if column in names and column not in stored
        ]
        for column, field in zip(columns, fields, strict=True):
            stored.setdefault(column, replace(field, name=column))
        parts[result.name] = tuple(stored[column] for column in columns)
    if problems:
        raise ConfigurationError(*problems)
    return parts
