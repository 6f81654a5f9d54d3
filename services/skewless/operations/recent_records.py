"""Reads the records that were committed to a topic in the last minutes, whatever their timestamps are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.range_reader import read_ranges
from skewless.kafka.settings import KafkaSettings
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
    kafka: KafkaSettings,
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
    begin, end = offsets.begin(topic), offsets.end(topic)
    # Most topics of these have no records at all.
    if not any(end[partition] > first for partition, first in begin.items()):
        return RecentRecords(0, ())
    starts = offsets.at_time(topic, since_ms)
    written = {partition: (start, end[partition]) for partition, start in starts.items() if start < end[partition]}
    total = sum(last - first for first, last in written.values())
    is_sample = total > MAX_READ
    ranges = {
        partition: (
            max(start, last - SAMPLE // len(written)) if is_sample else max(begin[partition], start - LOOKBACK),
            last,
        )
        for partition, (start, last) in written.items()
    }
    found: dict[int, list[tuple[int, Content]]] = {}
    for partition, messages in read_ranges(kafka, topic, ranges):
        read = ((message.offset() or 0, content_of(message.headers() or (), message.value())) for message in messages)
        found.setdefault(partition, []).extend(read)
    contents: list[Content] = []
    for partition, records in found.items():
        start = ranges[partition][0] if is_sample else written[partition][0]
        count = committed_since([offset for offset, _ in records], start)
        contents += [content for _, content in records[len(records) - count :]]
    return RecentRecords(total if is_sample else len(contents), contents)


def committed_since(records: Sequence[int], start: int) -> int:
    """Return how many of the records belong to transactions that end at `start` or later.

    `records` are offsets in ascending order. An offset without a record is a marker. If `start` is one, the records
    right before it belong to its transaction.
    """
    later = [offset for offset in records if offset >= start]
    if start in later[:1]:
        return len(later)
    own = 0
    for offset in reversed(records[: len(records) - len(later)]):
        if offset != start - 1 - own:
            break
        own += 1
    return own + len(later)
