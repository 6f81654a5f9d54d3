"""Reads the records at given offsets of one partition. Does not join a consumer group and commits no offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from skewless.errors import BrokerError
from skewless.kafka.consumer.range_reader import read_ranges
from skewless.kafka.consumer.read_compacted import offset_range
from skewless.kafka.reachability import QUIET
from skewless.kafka.settings import KafkaSettings
from skewless.wire.record import Headers


class StoredRecords(NamedTuple):
    """Records of a partition, in the order of their offsets."""

    offsets: NDArray[np.int64]
    values: list[bytes]
    timestamps: NDArray[np.int64]
    """Kafka timestamps in ms."""
    keys: list[bytes | None]
    headers: list[Headers]


def read_offsets(
    kafka: KafkaSettings, topic: str, partition: int, offsets: NDArray[np.int64]
) -> Iterator[StoredRecords]:
    """Yield the records at these offsets, which must be ascending, in batches of bounded size.

    Reads everything between the first and the last. Raises BrokerError if records at these offsets were deleted.
    """
    if not len(offsets):
        return
    first, last = int(offsets[0]), int(offsets[-1])
    begin, _ = offset_range({**QUIET, **kafka.client_options()}, topic, partition)
    if begin > first:
        raise BrokerError(
            f"records of topic {topic} that wait for a partner were deleted, in partition {partition}: they begin "
            f"at offset {first}, log start offset is {begin}. Increase the topic's retention, and give the "
            "pipeline another name: it then reads the topic from its beginning"
        )
    is_read = np.zeros(len(offsets), dtype=np.bool_)
    for _, messages in read_ranges(kafka, topic, {partition: (first, last + 1)}):
        found = np.fromiter((message.offset() for message in messages), dtype=np.int64, count=len(messages))
        rows = np.searchsorted(offsets, found)
        is_wanted = offsets[rows] == found
        is_read[rows[is_wanted]] = True
        yield _columns([messages[index] for index in np.flatnonzero(is_wanted).tolist()])
    missing = offsets[~is_read]
    if len(missing):
        raise BrokerError(
            f"topic {topic} partition {partition} lacks {len(missing)} of the records that wait for a partner, the "
            f"first at offset {missing[0]}: they were compacted. Disable compaction, and give the pipeline another "
            "name: it then reads the topic from its beginning"
        )


def _columns(messages: list[Message]) -> StoredRecords:
    return StoredRecords(
        np.array([message.offset() for message in messages], dtype=np.int64),
        [message.value() or b"" for message in messages],
        np.array([message.timestamp()[1] for message in messages], dtype=np.int64),
        [message.key() for message in messages],
        [message.headers() or () for message in messages],
    )
