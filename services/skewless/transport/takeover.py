"""Prepares the partitions of an assignment: checks their committed offsets, restores their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from skewless.shape import Shape, read_saved
from skewless.transport.questions import LogRange
from skewless.transport.resumption import check_shape, positions_gone
from skewless.transport.session import Restore, Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The same for every assignment of a process."""

    topic: str
    group: str
    exactly_once: bool
    restore: Restore
    holds_results: Callable[[], str | None]
    shape: Shape | None
    skip_to: Mapping[int, int]
    """Offsets by partition below which nothing is read, by the user's choice."""

    def prepare(
        self, committed: Mapping[int, TopicPartition], ranges: Mapping[int, LogRange], *, begun: bool
    ) -> dict[int, Taken]:
        """Return what the session needs of each partition.

        `committed` are the group's offsets of these partitions with their metadata, below zero where there is none;
        `begun` says whether the group has committed an offset of any partition of the topic.
        """
        saved = {partition: read_saved(at.metadata) for partition, at in committed.items()}
        check_shape(saved, self.shape, self.group)
        states = self.restore({partition: found.position for partition, found in saved.items()})
        if committed and not begun and self.exactly_once:
            written = "its changelog" if any(states.values()) else self.holds_results()
            if written:
                raise positions_gone(self.group, self.topic, written)
        return {
            partition: Taken(
                offset=max(self._first(at, ranges[partition]), self.skip_to.get(partition, 0)),
                position=saved[partition].position,
                state=states.get(partition, ()),
                leader_epoch=at.leader_epoch,
            )
            for partition, at in committed.items()
        }

    @staticmethod
    def _first(committed: TopicPartition, available: LogRange) -> int:
        offset: int = committed.offset
        return offset if offset >= 0 else available.begin
