"""What a stage does to its batches, without Kafka: the contract between the pure steps and the transport.

A step owns the state of the partitions that it was given. The transport calls it from one thread: `assign`, then any
number of `process`, with a `flush` before each commit; `positions` go into the commit beside the offsets. After an
abort or a rebalance the transport calls `revoke` and, for what comes back, `assign` with what was last committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skewless.records import Batch, Output

RANKS = 10
"""So many of the hottest keys are shown, by their rank: a key is no label."""


class Sample(NamedTuple):
    """One value of a metric of `skewless.metrics`, its labels in the order of the list, without the constant ones."""

    name: str
    labels: tuple[str, ...]
    value: float


class Step(ABC):
    """One stage's part of the pipeline. Times `now` are wall-clock milliseconds."""

    tuples: int = 0
    """Tuples taken in by this object; a plain count that is shown as a metric, no part of any state."""

    @abstractmethod
    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Take over a partition: `position` as last committed, `state` as restored from its changelog (key, value).

        May return a line for the log.
        """

    @abstractmethod
    def revoke(self, partition: int) -> None:
        """Forget a partition; what was not committed will be processed again by its next owner."""

    @abstractmethod
    def process(self, batch: Batch, now: int) -> Iterable[Output]:
        """Process the next records of a partition."""

    @abstractmethod
    def flush(self, now: int) -> Iterable[Output]:
        """Emit what must be in this commit."""

    @property
    def wants_commit(self) -> bool:
        """Whether the step holds so much since the last commit that the next one should not wait for its time."""
        return False

    @abstractmethod
    def position(self, partition: int) -> str:
        """Tell what of this partition must be known when it is taken over, in at most 3,850 characters."""

    @abstractmethod
    def watermark(self, partition: int) -> int | None:
        """How far event time has come in this partition; None while an origin has not spoken."""

    def idle(self, partition: int) -> bool:  # noqa: ARG002 - a step without event time has no idle partitions
        """Return whether the partition is idle: its watermark stays where it is and holds no window open."""
        return False

    def event_time(self, partition: int) -> int | None:  # noqa: ARG002 - a step that sees no time has none
        """Newest event time in ms that this partition has brought to this object; None before the first."""
        return None

    def samples(self) -> Iterable[Sample]:
        """Tell what this stage alone shows, for the metrics; called between two batches, when somebody asks."""
        return ()

    @abstractmethod
    def finished(self, partition: int) -> bool:
        """Whether a bounded run has come to the end of this partition."""

    def end_of_partition(self, partition: int, now: int) -> None:  # noqa: B027 - only the first stage cares
        """Hear that everything that is in the partition now has been read."""

    def resize(self, workers: int) -> None:  # noqa: B027 - only stages that choose or compare workers care
        """Hear, between two batches, that tuples go to this many workers from now on (W)."""
