"""Follows what a partition of `tuples` reports of its source partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import msgspec

from skewless.algorithms.watermark import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    NOTHING_REPORTED,
    WatermarkState,
    WatermarkTracker,
)
from skewless.errors import BadRecordError
from skewless.stages.source_topics import NO_TOPIC, WATERMARK_BYTES
from skewless.wire.headers import sources_of, state_of
from skewless.wire.record import Headers
from skewless.wire.topic_partition import TopicPartition


class _Checkpoint(NamedTuple):
    """Checkpoint that names the source partitions."""

    counts: dict[str, int]
    """Number of source partitions by topic."""
    watermarks: str
    """Their watermarks and idle flags, in the order of `counts`; empty if there are none."""
    last: int | None
    """Last combined watermark."""


class Upstream:
    """The source partitions whose tuples a partition of `tuples` contains: number modulo `partitions` is its number.

    They are known from the reports. A new one has no watermark, so the combined watermark waits for it. A topic that a
    report of all source partitions lacks has been removed. It is forgotten if its partitions are idle or have ended.

    Reports and checkpoints have a compact form without names for the source partition with the same number, if there is
    no other one. Earlier versions read it, too. It is of `topic`, the only source topic (`source.topic`). Without
    `topic`, it is from the time when the pipeline had one.
    """

    def __init__(self, partition: int, partitions: int, checkpoint: str | None, topic: str | None = None) -> None:
        self._partition = partition
        self._partitions = partitions
        self._topic = topic or NO_TOPIC
        self._counts: dict[str, int] = {}
        """Number of source partitions by topic. NO_TOPIC is there only if there is no other one."""
        self._tracker: WatermarkTracker | None = None
        """Watermarks of these source partitions, in this order; None if there are none."""
        self._last: int | None = None
        """Last combined watermark, without the end of a bounded run: MIN_WATERMARK if nothing was reported before."""
        if checkpoint:
            self._restore(checkpoint)

    def _restore(self, checkpoint: str) -> None:
        items = msgspec.json.decode(checkpoint)
        if not isinstance(items[0], dict):
            state = msgspec.convert(items, WatermarkState)
            self._apply({} if state == NOTHING_REPORTED else self._of_compact(state))
            return
        committed = msgspec.convert(items, _Checkpoint)
        self._counts, self._last = dict(committed.counts), committed.last
        if self._counts:
            self._tracker = WatermarkTracker(sum(self._counts.values()))
            self._tracker.decode(committed.watermarks)

    def restart(self) -> None:
        """Note a restart, as `WatermarkTracker.restart`."""
        if self._tracker is not None:
            self._tracker.restart()

    @property
    def state(self) -> WatermarkState:
        """Combined state. While a source partition has no watermark, it is the last combined watermark, not idle."""
        combined = self._combined()
        return WatermarkState(self._last) if combined == NOTHING_REPORTED else combined

    def _combined(self) -> WatermarkState:
        return NOTHING_REPORTED if self._tracker is None else self._tracker.state()

    def update_of(self, headers: Headers) -> Callable[[], None]:
        """Return a function that applies the reports of a record. Raises BadRecordError if they are invalid."""
        named = sources_of(headers)
        reports = named or self._compact_report(headers)
        for topic, partition in reports:
            if partition % self._partitions != self._partition:
                raise BadRecordError(f"source partition {topic}/{partition} does not belong to this partition")
        # A compact report is of the only source partition. Without `topic`, it was written when the pipeline had one.
        names_all = any(topic == NO_TOPIC for topic, _ in named) if named else bool(reports and self._topic)
        return partial(self._apply, reports, names_all=names_all)

    def _compact_report(self, headers: Headers) -> dict[TopicPartition, WatermarkState]:
        """Return the report in the compact form; empty if the record has none."""
        state = state_of(headers, self._partition)
        return {} if state == NOTHING_REPORTED else self._of_compact(state)

    def _of_compact(self, state: WatermarkState) -> dict[TopicPartition, WatermarkState]:
        return {TopicPartition(self._topic, self._partition): state}

    def _apply(self, reports: Mapping[TopicPartition, WatermarkState], *, names_all: bool = False) -> None:
        counts = self._counts_of({topic for topic, _ in reports}) if names_all else dict(self._counts)
        for topic, partition in reports:
            counts[topic] = max(counts.get(topic, 0), partition // self._partitions + 1)
        if len(counts) > 1:
            counts.pop(NO_TOPIC, None)
        self._count(counts)
        first = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
        states = {
            first[topic] + partition // self._partitions: state
            for (topic, partition), state in reports.items()
            if topic in counts
        }
        if self._tracker is not None:
            watermarks = {index: state.watermark for index, state in states.items() if state.watermark is not None}
            self._tracker.update(watermarks, [index for index, state in states.items() if state.idle])
        combined = self._combined().watermark
        if combined == MAX_WATERMARK:
            self._last = MIN_WATERMARK if self._last is None else self._last
        elif combined is not None:
            self._last = combined

    def _counts_of(self, topics: Collection[str]) -> dict[str, int]:
        """Return the numbers of source partitions without those of other topics that are idle or have ended."""
        kept, first = {}, 0
        for topic, count in self._counts.items():
            partitions, first = range(first, first + count), first + count
            if topic in topics or self._tracker is None or not self._tracker.are_inactive(partitions):
                kept[topic] = count
        return kept

    def _count(self, counts: dict[str, int]) -> None:
        """Set the numbers of source partitions. Those that were not known before have no watermark."""
        if counts == self._counts:
            return
        tracker = WatermarkTracker(sum(counts.values()))
        if self._tracker is not None:
            first = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
            # NO_TOPIC and topics that have been removed are left out.
            positions = [
                first[topic] + number if topic in first else None
                for topic, count in self._counts.items()
                for number in range(count)
            ]
            tracker.take_over(self._tracker, positions)
        self._counts, self._tracker = counts, tracker

    def checkpoint(self) -> str:
        """Return the checkpoint from which this object can be built again."""
        if self._topic and self._counts.keys() <= {self._topic} and self._counts.get(self._topic, 0) <= 1:
            return msgspec.json.encode(self._combined()).decode()
        watermarks = "" if self._tracker is None else self._tracker.encode(WATERMARK_BYTES)
        return msgspec.json.encode(_Checkpoint(self._counts, watermarks, self._last)).decode()
