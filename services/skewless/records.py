"""Records on the wire, and how they are written and read; what public topics carry stands in `public_records`.

Internal hops carry columns: one record is one Arrow IPC stream of many rows. Its headers name the schema and report
how far event time has advanced: `watermarks` by origin partition, and the origins that are `idle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from skewless.algorithms.sized import cut
from skewless.algorithms.watermark import END_OF_TIME, OriginMarks, WatermarkState
from skewless.errors import BadRecordError
from skewless.public_records import DeadLetterHeaders

SCHEMA_HEADER = "schema"
WATERMARKS_HEADER = "watermarks"
IDLE_HEADER = "idle"
TUPLES = "skewless.tuples.v1"
TUPLE = "skewless.tuple.v1"
PARTIALS = "skewless.partials.v1"
PROGRESS = "skewless.progress.v1"

Headers = Sequence[tuple[str, bytes | None]]
"""As they are read: anybody may write one without a value."""
OwnHeaders = Sequence[tuple[str, bytes]]
"""As they are written."""

TUPLES_SCHEMA = pa.schema(
    [("key", pa.dictionary(pa.int32(), pa.string())), ("value", pa.int64()), ("time", pa.int64())]
)
"""value: fixed-point number; time: event time in ms."""

_PARTIAL_TYPES = {"key": pa.string(), "worker": pa.int32()}
"""All others are int64: the start of the pane in ms, and the partial columns."""

LETTER_BYTES = 900_000
"""So much of a bad record's value is in its dead letter, at most: a topic with Kafka's default limit takes it."""
LETTER_KEY_BYTES = 65_536
"""The same of its key."""


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


class Output(msgspec.Struct, frozen=True, gc=False):
    """One record to write. `topic` is a name of the topology; without a partition the key decides."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    """Event time in ms for facts; None for internal records, whose age is their wall-clock time."""
    headers: OwnHeaders = ()


def tuples_of(keys: pa.DictionaryArray, values: NDArray[np.int64], times: NDArray[np.int64]) -> pa.RecordBatch:
    """Make columns of tuples."""
    return pa.record_batch([keys, pa.array(values), pa.array(times)], schema=TUPLES_SCHEMA)


def tuple_records(topic: str, partition: int, tuples: pa.RecordBatch, watermarks: OwnHeaders) -> Iterator[Output]:
    """Write tuples as records of bounded size; the last one has the headers `watermarks`, which name the schema too.

    Marks are true behind all of the tuples: the records before the last one say nothing of time.
    """
    *before, last = cut(tuples)
    for part in before:
        yield Output(topic, write_table(part), partition=partition, headers=headers_of(TUPLES, {}))
    yield Output(topic, write_table(last), partition=partition, headers=watermarks)


def write_table(table: pa.RecordBatch | pa.Table) -> bytes:
    """Write columns as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_table(value: bytes | None) -> pa.Table:
    """Read columns; BadRecordError when it is no Arrow IPC stream, or one whose parts do not fit each other."""
    try:
        table = pa.ipc.open_stream(value or b"").read_all()
        # Arrow trusts what it reads: an index beyond its dictionary would be looked up, which kills the process.
        for batch in table.to_batches():
            batch.validate(full=True)
    except (pa.ArrowException, TypeError, ValueError, OSError) as error:
        raise BadRecordError("not an Arrow IPC stream") from error
    return table


def read_tuples(value: bytes | None) -> list[pa.RecordBatch]:
    """Read tuples; BadRecordError when these are no tuples of this version."""
    table = read_table(value)
    batches: list[pa.RecordBatch] = table.to_batches()
    if table.schema != TUPLES_SCHEMA or any(map(_lacks_something, batches)):
        raise BadRecordError(f"columns are not those of {TUPLES}")
    return batches


def _lacks_something(tuples: pa.RecordBatch) -> bool:
    keys, values, times = tuples.columns
    return bool(keys.null_count or keys.dictionary.null_count or values.null_count or times.null_count)


def schema_of(headers: Headers) -> str:
    """Name the schema of a record; BadRecordError when it has none."""
    for name, value in headers:
        if name == SCHEMA_HEADER and value is not None:
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


Mark = Annotated[int, Meta(ge=-(2**53), le=END_OF_TIME)]

_marks_decoder = msgspec.json.Decoder(dict[int, Mark])
_idle_decoder = msgspec.json.Decoder(frozenset[Annotated[int, Meta(ge=0)]])


def watermarks_of(headers: Headers) -> dict[int, int]:
    """Read the marks by origin partition that a record carries; BadRecordError when they cannot be read."""
    for name, value in headers:
        if name == WATERMARKS_HEADER:
            try:
                return _marks_decoder.decode(value or b"")
            except msgspec.DecodeError as error:
                raise BadRecordError("watermarks header cannot be read") from error
    return {}


def idle_of(headers: Headers) -> frozenset[int]:
    """Read the origin partitions that a record declares idle; BadRecordError when they cannot be read."""
    for name, value in headers:
        if name == IDLE_HEADER:
            try:
                return _idle_decoder.decode(value or b"")
            except msgspec.DecodeError as error:
                raise BadRecordError("idle header cannot be read") from error
    return frozenset()


def state_after(headers: Headers, partition: int, before: WatermarkState) -> WatermarkState:
    """Return the state of one origin partition after a record, which was `before`."""
    marks, idle = watermarks_of(headers), idle_of(headers)
    if partition in marks:
        return WatermarkState(marks[partition], partition in idle)
    return before._replace(idle=before.idle or partition in idle)


def expect(headers: Headers, *schemas: str) -> str:
    """Name the schema of a record; BadRecordError when it is none of these."""
    schema = schema_of(headers)
    if schema not in schemas:
        raise BadRecordError(f"unknown schema {schema}")
    return schema


def tell(marks: OriginMarks, headers: Headers) -> None:
    """Update watermarks and idle flags from a record; BadRecordError when one is of an unknown origin."""
    try:
        marks.tell(watermarks_of(headers), idle_of(headers))
    except ValueError as error:
        raise BadRecordError(str(error)) from error


def headers_of(schema: str, watermarks: Mapping[int, int], idle: Iterable[int] = ()) -> OwnHeaders:
    """Headers of an internal record; the origins in `idle` are idle at their watermark, if they have one."""
    headers = [(SCHEMA_HEADER, schema.encode())]
    if watermarks:
        headers.append((WATERMARKS_HEADER, msgspec.json.encode(dict(watermarks))))
    if silent := sorted(idle):
        headers.append((IDLE_HEADER, msgspec.json.encode(silent)))
    return headers


def headers_with(schema: str, states: Mapping[int, WatermarkState]) -> OwnHeaders:
    """Headers of an internal record that reports these origin partitions."""
    marks = {origin: state.watermark for origin, state in states.items() if state.watermark is not None}
    return headers_of(schema, marks, [origin for origin, state in states.items() if state.idle])


def progress(topic: str, partitions: Iterable[int], states: Mapping[int, WatermarkState]) -> list[Output]:
    """Report origin partitions to each of these partitions, when no rows carry the report."""
    headers = headers_with(PROGRESS, states)
    return [Output(topic, None, partition=partition, headers=headers) for partition in partitions]


def dead_letter(topic: str, batch: Batch, index: int, reason: str) -> Output:
    """Key and value of a record that cannot be read, with its coordinates and the reason (KIP-1034's fields).

    Of a large one only the beginning, and how large it is: the record itself stands at its coordinates.
    """
    value, key = batch.values[index], batch.keys[index]
    facts = _letter_facts(topic, batch, index, reason)
    if value is not None and len(value) > LETTER_BYTES:
        value, facts.value_bytes = value[:LETTER_BYTES], str(len(value))
    if key is not None and len(key) > LETTER_KEY_BYTES:
        key, facts.key_bytes = key[:LETTER_KEY_BYTES], str(len(key))
    timestamp = fact_timestamp(int(batch.timestamps[index]))
    return Output("dead-letters", value, key, timestamp=timestamp, headers=_letter_headers(facts))


def dead_letter_rows(topic: str, batch: Batch, index: int, refused: pa.Table, reason: str) -> Iterator[Output]:
    """Columns of a record that are refused though it can be read, as dead letters of bounded size."""
    headers = _letter_headers(_letter_facts(topic, batch, index, reason))
    for part in cut(refused, LETTER_BYTES):
        yield Output("dead-letters", write_table(part), headers=headers)


def _letter_facts(topic: str, batch: Batch, index: int, reason: str) -> DeadLetterHeaders:
    return DeadLetterHeaders(topic, str(batch.partition), str(batch.offsets[index]), reason)


def _letter_headers(facts: DeadLetterHeaders) -> OwnHeaders:
    return [(name, fact.encode()) for name, fact in msgspec.to_builtins(facts).items()]


def fact_timestamp(time: int) -> int | None:
    """Timestamp of a fact's record: Kafka has none before 1970, so for those it is the time of writing."""
    return time if time >= 0 else None
