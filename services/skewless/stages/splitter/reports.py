"""Names of the source partitions of a splitter, their partitions of `tuples`, and the reports that it writes there.

There is a class for pipelines with one source topic (`source.topic`) and one for several (`source.topics`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic

import msgspec

from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState
from skewless.engine.step import Partition
from skewless.stages.source_topics import NO_TOPIC, check_source_topics
from skewless.wire.headers import WATERMARK, report_of, report_of_sources, schema_header
from skewless.wire.record import OutputRecord, OwnHeaders
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import LATE_HEADERS, LateHeaders


class SourceReports(ABC, Generic[Partition]):
    """Names of source partitions, and the headers that report their states."""

    @abstractmethod
    def key_of(self, source: TopicPartition) -> Partition:
        """Return what the step calls a source partition."""

    @abstractmethod
    def source_of(self, partition: Partition) -> TopicPartition:
        """Return the source partition that the step calls so."""

    @abstractmethod
    def target_of(self, partition: Partition) -> int:
        """Return the partition of `tuples` to which the tuples of a source partition are written."""

    def observe_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Note the number of partitions of each source topic."""

    def begin(self) -> None:
        """Note that earlier reports may not have been committed."""

    def is_due(self, target: int) -> bool:  # noqa: ARG002 - for several topics
        """Return whether a partition of `tuples` needs a report although no state has changed."""
        return False

    @abstractmethod
    def report(self, partition: Partition, state: WatermarkState) -> OwnHeaders:
        """Return the headers that report the state of a source partition to its partition of `tuples`."""

    def late_headers(self, partition: Partition) -> OwnHeaders:  # noqa: ARG002 - for several topics
        """Return the headers of late tuples of a source partition."""
        return LATE_HEADERS

    def without_source(self, ended: Mapping[Partition, bool]) -> Iterator[OutputRecord]:  # noqa: ARG002 - as above
        """Yield reports for the partitions of `tuples` without a source partition.

        `ended` has the assigned source partitions, and whether they have ended.
        """
        yield from ()


class OneTopic(SourceReports[int]):
    """One source topic. A source partition and its partition of `tuples` have the same number."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def key_of(self, source: TopicPartition) -> int:
        """Return the number of the partition."""
        return source.partition

    def source_of(self, partition: int) -> TopicPartition:
        """Return the partition with its topic."""
        return TopicPartition(self._topic, partition)

    def target_of(self, partition: int) -> int:
        """Return the same number."""
        return partition

    def report(self, partition: int, state: WatermarkState) -> OwnHeaders:
        """Return the headers that report the state by the number of the partition."""
        return report_of({partition: state})


class SeveralTopics(SourceReports[TopicPartition]):
    """Several source topics. Partition p of each of them is written to partition p mod `targets` of `tuples`.

    The first report to a partition of `tuples` after an assignment names all source partitions that are written there,
    also those of other processes. So the router waits for each of them, and it learns of topics and partitions that are
    added later at a position of the stream that is committed.
    """

    def __init__(self, targets: int) -> None:
        self._targets = targets
        self._counts: Mapping[str, int] = {}
        self._announced: set[int] = set()
        """Partitions of `tuples` that have a report with all of their source partitions."""
        self._without_source: dict[int, WatermarkState] = {}
        """Last reports for partitions of `tuples` without a source partition."""

    def key_of(self, source: TopicPartition) -> TopicPartition:
        """Return the partition."""
        return source

    def source_of(self, partition: TopicPartition) -> TopicPartition:
        """Return the partition."""
        return partition

    def target_of(self, partition: TopicPartition) -> int:
        """Return the number of the partition, modulo the number of partitions of `tuples`."""
        return partition.partition % self._targets

    def observe_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Note the number of partitions of each source topic. Raises ConfigurationError if they exceed a limit."""
        check_source_topics(partition_counts, self._targets)
        self._counts = dict(partition_counts)

    def begin(self) -> None:
        """Report everything again."""
        self._announced.clear()
        self._without_source.clear()

    def is_due(self, target: int) -> bool:
        """Return whether the source partitions of a partition of `tuples` must be named."""
        return target not in self._announced

    def report(self, partition: TopicPartition, state: WatermarkState) -> OwnHeaders:
        """Return the header that reports the state by topic and number; the first one names all source partitions."""
        target = self.target_of(partition)
        states: dict[TopicPartition, WatermarkState] = {}
        if target not in self._announced:
            self._announced.add(target)
            states = dict.fromkeys(self._sources_of(target), NOTHING_REPORTED)
        return report_of_sources(states | {partition: state})

    def _sources_of(self, target: int) -> Iterator[TopicPartition]:
        for topic, count in sorted(self._counts.items()):
            yield from (TopicPartition(topic, number) for number in range(target, count, self._targets))

    def late_headers(self, partition: TopicPartition) -> OwnHeaders:
        """Return the headers of late tuples, with the topic."""
        own = msgspec.to_builtins(LateHeaders(partition.topic))
        return [*LATE_HEADERS, *((name, text.encode()) for name, text in own.items())]

    def without_source(self, ended: Mapping[TopicPartition, bool]) -> Iterator[OutputRecord]:
        """Yield a report for each partition of `tuples` that has no source partition: it is idle, or has ended."""
        # One process reports them: the one with the first partition of the first topic.
        first = TopicPartition(min(self._counts, default=NO_TOPIC), 0)
        if first not in ended:
            return
        state = WatermarkState(MAX_WATERMARK) if ended[first] else WatermarkState(idle=True)
        for target in range(max(self._counts.values()), self._targets):
            if self._without_source.get(target) != state:
                self._without_source[target] = state
                headers = [schema_header(WATERMARK), *report_of_sources({TopicPartition(NO_TOPIC, target): state})]
                yield OutputRecord("tuples", None, partition=target, headers=headers)
