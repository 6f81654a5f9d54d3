"""Reads the records that were committed to a topic in the last minutes, whatever their timestamps are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from skewless.kafka.consumer.offsets import OffsetReader, newest_offsets, offset_count
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.wire.record import Headers

LOOKBACK = 10_000
"""Offsets before the first commit in the period in which its records are looked for."""
MAX_READ = 100_000
"""Records that are read at most. Of more, the number is that of their offsets, and the last SAMPLE are read."""
SAMPLE = 10_000

Content = TypeVar("Content")


class RecentRecords(NamedTuple, Generic[Content]):
    """Records that were committed in a period."""

    number: int
    contents: Sequence[Content]
    """What was read of them: of all, or of the last ones if there are many."""


def recent_records(
    offsets: OffsetReader,
    topic: str | None,
    since_ms: int,
    content_of: Callable[[Headers, bytes | None], Content],
) -> RecentRecords[Content]:
    """Return how many records were committed since a time, and what they contain, for a topic of a pipeline.

    None is a topic that does not exist.

    The Kafka timestamps of public records are event times. But the marker that ends a transaction has the time of the
    commit, so the first marker since then is found by its time, and its records are those before it. Above MAX_READ the
    number is an upper bound, because markers are counted as well.
    """
    if topic is None:
        return RecentRecords(0, ())
    retained = offsets.ranges(topic)
    # Most topics of these have no records at all.
    if not offset_count(retained):
        return RecentRecords(0, ())
    written = offsets.ranges_since(topic, since_ms)
    total = offset_count(written)
    if is_sample := total > MAX_READ:
        ranges = written = newest_offsets(written, SAMPLE // len(written))
    else:
        ranges = {
            partition: (max(retained[partition][0], start - LOOKBACK), end)
            for partition, (start, end) in written.items()
        }
    records_by_partition: dict[int, list[tuple[int, Content]]] = {}
    for partition, messages in read_ranges(offsets.kafka, topic, ranges):
        records_by_partition.setdefault(partition, []).extend(
            (message.offset(), content_of(message.headers() or (), message.value())) for message in messages
        )
    contents: list[Content] = []
    for partition, records in records_by_partition.items():
        found, (begin, end) = [offset for offset, _ in records], ranges[partition]
        count = committed_since(found, written[partition][0], has_markers=len(found) < end - begin)
        contents += [content for _, content in records[len(records) - count :]]
    return RecentRecords(total if is_sample else len(contents), contents)


def committed_since(records: Sequence[int], start: int, *, has_markers: bool = True) -> int:
    """Return how many of the records belong to transactions that end at `start` or later.

    `records` are offsets in ascending order. An offset without a record is a marker, which ends the transaction of the
    records right before it. Without markers, records were written at least once, and each counts by its own offset.
    """
    later = [offset for offset in records if offset >= start]
    if not has_markers:
        return len(later)
    own = 0
    for offset in reversed(records[: len(records) - len(later)]):
        if offset != start - 1 - own:
            break
        own += 1
    return own + len(later)
