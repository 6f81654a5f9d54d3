"""Results of windows: JSON in `aggregates`."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from skewless.algorithms.aggregates import Aggregate
from skewless.wire.tuples import Int64


class AggregateRecord(msgspec.Struct):
    """Results of one key in one window, with one field for each aggregate of `aggregator.aggregates`."""

    key: Annotated[str, Meta(description="The key.")]
    window_start: Annotated[Int64, Meta(description="Start of the window (inclusive), ms since the epoch (UTC).")]
    window_end: Annotated[Int64, Meta(description="End of the window (exclusive), ms since the epoch (UTC).")]


Revision = Annotated[
    int,
    Meta(
        description="Number of previous records of this key and window. The record with the highest revision is valid.",
        ge=0,
    ),
]

JSON_TYPES = {pa.int64(): int, pa.float64(): float, pa.string(): str, pa.bool_(): bool}
"""Python type of each type of a result. A list of one of these is a result, too."""


def aggregate_type(aggregates: Iterable[Aggregate]) -> type[msgspec.Struct]:
    """Return the type of records in topic `aggregates`, with a field per aggregate in the order of the settings."""
    fields: list[tuple[str, Any]] = [(aggregate.name, _field_type(aggregate)) for aggregate in aggregates]
    record_type = msgspec.defstruct("Aggregate", [*fields, ("revision", Revision)], bases=(AggregateRecord,), gc=False)
    record_type.__doc__ = AggregateRecord.__doc__
    return record_type


def _field_type(aggregate: Aggregate) -> Any:
    # The type may depend on whether the values have decimals. The schema of the records has all types.
    field_types = dict.fromkeys(json_type(aggregate.result_type(decimals)) for decimals in (0, 1))
    description = (type(aggregate).__doc__ or "").strip()
    return Annotated[functools.reduce(operator.or_, field_types), Meta(description=description)]


def json_type(result_type: pa.DataType) -> Any:
    """Return the Python type of the results of an aggregate. Raises KeyError for a type that no result may have."""
    if pa.types.is_decimal(result_type):
        return float if result_type.scale else int
    if pa.types.is_list(result_type):
        return types.GenericAlias(list, (JSON_TYPES[result_type.value_type],))
    return JSON_TYPES[result_type]
