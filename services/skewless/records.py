"""Records on the wire: their types, schemas and versions. Kafka topics are the API, so this is the API.

Public topics carry one JSON object per record. Internal hops carry columns: one record is one Arrow IPC stream of many
rows; its headers name the schema and say how far event time has come (`watermarks`: mark by origin partition).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from skewless.algorithms.aggregates import AGGREGATES
from skewless.algorithms.aggregates.base import COUNT
from skewless.algorithms.watermark import IDLE, OriginMarks
from skewless.errors import BadRecordError

SCHEMA_HEADER = "schema"
WATERMARKS_HEADER = "watermarks"
TUPLES = "skewless.tuples.v1"
TUPLE = "skewless.tuple.v1"
PARTIALS = "skewless.partials.v1"
PROGRESS = "skewless.progress.v1"

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

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


class LateTuple(msgspec.Struct):
    """A tuple older than its source partition's mark: it is in no window."""

    key: Annotated[str, Meta(description="The tuple's key.")]
    value: Annotated[int | float, Meta(description="Its value, in the unit of the source.")]
    time: Annotated[Int64, Meta(description="Its event time, ms since the epoch (UTC).")]
    mark: Annotated[
        Int64,
        Meta(description="The largest event time of the partition before it minus the allowed lateness; above `time`."),
    ]
    partition: Annotated[int, Meta(description="Partition of the source in which its record stands.", ge=0)]
    offset: Annotated[int, Meta(description="Offset of that record.", ge=0)]


class PlainTuple(msgspec.Struct):
    """One tuple, with `worker_input.encoding: record`; the key is the record's key."""

    value: Annotated[Int64, Meta(description="The number times 10 to the power of `splitter.value.decimals`.")]
    time: Annotated[Int64, Meta(description="Event time, ms since the epoch (UTC).")]


class KeyInWindow(msgspec.Struct):
    """The results of one key in one window; of the aggregates it has those that `aggregator.aggregates` names."""

    key: Annotated[str, Meta(description="The key.")]
    window_start: Annotated[
        Int64, Meta(description="Start of the window, ms since the epoch (UTC); it belongs to the window.")
    ]
    window_end: Annotated[Int64, Meta(description="End of the window, ms since the epoch; it belongs to the next one.")]


Revision = Annotated[
    int,
    Meta(
        description="How often this key of this window was written before; the record with the highest is the valid "
        "one.",
        ge=0,
    ),
]


def aggregate_type(names: Iterable[str]) -> type[msgspec.Struct]:
    """Make the type of the records in topic `aggregates`: a field per aggregate, in the order of the settings."""
    fields: list[tuple[str, Any]] = [(name, _result_of(name)) for name in names]
    kind = msgspec.defstruct("Aggregate", [*fields, ("revision", Revision)], bases=(KeyInWindow,), gc=False)
    kind.__doc__ = KeyInWindow.__doc__
    return kind


def _result_of(name: str) -> Any:
    meaning = (type(AGGREGATES[name]).__doc__ or "").strip()
    if name == COUNT.name:
        return Annotated[int, Meta(description=meaning, ge=1)]
    return Annotated[int | float, Meta(description=meaning)]


Tuples = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0)]

_TUPLES_BY_WORKER = "Tuples by worker: the first is worker 0's, there are as many as `workers`."
_STD_DEV = "Population standard deviation over workers of their share in percent."
_IMBALANCE = "(fullest worker - average) / tuples."
_MAX_OVER_AVG = "Tuples of the fullest worker by the average: 1 is even."


class HottestKey(msgspec.Struct):
    """One of the hottest keys of a tick."""

    key: Annotated[str, Meta(description="The key.")]
    tuples: Annotated[Tuples, Meta(description="Its tuples in the tick.")]
    workers: Annotated[int, Meta(description="How many workers held it.", ge=1)]


class RunDistribution(msgspec.Struct):
    """The load since the pipeline's first tuple; names as in the tick, shares over the whole run."""

    total_count: Annotated[Tuples, Meta(description="Tuples since the first one.")]
    duration: Annotated[int, Meta(description="Wall-clock ms since the first tuple.", ge=0)]
    throughput_ratio: Annotated[float, Meta(description="Tuples per second since the first one.", ge=0)]
    tuples_by_worker: Annotated[list[Tuples], Meta(description=_TUPLES_BY_WORKER)]
    std_dev: Annotated[Share, Meta(description=_STD_DEV)]
    imbalance: Annotated[Share, Meta(description=_IMBALANCE)]
    max_over_avg: Annotated[Share, Meta(description=_MAX_OVER_AVG)]
    dist_cost: Annotated[Share, Meta(description="Estimated by sketches, within 2 %; exact for few keys.")]


class TickDistribution(msgspec.Struct):
    """How even the load of the workers was in one tick."""

    tick_start: Annotated[Int64, Meta(description="Start of the tick, event time in ms since the epoch (UTC).")]
    tick_end: Annotated[Int64, Meta(description="End of the tick; it belongs to the next one.")]
    grouping: Annotated[str, Meta(description="The grouping that chose the workers.")]
    workers: Annotated[
        int, Meta(description="W when the tick was told, or as many as had tuples in it, whichever is more.", ge=1)
    ]
    tuples: Annotated[Tuples, Meta(description="Tuples with an event time in the tick.")]
    tuples_by_worker: Annotated[list[Tuples], Meta(description=_TUPLES_BY_WORKER)]
    keys: Annotated[int, Meta(description="Distinct keys.", ge=0)]
    std_dev: Annotated[Share, Meta(description=_STD_DEV)]
    imbalance: Annotated[Share, Meta(description=_IMBALANCE)]
    max_over_avg: Annotated[Share, Meta(description=_MAX_OVER_AVG)]
    dist_cost: Annotated[Share, Meta(description="Mean number of distinct workers that held a key (replication).")]
    hottest_keys: Annotated[list[HottestKey], Meta(description="The hottest keys, `observer.hottest` of them.")]
    run: Annotated[RunDistribution, Meta(description="The same since the pipeline's first tuple.")]


Digits = Annotated[str, Meta(pattern="^[0-9]+$")]


class DeadLetterHeaders(msgspec.Struct, rename=lambda name: f"__skewless.errors.{name}"):
    """Where a dead letter comes from, and what is wrong with it: headers, text in UTF-8 (KIP-1034's fields)."""

    topic: Annotated[str, Meta(description="Topic in which the record stands.")]
    partition: Annotated[Digits, Meta(description="Its partition.")]
    offset: Annotated[Digits, Meta(description="Its offset.")]
    reason: Annotated[str, Meta(description="What is wrong with it.", min_length=1)]


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
