"""Step of the mirror: passes each record on, to the same partition of the copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from skewless.stages.stateless_step import StatelessStep
from skewless.wire.record import Batch, OutputRecord, OwnHeaders


class MirrorStep(StatelessStep):
    """Copies key, value, headers and timestamp of each record.

    `topic` is the name of the copied topic in the topology.
    """

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - no time is needed
        """Yield the copies of the records of a batch."""
        columns = batch.keys, batch.values, batch.timestamps.tolist(), batch.headers
        for key, value, timestamp, headers in zip(*columns, strict=True):
            yield OutputRecord(self._topic, value, key, batch.partition, timestamp, cast("OwnHeaders", headers))
