"""Reads a sample of a topic and inspects it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from skewless.engine.message_batch import MessageBatch
from skewless.errors import CheckFailedError
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import (
    OffsetRanges,
    OffsetReader,
    newest_fraction,
    offset_count,
    uncommitted_records,
)
from skewless.kafka.consumer.topic_reader import ReadAhead, first_batches, read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.lab.inspection.inspector import DETECTION_RECORDS, Inspector
from skewless.schema_registry.settings import RegistrySettings
from skewless.wire.topic_partition import TopicPartition

READ_AHEAD = ReadAhead(batch_records=4_000, fetch_bytes=2**18, queue_bytes=2**20)
"""Less than the default, because an inspection should not need more memory than a stage."""

OLDEST_RECORDS = 500
"""Records at the beginning of each partition from which the age of the topic is read, at most."""
MAX_OLDEST = 20_000
"""The same of all partitions together."""
PARTS = 8
"""Evenly spaced parts of each partition from which format and fields are detected."""


class SampleRange(NamedTuple):
    """Offsets of a topic, and those of the sample."""

    ranges: OffsetRanges
    """First offset and end offset (exclusive) of the sample, by partition."""
    available: OffsetRanges
    """The same of the topic."""
    uncommitted: OffsetRanges
    """The same of records in open transactions, and of those after them. They cannot be read yet."""

    @property
    def retained(self) -> int:
        """Offsets that the topic holds."""
        return offset_count(self.available)

    @property
    def before(self) -> OffsetRanges:
        """Offsets of the topic before the sample."""
        return {partition: (begin, self.ranges[partition][0]) for partition, (begin, _) in self.available.items()}

    @property
    def records(self) -> int:
        """Largest number of records in the sample."""
        return offset_count(self.ranges)


def sample_range(kafka: KafkaSettings, topic: str, records: int, since_s: float | None, now_ms: int) -> SampleRange:
    """Return the newest records of a topic: the same fraction of each partition, or those of the last `since_s`.

    Raises CheckFailedError if there are no such records.
    """
    Admin(kafka).check_visible([topic])
    offsets = OffsetReader(kafka)
    ranges = available = offsets.ranges(topic)
    uncommitted = offsets.uncommitted(topic)
    if offset_count(available) <= 0:
        if uncommitted:
            raise CheckFailedError(f"topic {topic} has {uncommitted_records(offset_count(uncommitted))}, and no others")
        raise CheckFailedError(f"topic {topic} is empty: it has {len(ranges)} partitions and no records")
    if since_s is None:
        ranges = newest_fraction(ranges, records)
    else:
        starts = offsets.at_time(topic, now_ms - round(since_s * 1000))
        ranges = {partition: (max(begin, starts[partition]), end) for partition, (begin, end) in ranges.items()}
    sample = SampleRange(ranges, available, uncommitted)
    if sample.records <= 0:
        raise CheckFailedError(f"topic {topic} has no records of the last {since_s:g} s: choose a longer `since`")
    return sample


def inspect_topic(  # noqa: PLR0913 - passed by name
    kafka: KafkaSettings,
    topic: str,
    sample: SampleRange,
    key: str | None,
    *,
    registry: RegistrySettings | None = None,
    on_progress: Callable[[float, int], None] = lambda _now, _done: None,
) -> dict[str, Any]:
    """Read a sample of a topic and return its measures as JSON; see `Inspector.report`.

    `registry` has the schemas of records with schema ids. Raises CheckFailedError if the offsets hold no records, and
    UnreachableError or RegistryError for a registry that does not answer, or that refuses this client.
    """
    first = _first_batches(kafka, topic, sample.ranges)
    if not first:
        raise CheckFailedError(f"topic {topic} has no committed records in the offsets that were read")
    inspector, done = Inspector(first, key, registry), 0
    for partition, messages in read_ranges(kafka, topic, sample.ranges, READ_AHEAD):
        inspector.add(MessageBatch(TopicPartition(topic, partition), 0, messages))
        done += len(messages)
        on_progress(time.monotonic(), done)
    each = max(1, min(OLDEST_RECORDS, MAX_OLDEST // len(sample.before)))
    oldest = (
        MessageBatch(TopicPartition(topic, partition), 0, messages)
        for partition, messages in first_batches(kafka, topic, sample.before, each)
    )
    return {
        "topic": topic,
        "retained_offsets": sample.retained,
        "uncommitted_offsets": offset_count(sample.uncommitted),
        "oldest_ms": inspector.oldest_ms(oldest),
        "offsets": {str(partition): list(offsets) for partition, offsets in sample.ranges.items()},
        **inspector.report(sample.ranges),
    }


def _first_batches(kafka: KafkaSettings, topic: str, ranges: OffsetRanges) -> list[MessageBatch]:
    """Return the records from which format and fields are detected: parts of each partition, the last ones among them.

    So fields that only a few old records have are no candidates. Offsets may hold no records, as in a compacted topic.
    Then they are the first ones that are read.
    """
    each = max(1, DETECTION_RECORDS // (PARTS * max(1, sum(begin < end for begin, end in ranges.values()))))
    found = [batch for part in parts_of(ranges, each) for batch in _batches(kafka, topic, part)]
    if found:
        return sorted(found, key=lambda batch: (batch.partition, batch.offsets[0]))
    return list(islice(_batches(kafka, topic, ranges), 1))


def parts_of(ranges: OffsetRanges, each: int) -> list[OffsetRanges]:
    """Return PARTS evenly spaced parts of each range, with at most `each` offsets, from the first to the last ones."""
    starts = {
        partition: [*(begin + max(0, end - begin - each) * part // (PARTS - 1) for part in range(PARTS)), end]
        for partition, (begin, end) in ranges.items()
    }
    return [
        {partition: (first[part], min(first[part] + each, first[part + 1])) for partition, first in starts.items()}
        for part in range(PARTS)
    ]


def _batches(kafka: KafkaSettings, topic: str, ranges: OffsetRanges) -> Iterator[MessageBatch]:
    held = {partition: offsets for partition, offsets in ranges.items() if offsets[0] < offsets[1]}
    for partition, messages in read_ranges(kafka, topic, held, READ_AHEAD):
        yield MessageBatch(TopicPartition(topic, partition), 0, messages)
