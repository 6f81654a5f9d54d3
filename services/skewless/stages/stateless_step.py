"""Base class of the steps that keep nothing after a commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skewless.engine.step import Step
from skewless.wire.record import OutputRecord


class StatelessStep(Step):
    """A step without a checkpoint and without watermarks. Unless it overrides more, it keeps nothing after a batch."""

    def __init__(self) -> None:
        self._ended: set[int] = set()

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002 - this step has no state
        """Start to read a partition."""
        self._ended.discard(partition)

    def revoke(self, partition: int) -> None:
        """Do nothing: nothing is kept."""

    def flush(self, now: int) -> Iterable[OutputRecord]:  # noqa: ARG002 - nothing is kept
        """Return nothing: `process` has returned everything."""
        return ()

    def checkpoint(self, partition: int) -> str:  # noqa: ARG002 - nothing is kept
        """Return an empty checkpoint."""
        return ""

    def watermark(self, partition: int) -> int | None:  # noqa: ARG002 - there are no watermarks
        """Return None: there are no watermarks."""
        return None

    def end_of_partition(self, partition: int, now: int) -> None:  # noqa: ARG002 - no time is needed
        """Record that all records are read."""
        self._ended.add(partition)

    def finished(self, partition: int) -> bool:
        """Return whether all records are read."""
        return partition in self._ended
