"""Tuples: columns in topics `tuples` and `worker-input`, JSON in topic `late`.

With `worker_input.encoding: record`, topic `worker-input` contains JSON too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from skewless.algorithms.record_size import split_by_size
from skewless.errors import BadRecordError
from skewless.wire.columns import read_table, write_table
from skewless.wire.headers import internal_headers
from skewless.wire.record import OutputRecord, OwnHeaders

TUPLES = "skewless.tuples.v1"
TUPLE = "skewless.tuple.v1"
TUPLES_SCHEMA = pa.schema(
    [("key", pa.dictionary(pa.int32(), pa.string())), ("value", pa.int64()), ("time", pa.int64())]
)
"""Columns of tuples. `value` is a fixed-point number, `time` the event time in ms."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class LateTuple(msgspec.Struct):
    """A tuple whose time is below the watermark of its source partition. It is not counted in any window."""

    key: Annotated[str, Meta(description="Key of the tuple.")]
    value: Annotated[int | float, Meta(description="Value of the tuple, in the unit of the source.")]
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


class TupleRecord(msgspec.Struct):
    """One tuple, with `worker_input.encoding: record`. Its key is the record key."""

    value: Annotated[Int64, Meta(description="Value times 10 to the power of `splitter.value.decimals`.")]
    time: Annotated[Int64, Meta(description="Event time, ms since the epoch (UTC).")]


def tuples_of(keys: pa.DictionaryArray, values: NDArray[np.int64], times: NDArray[np.int64]) -> pa.RecordBatch:
    """Return columns of tuples as one record batch."""
    return pa.record_batch([keys, pa.array(values), pa.array(times)], schema=TUPLES_SCHEMA)


def tuple_records(topic: str, partition: int, tuples: pa.RecordBatch, headers: OwnHeaders) -> Iterator[OutputRecord]:
    """Yield tuples as records of bounded size. `headers` are the headers of the last one: schema and watermarks."""
    # The watermarks hold after all tuples of the batch, so only the last record contains them.
    *first_parts, last_part = split_by_size(tuples)
    for part in first_parts:
        yield OutputRecord(topic, write_table(part), partition=partition, headers=internal_headers(TUPLES, {}))
    yield OutputRecord(topic, write_table(last_part), partition=partition, headers=headers)


def read_tuples(value: bytes | None) -> list[pa.RecordBatch]:
    """Return the tuples of a record. Raises BadRecordError if the columns are not those of tuples."""
    table = read_table(value)
    batches: list[pa.RecordBatch] = table.to_batches()
    if table.schema != TUPLES_SCHEMA or any(map(_has_missing_columns, batches)):
        raise BadRecordError(f"columns are not those of {TUPLES}")
    return batches


def _has_missing_columns(tuples: pa.RecordBatch) -> bool:
    keys, values, times = tuples.columns
    return bool(keys.null_count or keys.dictionary.null_count or values.null_count or times.null_count)
