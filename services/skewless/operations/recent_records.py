"""Counts the records that were committed to a topic in the last minutes, whatever their timestamps are."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.range_reader import read_ranges
from skewless.kafka.settings import KafkaSettings

LOOKBACK = 10_000
"""Offsets before the first commit in the period in which its records are looked for."""
MAX_READ = 100_000
"""Records that are read at most. Of more, the number is that of their offsets."""


def recent_records(kafka: KafkaSettings, offsets: OffsetReader, topic: str, since_ms: int) -> int:
    """Return how many records were committed since a time, for a topic of a pipeline.

    The Kafka timestamps of public records are event times. But the marker that ends a transaction has the time of the
    commit, so the first marker since then is found by its time, and its records are those before it. Above MAX_READ the
    result is an upper bound, because markers are counted as well.
    """
    begin, end = offsets.begin(topic), offsets.end(topic)
    # Most topics of these have no records at all.
    if not any(end[partition] > first for partition, first in begin.items()):
        return 0
    starts = offsets.at_time(topic, since_ms)
    written = {partition: (start, end[partition]) for partition, start in starts.items() if start < end[partition]}
    total = sum(last - first for first, last in written.values())
    if total > MAX_READ:
        return total
    ranges = {
        partition: (max(begin[partition], start - LOOKBACK), last) for partition, (start, last) in written.items()
    }
    found: dict[int, list[int]] = {}
    for partition, messages in read_ranges(kafka, topic, ranges):
        found.setdefault(partition, []).extend(message.offset() for message in messages)
    return sum(committed_since(records, written[partition][0]) for partition, records in found.items())


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
