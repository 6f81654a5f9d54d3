"""Tuples: columns in topics `tuples` and `worker-input`, JSON in topic `late`.

With `worker_input.encoding: record`, topic `worker-input` contains JSON too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from skewless.algorithms.record_size import split_by_size
from skewless.algorithms.value_type import VALUE, ValueType
from skewless.errors import BadRecordError
from skewless.wire.columns import WriteColumns, in_order, read_table, write_packed
from skewless.wire.headers import public_headers, schema_header
from skewless.wire.record import OutputRecord, OwnHeaders

TUPLES, TUPLES_V2 = "skewless.tuples.v1", "skewless.tuples.v2"
"""Schemas of columns of tuples. Version 1 has the only value `value`; version 2 has a column for each named value."""
TUPLE, TUPLE_V2 = "skewless.tuple.v1", "skewless.tuple.v2"
"""Schemas of single tuples (`worker_input.encoding: record`), as above."""
LATE = "skewless.late.v1"
LATE_HEADERS = public_headers(LATE)
RESERVED_VALUES = frozenset({"key", "time", "watermark", "partition", "offset", "pane", "worker"})
"""Columns and fields of records that contain values. No value may be named after one."""
_KEY = pa.field("key", pa.dictionary(pa.int32(), pa.string()))
_TIME = pa.field("time", pa.int64())

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


KEY_DESCRIPTION = (
    "The key. With `splitter.key.fields` it is the JSON array of its parts, and the record has a field for each part, "
    "too: text with the part's name."
)


class LateTuple(msgspec.Struct):
    """A tuple that is late by `event_time.late_rule`. It is not counted in any window."""

    key: Annotated[str, Meta(description=KEY_DESCRIPTION)]
    value: Annotated[
        int | float,
        Meta(
            description="Value of the tuple, in the unit of the source. With `splitter.values`, the record has a field "
            "for each value instead."
        ),
    ]
    time: Annotated[Int64, Meta(description="Event time of the tuple, ms since the epoch (UTC).")]
    watermark: Annotated[
        Int64,
        Meta(
            description="Watermark of the source partition before the record: the largest event time of the previous "
            "records minus the allowed lateness. Greater than `time`."
        ),
    ]
    partition: Annotated[int, Meta(description="Source partition of its record.", ge=0)]
    offset: Annotated[int, Meta(description="Offset of its record.", ge=0)]


class LateHeaders(msgspec.Struct, omit_defaults=True):
    """Headers of a late tuple in addition to schema and content type."""

    topic: Annotated[
        str | None,
        Meta(description="Source topic. Records of version 0.2.0 do not have it."),
    ] = None


class TupleRecord(msgspec.Struct):
    """One tuple, with `worker_input.encoding: record`. Its key is the record key."""

    value: Annotated[Int64, Meta(description="Value times 10 to the power of `splitter.value.decimals`.")]
    time: Annotated[Int64, Meta(description="Event time, ms since the epoch (UTC).")]


class ValuesRecord(msgspec.Struct):
    """One tuple with a field for each value of `splitter.values`, with `worker_input.encoding: record`.

    Its key is the record key.
    """

    time: Annotated[Int64, Meta(description="Event time, ms since the epoch (UTC). The fields before it are values.")]


class TupleFormat:
    """Format of tuples with certain values: key, values, and event time in ms.

    Version 1 is the format of version 0.2.0. It is used wherever it is sufficient, so that stages of both versions read
    each other's records.
    """

    def __init__(
        self,
        values: Sequence[ValueType],
        key_parts: Sequence[str] = (),
        write: WriteColumns = write_packed,
        unused: Collection[str] = (),
    ) -> None:
        self._write = write
        self.values = tuple(values)
        self.key_parts = tuple(key_parts)
        is_number = [(value.name, value.kind) for value in values] == [(VALUE, "number")]
        is_version_1 = is_number and not values[0].optional
        self.schema = pa.schema([_KEY, *((value.name, value.arrow_type) for value in values), _TIME])
        """Arrow schema of the columns. A number is an integer: multiplied by 10 to the power of its decimals."""
        self.columns_name, self.record_name = (TUPLES, TUPLE) if is_version_1 else (TUPLES_V2, TUPLE_V2)
        """Names of the schemas in headers."""
        # Whether a value that no aggregate uses may be absent can change at any time, and records of both are read.
        self.columns_names = (TUPLES, TUPLES_V2) if is_number else (TUPLES_V2,)
        self.record_names = (TUPLE, TUPLE_V2) if is_number else (TUPLE_V2,)
        """Names of the schemas that are read."""
        self.record_type: type[msgspec.Struct] = TupleRecord if is_version_1 else _record_type(self.values)
        """Type of single tuples as JSON."""
        readable = [replace(value, optional=value.optional or value.name in unused) for value in values]
        self.read_type = _record_type(tuple(readable))
        """Type of single tuples that are read: values that no aggregate uses, `unused`, may be null."""
        late_type = LateTuple if is_version_1 else _late_type(self.values)
        self.late_type: type[msgspec.Struct] = _with_parts(late_type, key_parts) if key_parts else late_type
        """Type of records in topic `late`. Its last fields are the parts of a composite key, `key_parts`."""
        self._required = ["key", *(value.name for value in readable if not value.optional), "time"]

    def batch(
        self, keys: pa.DictionaryArray, values: Mapping[str, pa.Array], times: NDArray[np.int64]
    ) -> pa.RecordBatch:
        """Return columns of tuples as one record batch."""
        columns = [keys, *(values[value.name] for value in self.values), pa.array(times)]
        return pa.record_batch(columns, schema=self.schema)

    def from_rows(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return tuples, each of which is given as key, values and time."""
        columns = zip(*rows, strict=True)
        return pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)],
            schema=self.schema,
        )

    def records(
        self, topic: str, partition: int, tuples: pa.RecordBatch, headers: OwnHeaders
    ) -> Iterator[OutputRecord]:
        """Yield tuples as records of bounded size. `headers` are the headers of the last one: schema and watermarks."""
        # The watermarks hold after all tuples of the batch, so only the last record contains them.
        *first_parts, last_part = split_by_size(tuples)
        for part in first_parts:
            own_headers = [schema_header(self.columns_name)]
            yield OutputRecord(topic, self._write(part), partition=partition, headers=own_headers)
        yield OutputRecord(topic, self._write(last_part), partition=partition, headers=headers)

    def read(self, value: bytes | None) -> list[pa.RecordBatch]:
        """Return the tuples of a record. Raises BadRecordError if the columns are not those of this format."""
        table = in_order(read_table(value), self.schema.names)
        batches: list[pa.RecordBatch] = table.to_batches()
        if table.schema != self.schema or any(self._has_missing_entries(batch) for batch in batches):
            raise BadRecordError(f"columns are not those of {self.columns_name}")
        return batches

    def _has_missing_entries(self, tuples: pa.RecordBatch) -> bool:
        dictionaries = [column.dictionary for column in tuples.columns if pa.types.is_dictionary(column.type)]
        return any(array.null_count for array in (*(tuples[name] for name in self._required), *dictionaries))


def parts_of(key: str) -> list[str]:
    """Return the parts of a composite key."""
    return _decode_parts(key)


_decode_parts = msgspec.json.Decoder(list[str]).decode


def keys_and_times(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the columns `key` and `time` of tuples with any values.

    Raises BadRecordError if the columns are not those of tuples.
    """
    batches: list[pa.RecordBatch] = table.to_batches()
    for batch in batches:
        if batch.schema.field(0) != _KEY or batch.schema.field(batch.num_columns - 1) != _TIME:
            raise BadRecordError("columns are not those of tuples")
    selected = [batch.select(["key", "time"]) for batch in batches]
    columns = [array for batch in selected for array in (batch["key"], batch["key"].dictionary, batch["time"])]
    if any(array.null_count for array in columns):
        raise BadRecordError("columns are not those of tuples")
    return selected


@cache
def _record_type(values: tuple[ValueType, ...]) -> type[msgspec.Struct]:
    number = Annotated[Int64, Meta(description="Value times 10 to the power of its `decimals`.")]
    fields = [(value.name, _with_null(number if value.kind == "number" else str, value)) for value in values]
    return _derived(ValuesRecord, fields, ("time",))


@cache
def _late_type(values: tuple[ValueType, ...]) -> type[msgspec.Struct]:
    number = Annotated[int | float, Meta(description="Value of the tuple, in the unit of the source.")]
    fields = [(value.name, _with_null(number if value.kind == "number" else str, value)) for value in values]
    return _derived(LateTuple, fields, ("time", "watermark", "partition", "offset"))


def _with_parts(base: type[msgspec.Struct], key_parts: Iterable[str]) -> type[msgspec.Struct]:
    """Return a type with the fields of another one, and then a text for each part of a composite key."""
    derived = msgspec.defstruct(base.__name__, [(part, str) for part in key_parts], bases=(base,))
    derived.__doc__ = base.__doc__
    return derived


def _with_null(value_type: Any, value: ValueType) -> Any:
    return value_type | None if value.optional else value_type


def _derived(
    base: type[msgspec.Struct], values: Sequence[tuple[str, Any]], last: Sequence[str]
) -> type[msgspec.Struct]:
    """Return a type like `base` with these values instead of `value`, followed by the fields `last`."""
    hints = get_type_hints(base, include_extras=True)
    first = [("key", hints["key"])] if "key" in hints else []
    derived = msgspec.defstruct(base.__name__, [*first, *values, *((field, hints[field]) for field in last)])
    derived.__doc__ = base.__doc__
    return derived
