"""Names a partition of a topic, and the offset that a group has committed in it."""

from __future__ import annotations

from typing import NamedTuple

from skewless.wire.offset_metadata import decode_offset_metadata


class TopicPartition(NamedTuple):
    """A partition of a topic. Hashable and ordered, unlike the class of the same name in confluent_kafka."""

    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """An offset as a commit stores it."""

    offset: int
    """Next offset to read."""
    metadata: str = ""
    """Checkpoint and state schema, see `offset_metadata`."""
    leader_epoch: int | None = None
    """Leader epoch of the record before that offset (KIP-320); None if unknown."""

    @property
    def checkpoint(self) -> str | None:
        """Checkpoint that the stage's step stored with the offset; None if there is none."""
        return decode_offset_metadata(self.metadata).checkpoint
