"""Restores the held records of a join: their offsets from the changelog, the records from the input topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.held_records import NO_RECORDS, Records
from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.engine.message_batch import MessageBatch
from skewless.engine.start_checks import RESET
from skewless.errors import BrokerError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import ReadProgress, read_compacted, read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.parsing.join_records import SideRules, read_records
from skewless.stages.join.step import JoinState, JoinStepRules
from skewless.wire.join_changelog import block_of, decode_checkpoint, held_blocks, held_offsets
from skewless.wire.timed_records import read_timed_records
from skewless.wire.topic_partition import TopicPartition


def restore_from(
    kafka: KafkaSettings,
    changelog: str,
    rules: JoinStepRules,
    writers: Mapping[Side, tuple[str, str]] | None,
    progress: ReadProgress,
) -> Callable[[TopicPartition, str | None], JoinState]:
    """Return a function that restores an input partition from its checkpoint. `changelog` is a full topic name.

    `writers` has group and input topic of the stages left and right, if they write the input topics. A bounded run asks
    which partitions they have processed to their ends.
    """
    sides = {side_rules.topic: (side, side_rules) for side, side_rules in rules.sides.items()}

    def restore(partition: TopicPartition, checkpoint: str | None) -> JoinState:
        side, side_rules = sides[partition.topic]
        written = read_compacted(
            kafka, changelog, partition.partition, lambda key: block_of(key, side.value) is not None, progress
        )
        blocks = held_blocks(written, side.value, decode_checkpoint(checkpoint).version)
        empty = [block for block, bitmap in blocks.items() if not bitmap]
        processed = _processed(kafka, *writers[side]) if rules.drain and writers and checkpoint else []
        held = [
            _records(batch, side_rules, merged=writers is not None)
            for batch in _batches(kafka, partition, held_offsets(blocks))
        ]
        columns = (np.concatenate(parts) for parts in zip(NO_RECORDS, *held, strict=True))
        return JoinState(Records(*columns), empty, processed)

    return restore


def _processed(kafka: KafkaSettings, group: str, topic: str) -> list[int]:
    """Return the partitions of a topic that a group has processed to their ends."""
    offsets = OffsetReader(kafka)
    end, committed = offsets.end(topic), offsets.committed(group, topic)
    reached = offsets.begin(topic) | {partition: found.offset for partition, found in committed.items()}
    return [partition for partition, offset in end.items() if reached[partition] >= offset]


def _batches(kafka: KafkaSettings, source: TopicPartition, offsets: NDArray[np.int64]) -> Iterator[MessageBatch]:
    """Yield the records at these offsets, which are ascending. Reads everything between the first and the last."""
    if not len(offsets):
        return
    first, last = int(offsets[0]), int(offsets[-1])
    begin, _ = OffsetReader(kafka).log_range(*source)
    if begin > first:
        raise BrokerError(
            f"records of topic {source.topic} that wait for a partner were deleted, in partition {source.partition}: "
            f"they begin at offset {first}, log start offset is {begin}. Increase the topic's retention, and give the "
            "pipeline another name: it then reads the topic from its beginning"
        )
    is_read = np.zeros(len(offsets), dtype=np.bool_)
    for _, messages in read_ranges(kafka, source.topic, {source.partition: (first, last + 1)}):
        batch_offsets = np.array([message.offset() for message in messages], dtype=np.int64)
        rows = np.searchsorted(offsets, batch_offsets)
        is_held = offsets[rows] == batch_offsets
        is_read[rows[is_held]] = True
        if held := [messages[index] for index in np.flatnonzero(is_held).tolist()]:
            yield MessageBatch(source, 0, held)
    missing = offsets[~is_read]
    if len(missing):
        raise BrokerError(
            f"topic {source.topic} partition {source.partition} lacks {len(missing)} of the records that wait for a "
            f"partner, the first at offset {missing[0]}: they were compacted. Disable compaction, and give the "
            "pipeline another name: it then reads the topic from its beginning"
        )


def _records(batch: MessageBatch, rules: SideRules, *, merged: bool) -> Records:
    offsets = np.array(batch.offsets, dtype=np.int64)
    invalid: Mapping[int, str]
    if merged:
        records, _, _, invalid = read_timed_records(batch.keys, batch.values, offsets)
    else:
        # They were valid before. But a schema may have been deleted, or a newer version may be stricter.
        records, invalid = read_records(rules, batch, offsets, MAX_WATERMARK)
    if invalid:
        row, reason = next(iter(invalid.items()))
        raise BrokerError(
            f"topic {batch.topic} partition {batch.partition} offset {offsets[row]}: {reason}, and it waits for a "
            f"partner: set a changed schema or function back, or {RESET}"
        )
    return records
