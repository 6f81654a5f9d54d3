"""Results of windows: JSON in `aggregates`, unless they have a schema in a registry."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from skewless.algorithms.aggregates import ResultField
from skewless.wire.headers import public_headers
from skewless.wire.tuples import KEY_DESCRIPTION, Int64, parts_of

AGGREGATE = "skewless.aggregate.v1"
AGGREGATE_HEADERS = public_headers(AGGREGATE)
TOP = "skewless.top.v1"
TOP_HEADERS = public_headers(TOP)


class AggregateRecord(msgspec.Struct):
    """Results of one key in one window, with one field for each result of `aggregator.aggregates`."""

    key: Annotated[str, Meta(description=KEY_DESCRIPTION)]
    window_start: Annotated[Int64, Meta(description="Start of the window (inclusive), ms since the epoch (UTC).")]
    window_end: Annotated[Int64, Meta(description="End of the window (exclusive), ms since the epoch (UTC).")]


class TopRecord(AggregateRecord):
    """Results of the key with one rank in one window, with one field for each result of `aggregator.aggregates`."""

    rank: Annotated[int, Meta(description="1 for the key with the largest result `aggregator.top.by`.", ge=1)]


Revision = Annotated[
    int,
    Meta(
        description="Number of previous records of this key and window. The record with the highest revision is valid.",
        ge=0,
    ),
]
TopRevision = Annotated[
    int,
    Meta(
        description="Number of previous changes of the ranks of this window. The record of a rank with the highest "
        "revision is valid. A rank that no key has any more is deleted by a record without a value.",
        ge=0,
    ),
]

Numbers = Literal["number", "text"]
"""How sums and numbers with decimals are written: as JSON numbers or as text."""
Encode = Callable[[Any], bytes]
"""Returns the value of a record."""
ToJson = Callable[[bytes], bytes]
"""Returns the JSON of a value. Raises BadRecordError if it is not a result."""
encode_json: Encode = msgspec.json.Encoder(decimal_format="number").encode
JSON_TYPES = {pa.int64(): int, pa.float64(): float, pa.string(): str, pa.bool_(): bool}
"""Python type of each type of a result. A list of one of these is a result, too."""


def unchanged(value: bytes) -> bytes:
    """Return the JSON of a value that is JSON."""
    return value


def aggregate_type(
    results: Iterable[ResultField], numbers: Numbers = "number", key_parts: Iterable[str] = ()
) -> type[msgspec.Struct]:
    """Return the type of records in topic `aggregates`, with a field per result in the order of the settings.

    The parts of a composite key are before them.
    """
    fields = [*_fields(results, numbers, key_parts), ("revision", Revision)]
    return _record_type("Aggregate", fields, AggregateRecord)


def aggregate_constructor(
    results: Iterable[ResultField], numbers: Numbers = "number", key_parts: Sequence[str] = ()
) -> Callable[..., msgspec.Struct]:
    """Return a function of key, start and end of a window, results and revision. It returns the `aggregate_type`."""
    record_type = aggregate_type(results, numbers, key_parts)
    if not key_parts:
        return record_type
    return lambda key, start, end, *values: record_type(key, start, end, *parts_of(key), *values)


def top_type(
    results: Iterable[ResultField], numbers: Numbers = "number", key_parts: Iterable[str] = ()
) -> type[msgspec.Struct]:
    """Return the type of records in topic `top`, with the rank and otherwise the fields of `aggregate_type`."""
    fields = [*_fields(results, numbers, key_parts), ("revision", TopRevision)]
    return _record_type("Top", fields, TopRecord)


def _fields(results: Iterable[ResultField], numbers: Numbers, key_parts: Iterable[str]) -> list[tuple[str, Any]]:
    parts: list[tuple[str, Any]] = [(part, str) for part in key_parts]
    return parts + [(result.name, _field_type(result, numbers)) for result in results]


def _record_type(name: str, fields: list[tuple[str, Any]], base: type[msgspec.Struct]) -> type[msgspec.Struct]:
    record_type = msgspec.defstruct(name, fields, bases=(base,), gc=False)
    record_type.__doc__ = base.__doc__
    return record_type


def _field_type(result: ResultField, numbers: Numbers) -> Any:
    field_type = json_type(result.result_type, as_text=numbers == "text")
    if result.can_be_null:
        field_type |= None
    description = " ".join((type(result.aggregate).__doc__ or "").split())
    return Annotated[field_type, Meta(description=description)]


def json_type(result_type: pa.DataType, *, as_text: bool = False) -> Any:
    """Return the Python type of the results of an aggregate. Raises KeyError for a type that no result may have.

    `as_text`: whether decimals are written as text.
    """
    if pa.types.is_list(result_type):
        return types.GenericAlias(list, (json_type(result_type.value_type, as_text=as_text),))
    if pa.types.is_decimal(result_type):
        return str if as_text else float if result_type.scale else int
    return JSON_TYPES[result_type]
