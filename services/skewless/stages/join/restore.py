"""Restores the held records of a join: their offsets from the changelog, the records from the input topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from skewless.algorithms.join.held_records import Records, records_of
from skewless.algorithms.join.window_join import Side
from skewless.engine.executor import State
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.read_compacted import ReadProgress, read_compacted
from skewless.kafka.consumer.read_offsets import StoredRecords, read_offsets
from skewless.kafka.settings import KafkaSettings
from skewless.parsing.join_records import SideRules
from skewless.parsing.source_records import RecordColumns
from skewless.wire.join_changelog import (
    block_of,
    decode_checkpoint,
    empty_block_row,
    held_blocks,
    held_offsets,
    processed_row,
    rows_of,
)
from skewless.wire.timed_records import records_in
from skewless.wire.topic_partition import TopicPartition


def restore_from(
    kafka: KafkaSettings,
    changelog: str,
    sides: Mapping[Side, SideRules],
    writers: Mapping[Side, tuple[str, str]] | None,
    progress: ReadProgress,
) -> Callable[[TopicPartition, str | None], State]:
    """Return a function that restores an input partition from its checkpoint. `changelog` is a full topic name.

    `writers` has group and input topic of the stages left and right, if they write the input topics.
    """
    sides_by_topic = {rules.topic: (side, rules) for side, rules in sides.items()}

    def restore(partition: TopicPartition, checkpoint: str | None) -> State:
        side, rules = sides_by_topic[partition.topic]
        written = read_compacted(
            kafka, changelog, partition.partition, lambda key: block_of(key, side.value) is not None, progress
        )
        blocks = held_blocks(written, side.value, decode_checkpoint(checkpoint).version)
        empty = [empty_block_row(block) for block, bitmap in blocks.items() if not bitmap]
        if writers is not None and checkpoint is not None:
            empty.append(processed_row(_processed(kafka, *writers[side])))
        return [*_held_records(kafka, partition, rules, held_offsets(blocks), merged=writers is not None), *empty]

    return restore


def _processed(kafka: KafkaSettings, group: str, topic: str) -> list[int]:
    """Return the partitions of a topic that a group has processed to their ends."""
    offsets = OffsetReader(kafka)
    end, committed = offsets.end(topic), offsets.committed(group, topic)
    reached = offsets.begin(topic) | {partition: found.offset for partition, found in committed.items()}
    return [partition for partition, offset in end.items() if reached[partition] >= offset]


def _held_records(
    kafka: KafkaSettings,
    partition: TopicPartition,
    rules: SideRules,
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]],
    *,
    merged: bool,
) -> State:
    return [
        row
        for stored in read_offsets(kafka, *partition, offsets)
        for row in rows_of(_records(stored, rules, merged=merged))
    ]


def _records(stored: StoredRecords, rules: SideRules, *, merged: bool) -> Records:
    if merged:
        return records_in(stored.keys, stored.values, stored.offsets)[0]
    # They were parsed before, so each is valid and has one id.
    parsed = rules.parser.parse(RecordColumns(stored.values, stored.timestamps, stored.keys, stored.headers))
    return records_of(parsed.keys, parsed.times, stored.offsets, stored.values)
