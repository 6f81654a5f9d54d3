"""Records of the topics left-records and right-records: a record of the user's topic, and its event time.

The key is the id. The value is the version, the event time in ms, and the value of the user's record. A record without
a value reports watermarks of the partitions of the user's topic (see `skewless.wire.headers`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.held_records import Records, records_of
from skewless.wire.record import OutputRecord

VERSION = 1
_PREFIX = struct.Struct(">Bq")
_PREFIX_TYPE = np.dtype([("version", "u1"), ("time", ">i8")])


def timed_records(topic: str, records: Records, partitions: NDArray[np.int32]) -> Iterator[OutputRecord]:
    """Yield a record for each of `records`. `partitions` has the partition of each of them."""
    rows = zip(records.ids.tolist(), records.times.tolist(), records.values.tolist(), partitions.tolist(), strict=True)
    for record_id, time, value, partition in rows:
        yield OutputRecord(topic, _PREFIX.pack(VERSION, time) + value, record_id.encode(), partition)


def records_in(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], offsets: NDArray[np.int64]
) -> tuple[Records, list[int], dict[int, str]]:
    """Return the records of a batch, the rows of records without a value, and the reasons of invalid rows."""
    invalid = {
        row: "not a record of this version with an id and an event time"
        for row, value in enumerate(values)
        if value is not None and (keys[row] is None or len(value) < _PREFIX.size or value[0] != VERSION)
    }
    rows = [row for row, value in enumerate(values) if value is not None and row not in invalid]
    data = [values[row] or b"" for row in rows]
    prefixes = np.frombuffer(b"".join(value[: _PREFIX.size] for value in data), dtype=_PREFIX_TYPE)
    ids = ((keys[row] or b"").decode() for row in rows)
    originals = (value[_PREFIX.size :] for value in data)
    records = records_of(ids, prefixes["time"].astype(np.int64), offsets[rows], originals)
    return records, [row for row, value in enumerate(values) if value is None], invalid
