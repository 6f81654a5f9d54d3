"""Prepares the partitions of an assignment: checks their committed offsets, restores their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from skewless.transport.questions import LogRange
from skewless.transport.resumption import (
    Checkpoint,
    Input,
    Written,
    check_first_start,
    check_log_ranges,
    checkpoints_of,
)
from skewless.transport.session import Restore, Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The same for every assignment of a process."""

    source: Input
    exactly_once: bool
    restore: Restore
    written: Written | None
    skip_to: Mapping[int, int]
    """Offsets by partition below which nothing is read, by the user's choice."""

    def prepare(
        self, committed: Mapping[int, TopicPartition], ranges: Mapping[int, LogRange], *, begun: bool
    ) -> dict[int, Taken]:
        """Return what the session needs of each partition.

        `committed` are the group's offsets of these partitions with their metadata, below zero where there is none;
        `begun` says whether the group has a checkpoint of any partition of the topic. Raises BrokerError or
        ConfigurationError where results would be wrong.
        """
        checkpoints = {at: self._moved(at, found) for at, found in checkpoints_of(self.source, committed).items()}
        check_log_ranges(self.source, checkpoints, ranges)
        # A partition without a checkpoint gets one with the first commit, whether it has records or not.
        first = {at: max(log.begin, self.skip_to.get(at, 0)) for at, log in ranges.items()}
        begin = {at: checkpoints.get(at, Checkpoint(offset, None)) for at, offset in first.items()}
        states = self.restore({partition: at.position for partition, at in begin.items()})
        if self.written is not None:
            # At least once, a process that was killed leaves state without a checkpoint.
            restored = [partition for partition, state in states.items() if state and self.exactly_once]
            missing = ranges.keys() - checkpoints.keys()
            check_first_start(self.source, missing, restored, self.written, begun=begun)
        return {
            partition: Taken(
                offset=at.offset,
                position=at.position,
                state=states.get(partition, ()),
                leader_epoch=_leader_epoch(committed[partition], at.offset),
            )
            for partition, at in begin.items()
        }

    def _moved(self, partition: int, checkpoint: Checkpoint) -> Checkpoint:
        return checkpoint._replace(offset=max(checkpoint.offset, self.skip_to.get(partition, 0)))


def _leader_epoch(committed: TopicPartition, offset: int) -> int | None:
    epoch: int | None = committed.leader_epoch
    return epoch if committed.offset == offset else None
