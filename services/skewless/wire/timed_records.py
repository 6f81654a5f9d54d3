"""Records of the topics left-records and right-records: a record of the user's topic, and its event time.

The key is the id. The value is the version, the event time in ms, partition and offset of the user's record, and its
value. A record without a value reports watermarks of the partitions of the user's topic (see `skewless.wire.headers`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.held_records import Records, records_of
from skewless.wire.record import OutputRecord

VERSION = 2
_PREFIX = struct.Struct(">Bqiq")
PREFIX_BYTES = _PREFIX.size
"""Bytes before the value of the user's record."""
_PREFIX_TYPE = np.dtype([("version", "u1"), ("time", ">i8"), ("partition", ">i4"), ("offset", ">i8")])


class Origins(NamedTuple):
    """Where records are in the user's topic."""

    partitions: NDArray[np.int64]
    offsets: NDArray[np.int64]


class TimedBatch(NamedTuple):
    """Content of a batch."""

    records: Records
    origins: Origins
    """Those of `records`."""
    reports: list[int]
    """Rows of records without a value."""
    invalid: dict[int, str]
    """Reasons of invalid rows."""


def timed_records(
    topic: str, source_partition: int, records: Records, partitions: NDArray[np.int32]
) -> Iterator[OutputRecord]:
    """Yield a record for each of `records` of a partition. `partitions` has the partition in which each is written."""
    rows = zip(*(column.tolist() for column in records), partitions.tolist(), strict=True)
    for record_id, time, offset, value, partition in rows:
        prefix = _PREFIX.pack(VERSION, time, source_partition, offset)
        yield OutputRecord(topic, prefix + value, record_id.encode(), partition)


def read_timed_records(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], offsets: NDArray[np.int64]
) -> TimedBatch:
    """Return the content of a batch."""
    invalid = {
        row: "not a record of this version with an id and an event time"
        for row, value in enumerate(values)
        if value is not None and (keys[row] is None or len(value) < PREFIX_BYTES or value[0] != VERSION)
    }
    rows = [row for row, value in enumerate(values) if value is not None and row not in invalid]
    data = [values[row] or b"" for row in rows]
    prefixes = np.frombuffer(b"".join(value[:PREFIX_BYTES] for value in data), dtype=_PREFIX_TYPE)
    ids = ((keys[row] or b"").decode() for row in rows)
    originals = (value[PREFIX_BYTES:] for value in data)
    times, source_partitions, source_offsets = (
        prefixes[name].astype(np.int64) for name in ("time", "partition", "offset")
    )
    return TimedBatch(
        records_of(ids, times, offsets[rows], originals),
        Origins(source_partitions, source_offsets),
        [row for row, value in enumerate(values) if value is None],
        invalid,
    )
