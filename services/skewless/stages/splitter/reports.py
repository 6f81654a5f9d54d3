"""Reports of a splitter about its source partitions, and the partitions of `tuples` to which it writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState
from skewless.stages.source_topics import NO_TOPIC, check_source_topics
from skewless.wire.headers import WATERMARK, report_of, report_of_sources, schema_header
from skewless.wire.record import OutputRecord, OwnHeaders
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import LATE_HEADERS, LateHeaders


class SourceReports:
    """Headers that report the states of source partitions.

    Partition p of each source topic is written to partition p mod `targets` of `tuples`. The first report to a
    partition of `tuples` after an assignment names all source partitions that are written there, also those of other
    processes, and NO_TOPIC, which says that they are all. So the router waits for each of them, and it learns of topics
    and partitions that are added or removed later at a position of the stream that is committed.

    `topic` is the source topic if it is the only one (`source.topic`). While only one of its partitions is written to a
    partition of `tuples`, the reports have the compact form without its name, which earlier versions read, too.
    """

    def __init__(self, targets: int, topic: str | None = None) -> None:
        self._targets = targets
        self._topic = topic
        self._counts: Mapping[str, int] = {}
        self._announced: set[int] = set()
        """Partitions of `tuples` that have a report with all of their source partitions."""
        self._without_source: dict[int, WatermarkState] = {}
        """Last reports for partitions of `tuples` without a source partition."""

    def label_of(self, source: TopicPartition) -> str:
        """Return the name of a source partition in metrics and settings: its number if there is only one topic."""
        return str(source.partition) if source.topic == self._topic else f"{source.topic}/{source.partition}"

    def target_of(self, source: TopicPartition) -> int:
        """Return the partition of `tuples` to which the tuples of a source partition are written."""
        return source.partition % self._targets

    def observe_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Note the number of partitions of each source topic. Raises ConfigurationError if they exceed a limit."""
        check_source_topics(partition_counts, self._targets)
        self._counts = dict(partition_counts)

    def begin(self) -> None:
        """Note that earlier reports may not have been committed: report everything again."""
        self._announced.clear()
        self._without_source.clear()

    def is_due(self, target: int) -> bool:
        """Return whether a partition of `tuples` needs a report of all source partitions, although none has changed."""
        return target not in self._announced and not self._is_compact(target)

    def report(self, source: TopicPartition, state: WatermarkState) -> OwnHeaders:
        """Return the headers that report the state of a source partition to its partition of `tuples`."""
        target = self.target_of(source)
        if self._is_compact(target):
            return report_of({source.partition: state})
        states: dict[TopicPartition, WatermarkState] = {}
        if target not in self._announced:
            self._announced.add(target)
            everything = TopicPartition(NO_TOPIC, target)
            states = dict.fromkeys([*self._sources_of(target), everything], NOTHING_REPORTED)
        return report_of_sources(states | {source: state})

    def _is_compact(self, target: int) -> bool:
        """Return whether only the source partition with the same number is written to a partition of `tuples`."""
        return self._topic is not None and self._counts.get(self._topic, 0) <= target + self._targets

    def _sources_of(self, target: int) -> Iterator[TopicPartition]:
        for topic, count in sorted(self._counts.items()):
            yield from (TopicPartition(topic, number) for number in range(target, count, self._targets))

    def late_headers(self, source: TopicPartition) -> OwnHeaders:
        """Return the headers of late tuples of a source partition."""
        own = msgspec.to_builtins(LateHeaders(source.topic))
        return [*LATE_HEADERS, *((name, text.encode()) for name, text in own.items())]

    def without_source(self, ended: Mapping[TopicPartition, bool]) -> Iterator[OutputRecord]:
        """Yield a report for each partition of `tuples` that has no source partition: it is idle, or has ended.

        `ended` has the assigned source partitions, and whether they have ended.
        """
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
