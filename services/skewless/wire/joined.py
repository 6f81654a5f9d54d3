"""Records of the topics of a join: pairs, which may have a schema, and unmatched and late records, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skewless.algorithms.join.held_records import Records
from skewless.wire.aggregates import Encode, encode_json
from skewless.wire.headers import public_headers
from skewless.wire.record import OutputRecord, OwnHeaders, public_timestamp
from skewless.wire.tuples import Int64

JOINED, UNMATCHED, JOIN_LATE = "skewless.joined.v1", "skewless.unmatched.v1", "skewless.join-late.v1"
JOINED_HEADERS, UNMATCHED_HEADERS, JOIN_LATE_HEADERS = map(public_headers, (JOINED, UNMATCHED, JOIN_LATE))

Original = Annotated[
    msgspec.Raw,
    Meta(description="The record: JSON if its format is json or has a schema, otherwise its text as it came."),
]
Id = Annotated[str, Meta(description="The id.")]
Time = Annotated[Int64, Meta(description="Event time, ms since the epoch (UTC).")]


class JoinedRecord(msgspec.Struct, frozen=True, gc=False):
    """A left record and its right record."""

    id: Id
    left: Original
    right: Original
    left_time: Time
    right_time: Time


class UnmatchedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that has no partner and can have none any more."""

    id: Id
    record: Original
    time: Time


class JoinLateRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that was older than its topic's disorder allows. It took no part in the join."""

    id: Id
    side: Annotated[Literal["left", "right"], Meta(description="Side of the join.")]
    record: Original
    time: Time
    watermark: Annotated[Int64, Meta(description="Watermark of the partition before the record, ms.")]
    partition: Annotated[int, Meta(description="Partition of the record in its topic.", ge=0)]
    offset: Annotated[int, Meta(description="Offset of the record in this partition.", ge=0)]


def original(value: bytes, *, is_json: bool) -> msgspec.Raw:
    """Return a record as a part of a JSON document. It must be UTF-8, and JSON if `is_json`."""
    return msgspec.Raw(value if is_json else msgspec.json.encode(value.decode()))


def joined_records(  # noqa: PLR0913 - two sides, and how pairs are written
    partition: int,
    left: Records,
    right: Records,
    *,
    left_is_json: bool,
    right_is_json: bool,
    encode: Encode = encode_json,
    headers: OwnHeaders = JOINED_HEADERS,
) -> Iterator[OutputRecord]:
    """Yield a record for each pair. The timestamp is that of the left record."""
    rows = zip(
        left.ids.tolist(),
        left.values.tolist(),
        right.values.tolist(),
        left.times.tolist(),
        right.times.tolist(),
        strict=True,
    )
    for record_id, left_value, right_value, left_time, right_time in rows:
        pair = JoinedRecord(
            record_id,
            original(left_value, is_json=left_is_json),
            original(right_value, is_json=right_is_json),
            left_time,
            right_time,
        )
        timestamp = public_timestamp(left_time)
        yield OutputRecord("joined", encode(pair), record_id.encode(), partition, timestamp, headers)


def unmatched_records(topic: str, partition: int, records: Records, *, is_json: bool) -> Iterator[OutputRecord]:
    """Yield a record for each unmatched one."""
    rows = zip(records.ids.tolist(), records.values.tolist(), records.times.tolist(), strict=True)
    for record_id, value, time in rows:
        record = UnmatchedRecord(record_id, original(value, is_json=is_json), time)
        timestamp = public_timestamp(time)
        yield OutputRecord(topic, encode_json(record), record_id.encode(), partition, timestamp, UNMATCHED_HEADERS)


def late_records(
    side: Literal["left", "right"],
    records: Records,
    partitions: Sequence[int],
    watermarks: Sequence[int],
    *,
    is_json: bool,
) -> Iterator[OutputRecord]:
    """Yield a record for each late one, in the partition of the user's topic. `records` have the offsets in it."""
    rows = zip(*(column.tolist() for column in records), partitions, watermarks, strict=True)
    for record_id, time, offset, value, partition, watermark in rows:
        late = JoinLateRecord(record_id, side, original(value, is_json=is_json), time, watermark, partition, offset)
        timestamp = public_timestamp(time)
        yield OutputRecord("join-late", encode_json(late), record_id.encode(), partition, timestamp, JOIN_LATE_HEADERS)
