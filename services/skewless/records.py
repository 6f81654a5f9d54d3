"""Records on the wire, and how they are written and read; what public topics carry stands in `public_records`.

Internal hops carry columns: one record is one Arrow IPC stream of many rows; its headers name the schema and say how
far event time has come (`watermarks`: mark by origin partition).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from skewless.algorithms.watermark import IDLE, OriginMarks
from skewless.errors import BadRecordError
from skewless.public_records import DeadLetterHeaders

SCHEMA_HEADER = "schema"
WATERMARKS_HEADER = "watermarks"
TUPLES = "skewless.tuples.v1"
TUPLE = "skewless.tuple.v1"
PARTIALS = "skewless.partials.v1"
PROGRESS = "skewless.progress.v1"

Headers = Sequence[tuple[str, bytes]]

TUPLES_SCHEMA = pa.schema(
    [("key", pa.dictionary(pa.int32(), pa.string())), ("value", pa.int64()), ("time", pa.int64())]
)
"""value: fixed-point number; time: event time in ms."""

_PARTIAL_TYPES = {"key": pa.string(), "worker": pa.int32()}
"""All others are int64: the start of the pane in ms, and the partial columns."""

RECORD_BYTES = 4 * 2**20
"""Columns are cut into records of at most about this size."""


class Batch(Protocol):
    """Records of one partition, in the order of their offsets, as one poll brought them."""

    partition: int

    @property
    def values(self) -> Sequence[bytes | None]:
        """Their values."""
        ...

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Their keys."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Their offsets, ascending, with gaps where transactions left their markers."""
        ...

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Their Kafka timestamps in ms."""
        ...

    @property
    def headers(self) -> Sequence[Headers]:
        """Their headers."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """One record to write. `topic` is a name of the topology; without a partition the key decides."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    """Event time in ms for facts; None for internal records, whose age is their wall-clock time."""
    headers: Headers = ()


@dataclass(slots=True)
class WrittenBatch:
    """What was written as it will be read: implements `Batch` without Kafka."""

    partition: int
    outputs: Sequence[Output]
    offsets: Sequence[int] = ()
    """Their offsets; by default from 0, without gaps."""

    def __post_init__(self) -> None:
        self.offsets = self.offsets or range(len(self.outputs))

    @property
    def values(self) -> Sequence[bytes | None]:
        """Their values."""
        return [output.value for output in self.outputs]

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Their keys."""
        return [output.key for output in self.outputs]

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Their timestamps in ms; 0 where none was given."""
        return np.array([output.timestamp or 0 for output in self.outputs], dtype=np.int64)

    @property
    def headers(self) -> Sequence[Headers]:
        """Their headers."""
        return [output.headers for output in self.outputs]


def encode_tuples(keys: pa.DictionaryArray, values: NDArray[np.int64], times: NDArray[np.int64]) -> bytes:
    """Write tuples as one Arrow IPC stream."""
    return write_table(pa.record_batch([keys, pa.array(values), pa.array(times)], schema=TUPLES_SCHEMA))


def write_table(table: pa.RecordBatch | pa.Table) -> bytes:
    """Write columns as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_table(value: bytes | None) -> pa.Table:
    """Read columns; BadRecordError when it is no Arrow IPC stream."""
    try:
        return pa.ipc.open_stream(value or b"").read_all()
    except (pa.ArrowException, TypeError, ValueError, OSError) as error:
        raise BadRecordError("not an Arrow IPC stream") from error


def read_tuples(value: bytes | None) -> list[pa.RecordBatch]:
    """Read tuples; BadRecordError when these are no tuples of this version."""
    table = read_table(value)
    if table.schema != TUPLES_SCHEMA or _has_nulls(table):
        raise BadRecordError(f"columns are not those of {TUPLES}")
    return table.to_batches()  # type: ignore[no-any-return]


def schema_of(headers: Headers) -> str:
    """Name the schema of a record; BadRecordError when it has none."""
    for name, value in headers:
        if name == SCHEMA_HEADER:
            return value.decode("ascii", "replace")
    raise BadRecordError("no schema header")


def read_partials(value: bytes | None, names: Iterable[str]) -> pa.Table:
    """Read these columns of partials; BadRecordError when one is missing, or is not what partials have."""
    wanted = pa.schema([(name, _PARTIAL_TYPES.get(name, pa.int64())) for name in dict.fromkeys(names)])
    try:
        table = read_table(value).select(wanted.names)
    except KeyError as error:
        raise BadRecordError(f"columns are not those of {PARTIALS}") from error
    if table.schema != wanted or _has_nulls(table):
        raise BadRecordError(f"columns are not those of {PARTIALS}")
    return table


def _has_nulls(table: pa.Table) -> bool:
    return any(column.null_count for column in table.columns)


Mark = Annotated[int, Meta(ge=-(2**53), le=IDLE)]

_marks_decoder = msgspec.json.Decoder(dict[int, Mark])


def watermarks_of(headers: Headers) -> dict[int, int]:
    """Read the marks by origin partition that a record carries; BadRecordError when they cannot be read."""
    for name, value in headers:
        if name == WATERMARKS_HEADER:
            try:
                return _marks_decoder.decode(value)
            except msgspec.DecodeError as error:
                raise BadRecordError("watermarks header cannot be read") from error
    return {}


def expect(headers: Headers, *schemas: str) -> str:
    """Name the schema of a record; BadRecordError when it is none of these."""
    schema = schema_of(headers)
    if schema not in schemas:
        raise BadRecordError(f"unknown schema {schema}")
    return schema


def tell(marks: OriginMarks, headers: Headers) -> None:
    """Take over the marks that a record carries; BadRecordError when one is of an unknown origin."""
    try:
        marks.tell(watermarks_of(headers))
    except ValueError as error:
        raise BadRecordError(str(error)) from error


def headers_of(schema: str, watermarks: Mapping[int, int]) -> Headers:
    """Headers of an internal record."""
    headers = [(SCHEMA_HEADER, schema.encode())]
    if watermarks:
        headers.append((WATERMARKS_HEADER, msgspec.json.encode(dict(watermarks))))
    return headers


def progress(topic: str, partitions: Iterable[int], watermarks: Mapping[int, int]) -> list[Output]:
    """Say how far event time has come to every one of these partitions, where there are no rows to say it with."""
    headers = headers_of(PROGRESS, watermarks)
    return [Output(topic, None, partition=partition, headers=headers) for partition in partitions]


def dead_letter(topic: str, batch: Batch, index: int, reason: str) -> Output:
    """Key and value of a record that cannot be read, with its coordinates and the reason (KIP-1034's fields)."""
    return Output(
        "dead-letters",
        batch.values[index],
        key=batch.keys[index],
        timestamp=fact_timestamp(int(batch.timestamps[index])),
        headers=dead_letter_headers(topic, batch, index, reason),
    )


def dead_letter_headers(topic: str, batch: Batch, index: int, reason: str) -> Headers:
    """Where a dead letter comes from, and what is wrong with it."""
    facts = DeadLetterHeaders(topic, str(batch.partition), str(batch.offsets[index]), reason)
    return [(name, fact.encode()) for name, fact in msgspec.to_builtins(facts).items()]


def fact_timestamp(time: int) -> int | None:
    """Timestamp of a fact's record: Kafka has none before 1970, so for those it is the time of writing."""
    return time if time >= 0 else None
