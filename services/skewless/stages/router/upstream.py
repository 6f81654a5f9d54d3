"""Follows what a partition of `tuples` reports of its source partitions.

There is a class for pipelines with one source topic (`source.topic`) and one for several (`source.topics`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import msgspec

from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState, WatermarkTracker
from skewless.errors import BadRecordError, ConfigurationError
from skewless.stages.source_topics import NO_TOPIC, WATERMARK_BYTES
from skewless.wire.headers import sources_of, state_after
from skewless.wire.record import Headers
from skewless.wire.topic_partition import TopicPartition


class Upstream(ABC):
    """The source partitions whose tuples one partition of `tuples` contains."""

    @property
    @abstractmethod
    def state(self) -> WatermarkState:
        """Combined watermark, and whether all source partitions are idle."""

    @abstractmethod
    def update_of(self, headers: Headers) -> Callable[[], None]:
        """Return a function that applies the reports of a record. Raises BadRecordError if they are invalid."""

    @abstractmethod
    def checkpoint(self) -> str:
        """Return the checkpoint from which this object can be built again."""


class OneSource(Upstream):
    """The source partition with the same number."""

    def __init__(self, partition: int, checkpoint: str | None) -> None:
        self._partition = partition
        self._state = NOTHING_REPORTED
        if checkpoint:
            try:
                self._state = msgspec.json.decode(checkpoint, type=WatermarkState)
            except msgspec.ValidationError:
                raise ConfigurationError(
                    "source.topic: the pipeline has run with source.topics; set it back, with the one topic if there "
                    "is only one, or give the pipeline another name"
                ) from None

    @property
    def state(self) -> WatermarkState:
        """The state of the source partition."""
        return self._state

    def update_of(self, headers: Headers) -> Callable[[], None]:
        """Return a function that applies the report of a record."""
        state = state_after(headers, self._partition, self._state)

        def update() -> None:
            self._state = state

        return update

    def checkpoint(self) -> str:
        """Return the state."""
        return msgspec.json.encode(self._state).decode()


class _Checkpoint(NamedTuple):
    """Checkpoint of several source partitions."""

    counts: dict[str, int]
    """Number of source partitions by topic."""
    watermarks: str
    """Their watermarks and idle flags, in the order of `counts`; empty if there are none."""
    last: int | None
    """Last combined watermark."""


class SeveralSources(Upstream):
    """Source partitions of several topics: those whose number modulo `partitions` is that of the partition.

    They are known from the reports. A new one has no watermark, so the combined watermark waits for it.
    """

    def __init__(self, partition: int, partitions: int, checkpoint: str | None) -> None:
        self._partition = partition
        self._partitions = partitions
        self._counts: dict[str, int] = {}
        """Number of source partitions by topic. NO_TOPIC is there only if there is no other one."""
        self._tracker: WatermarkTracker | None = None
        """Watermarks of these source partitions, in this order; None if there are none."""
        self._last: int | None = None
        """Last combined watermark, without the end of a bounded run."""
        if checkpoint:
            self._restore(checkpoint)

    def _restore(self, checkpoint: str) -> None:
        items = msgspec.json.decode(checkpoint)
        if not isinstance(items[0], dict):  # the pipeline had `source.topic` then
            self._apply({TopicPartition(NO_TOPIC, self._partition): msgspec.convert(items, WatermarkState)})
            return
        committed = msgspec.convert(items, _Checkpoint)
        self._counts, self._last = dict(committed.counts), committed.last
        if self._counts:
            self._tracker = WatermarkTracker(sum(self._counts.values()))
            self._tracker.decode(committed.watermarks)

    @property
    def state(self) -> WatermarkState:
        """Combined state. While a source partition has no watermark, it is the last combined watermark, not idle."""
        combined = self._combined()
        return WatermarkState(self._last) if combined == NOTHING_REPORTED else combined

    def _combined(self) -> WatermarkState:
        return NOTHING_REPORTED if self._tracker is None else self._tracker.state()

    def update_of(self, headers: Headers) -> Callable[[], None]:
        """Return a function that applies the reports of a record."""
        reports = sources_of(headers) or self._report_of_one_topic(headers)
        for topic, partition in reports:
            if partition % self._partitions != self._partition:
                raise BadRecordError(f"source partition {topic}/{partition} does not belong to this partition")
        return partial(self._apply, reports)

    def _report_of_one_topic(self, headers: Headers) -> dict[TopicPartition, WatermarkState]:
        """Return the report of a record that was written while the pipeline had `source.topic`."""
        state = state_after(headers, self._partition, NOTHING_REPORTED)
        return {} if state == NOTHING_REPORTED else {TopicPartition(NO_TOPIC, self._partition): state}

    def _apply(self, reports: Mapping[TopicPartition, WatermarkState]) -> None:
        counts = dict(self._counts)
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
        self._last = self._last if combined in (None, MAX_WATERMARK) else combined

    def _count(self, counts: dict[str, int]) -> None:
        """Set the numbers of source partitions. Those that were not known before have no watermark."""
        if counts == self._counts:
            return
        tracker = WatermarkTracker(sum(counts.values()))
        if self._tracker is not None:
            first = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
            # The topic NO_TOPIC is left out.
            positions = [
                first[topic] + number if topic in first else None
                for topic, count in self._counts.items()
                for number in range(count)
            ]
            tracker.take_over(self._tracker, positions)
        self._counts, self._tracker = counts, tracker

    def checkpoint(self) -> str:
        """Return the source partitions with their watermarks."""
        watermarks = "" if self._tracker is None else self._tracker.encode(WATERMARK_BYTES)
        return msgspec.json.encode(_Checkpoint(self._counts, watermarks, self._last)).decode()
