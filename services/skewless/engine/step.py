"""Step: the contract between the engine and the pure logic of a stage, which is independent of Kafka.

The engine knows a partition by topic and number, because a stage may read several topics. A step calls its partitions
as its base class determines: `Step` has one input topic, and its partitions are numbers; `MultiInputStep` has several,
and its partitions are `TopicPartition`. So a step with one input, such as most stages of the pipeline, need not carry a
topic that is always the same through its state and its headers. A step with several inputs cannot mix them up.

A step owns the state of its assigned partitions. The engine calls it from one thread: `assign`, then `process` for each
batch, and `flush` before each commit. The commit stores the result of `checkpoint` with the offset
of each partition. After an abort or a rebalance the engine calls `revoke`, and `assign` with the last committed
checkpoint for partitions that it gets again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from skewless.algorithms.duration_histogram import Histogram
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.topic_partition import TopicPartition

Partition = TypeVar("Partition", bound=int | TopicPartition)

TOP_KEYS = 10
"""Number of top keys in the metrics. They are labelled by rank, because keys as labels would be unbounded."""


class Sample(NamedTuple):
    """A value of a metric of `skewless.monitoring.metrics`. `labels` follow its definition, without constant labels."""

    name: str
    labels: tuple[str, ...]
    value: float


class HistogramSample(NamedTuple):
    """Value of a histogram metric. `labels` as in `Sample`."""

    name: str
    labels: tuple[str, ...]
    histogram: Histogram


class InputStep(ABC, Generic[Partition]):
    """The logic of one stage of the pipeline. `now` is wall-clock time in ms."""

    tuples: int = 0
    """Number of tuples that this object has processed, for the metrics. It is not part of the state."""

    @abstractmethod
    def key_of(self, partition: TopicPartition) -> Partition:
        """Return what this step calls a partition."""

    @abstractmethod
    def label_of(self, partition: TopicPartition) -> str:
        """Return the name of a partition in metrics and log lines."""

    def observe_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Note the number of partitions of each input topic, including those of other processes.

        Called before the partitions of an assignment are assigned.
        """

    @abstractmethod
    def assign(self, partition: Partition, checkpoint: str | None, state: Any) -> str | None:
        """Start processing a partition and return a line for the log, or None.

        `checkpoint` is the last committed one, None before the first commit. `state` is what the stage has restored:
        the records (key, value) of its changelog, or an object of its own; an empty tuple without state.
        """

    @abstractmethod
    def revoke(self, partition: Partition) -> None:
        """Drop the state of a partition. Its next owner processes again what was not committed."""

    @abstractmethod
    def process(self, batch: Batch, now: int) -> Iterable[OutputRecord]:
        """Process the next records of a partition and return the outputs.

        The engine holds all outputs of a batch in memory before it sends them.
        """

    @abstractmethod
    def flush(self, now: int) -> Iterable[OutputRecord]:
        """Return the outputs that must be in this commit.

        The engine sends them while it iterates over the result. Return a generator if they may not fit into memory.
        """

    @property
    def wants_commit(self) -> bool:
        """Whether the step holds so much uncommitted state that the next commit should not wait for its interval."""
        return False

    stops_for_commit: bool = False
    """Whether no batch is processed from the time at which `wants_commit` becomes true until that commit."""

    @property
    def blocked(self) -> frozenset[Partition]:
        """Assigned partitions that must not be read on for now, because they are ahead of others.

        The engine reads it after each batch and each flush. Batches that are in flight are still processed.
        """
        return frozenset()

    @property
    def stalled(self) -> str | None:
        """Reason for which the step makes no progress until a user acts, for the readiness of the process; or None."""
        return None

    waits: Callable[[], tuple[str, ...]] = tuple
    """Returns what partitions wait for; set by the stage if its records need schemas of a registry."""

    @property
    def waiting(self) -> tuple[str, ...]:
        """What a step that is ready waits for, as texts for users. Any thread may read it."""
        return self.waits()

    @abstractmethod
    def checkpoint(self, partition: Partition) -> str:
        """Return the checkpoint of a partition: what `assign` needs to continue, in at most 3,850 characters."""

    @abstractmethod
    def watermark(self, partition: Partition) -> int | None:
        """Return the watermark of a partition in ms; None until every source partition has reported one."""

    def idle(self, partition: Partition) -> bool:  # noqa: ARG002 - a step without event time has no idle partitions
        """Return whether a partition is idle: its watermark does not advance and holds no window open."""
        return False

    def max_event_time(self, partition: Partition) -> int | None:  # noqa: ARG002 - a step that sees no time has none
        """Return the largest event time in ms that this object has seen in a partition; None before the first."""
        return None

    def collect_metrics(self) -> Iterable[Sample | HistogramSample]:
        """Return the samples of this stage's own metrics. Called between two batches at each scrape."""
        return ()

    @abstractmethod
    def finished(self, partition: Partition) -> bool:
        """Return whether a bounded run had reached the end of a partition at the last flush."""

    def end_of_partition(self, partition: Partition, now: int) -> None:
        """Handle that the consumer has reached the current end of a partition."""

    def up_to_date(self, partition: Partition, now: int) -> None:
        """Handle that all records are processed that a partition had at the last commit, and that it gets further ones.

        Called instead of `end_of_partition` and `records_in_flight`.
        """

    def records_in_flight(self, partition: Partition) -> None:
        """Handle that records of a partition are delivered and not processed, such as those that wait for a schema."""

    def set_workers(self, workers: int) -> None:
        """Set the number of workers (W) that receive tuples from now on. Called between two batches."""


class Step(InputStep[int]):
    """The logic of a stage that reads one topic."""

    def key_of(self, partition: TopicPartition) -> int:
        """Return the number of the partition."""
        return partition.partition

    def label_of(self, partition: TopicPartition) -> str:
        """Return the number of the partition, such as `3`."""
        return str(partition.partition)


class MultiInputStep(InputStep[TopicPartition]):
    """The logic of a stage that reads several topics. `Batch.topic` names the topic of a batch."""

    def key_of(self, partition: TopicPartition) -> TopicPartition:
        """Return the partition."""
        return partition

    def label_of(self, partition: TopicPartition) -> str:
        """Return topic and number of the partition, such as `clicks/3`."""
        return f"{partition.topic}/{partition.partition}"
