"""Step of the mirror: passes each record on, to the same partition of the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from skewless.engine.step import Step
from skewless.wire.record import Batch, OutputRecord, OwnHeaders


class MirrorStep(Step):
    """Copies key, value, headers and timestamp of each record. Nothing is kept.

    `topic` is the name of the copied topic in the topology.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._ended: set[int] = set()

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002 - this step has no state
        """Start to copy a partition."""
        self._ended.discard(partition)

    def revoke(self, partition: int) -> None:
        """Do nothing: nothing is kept."""

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - no time is needed
        """Yield the copies of the records of a batch."""
        columns = batch.keys, batch.values, batch.timestamps.tolist(), batch.headers
        for key, value, timestamp, headers in zip(*columns, strict=True):
            yield OutputRecord(self._topic, value, key, batch.partition, timestamp, cast("OwnHeaders", headers))

    def flush(self, now: int) -> Sequence[OutputRecord]:  # noqa: ARG002 - nothing is kept
        """Return nothing: `process` returns all copies."""
        return ()

    def checkpoint(self, partition: int) -> str:  # noqa: ARG002 - nothing is kept
        """Return an empty checkpoint."""
        return ""

    def watermark(self, partition: int) -> int | None:  # noqa: ARG002 - records are not read
        """Return None: the watermarks of the records are not read."""
        return None

    def end_of_partition(self, partition: int, now: int) -> None:  # noqa: ARG002 - no time is needed
        """Record that all records are read."""
        self._ended.add(partition)

    def finished(self, partition: int) -> bool:
        """Return whether all records are read."""
        return partition in self._ended
