"""Restores the observer: reads its changelog, and again the partials that it has merged since it wrote to it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.errors import BadRecordError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import WHOLE_PARTITION, ReadProgress, read_compacted, read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.stages.observer.step import UNSAVED_KEY
from skewless.wire.changelog import decode_checkpoint
from skewless.wire.headers import schema_of
from skewless.wire.partials import PARTIALS
from skewless.wire.record import Batch, Headers
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)


def restore(
    pipeline: PipelineSettings, progress: ReadProgress, partition: int, checkpoint: str | None
) -> Sequence[tuple[bytes, bytes]]:
    """Return the state of a partition with this checkpoint."""
    kafka, partials = pipeline.kafka, pipeline.topic("partials")
    saved = read_compacted(kafka, pipeline.topic("observer-changelog"), partition, progress=progress)
    first, end = decode_checkpoint(checkpoint).unsaved or (0, 0)
    if first == end:
        return saved
    begin, _ = OffsetReader(kafka).log_range(partials, partition)
    if begin > first:
        # The results do not depend on the observer, so it continues.
        log.warning(
            "partition %d: the records at offsets %d to %d of topic %s were deleted by its retention before they "
            "were in the changelog, so the records of topic distribution lack their tuples",
            partition, first, min(begin, end) - 1, partials,
        )  # fmt: skip
    return [*saved, *unsaved_state(_batches(kafka, TopicPartition(partials, partition), max(first, begin), end))]


def unsaved_state(batches: Iterable[Batch]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the partials of batches as state of a partition. Invalid records have a dead letter already."""
    for batch in batches:
        for value, headers in zip(batch.values, batch.headers, strict=True):
            if value is not None and _is_partials(headers):
                yield UNSAVED_KEY, value


def _is_partials(headers: Headers) -> bool:
    try:
        return schema_of(headers) == PARTIALS
    except BadRecordError:
        return False


def _batches(kafka: KafkaSettings, source: TopicPartition, begin: int, end: int) -> Iterator[Batch]:
    for _, messages in read_ranges(kafka, source.topic, {source.partition: (begin, end)}, WHOLE_PARTITION):
        yield MessageBatch(source, 0, messages)
