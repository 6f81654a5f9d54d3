"""Records of a source partition become tuples of the same partition; late is decided here, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.watermark import END_OF_TIME, NOTHING_REPORTED, SourceClock, WatermarkState
from skewless.public_records import LateTuple
from skewless.records import (
    TUPLES,
    Batch,
    Output,
    dead_letter,
    fact_timestamp,
    headers_with,
    progress,
    tuple_records,
    tuples_of,
)
from skewless.splitter.formats.base import Format
from skewless.splitter.judgement import Judgement, TimeRules, judge
from skewless.splitter.slices import slices
from skewless.step import Step


class _Checkpoint(NamedTuple):
    """Saved with the offset of a source partition."""

    max_time: int | None = None
    """Largest event time: late must be decided as if there had been no restart."""
    idle: bool = False


@dataclass(slots=True)
class _Source:
    """What is known of one source partition."""

    clock: SourceClock
    heard: int
    """Wall-clock ms of its last records."""
    idle: bool = False
    ended: bool = False
    told: WatermarkState = NOTHING_REPORTED
    """The state that was last reported downstream."""

    def state(self) -> WatermarkState:
        return WatermarkState(END_OF_TIME) if self.ended else WatermarkState(self.clock.mark(), self.idle)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitterRules(TimeRules):
    """How the splitter judges time and reads values; `idle_timeout_ms` None means that silence says nothing."""

    idle_timeout_ms: int | None
    drain: bool
    decimals: int = 0
    kafka_time: bool = True
    """Whether the event time is the records' Kafka timestamp; False where a field has it."""


class SplitterStep(Step):
    """Parses records, judges their time, writes tuples to the partition of `tuples` that has the source's number."""

    def __init__(self, record_format: Format, rules: SplitterRules, source_topic: str) -> None:
        self._format = record_format
        self._rules = rules
        self._topic = source_topic
        self._sources: dict[int, _Source] = {}

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002
        """Continue from the committed checkpoint; the first flush reports its state again."""
        saved = msgspec.json.decode(position, type=_Checkpoint) if position else _Checkpoint()
        # A partition that was idle stays idle until it has a record. As an active one it would withhold results for
        # another idle timeout after each restart. Nothing closes earlier, because it was idle before the restart, too.
        idle = saved.idle and self._rules.idle_timeout_ms is not None and not self._rules.drain
        clock = SourceClock(self._rules.lateness_ms, saved.max_time)
        self._sources[partition] = _Source(clock, heard=0, idle=idle)

    def revoke(self, partition: int) -> None:
        """Forget the partition's clock."""
        self._sources.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[Output]:
        """Emit tuples, late tuples and dead letters of a batch."""
        source = self._sources[batch.partition]
        source.heard, source.idle, source.ended = now, False, False
        for part in slices(batch):
            yield from self._split(part, source, now)

    def _split(self, batch: Batch, source: _Source, now: int) -> Iterator[Output]:
        timestamps = batch.timestamps if self._rules.kafka_time else np.zeros(len(batch.values), dtype=np.int64)
        parsed = self._format.parse(batch.values, timestamps)
        before = source.clock.max_time
        judged = judge(parsed, self._rules, source.clock, now)
        for index, reason in judged.bad.items():
            yield dead_letter(self._topic, batch, index, reason)
        if judged.late.any():
            yield from self._late(batch, judged, self._marks_before(parsed.times, judged.good, before))
        yield from self._tuples(batch.partition, source, judged)

    def _tuples(self, partition: int, source: _Source, judged: Judgement) -> Iterator[Output]:
        keys, values, times = judged.tuples()
        if not len(times):
            return
        self.tuples += len(times)
        source.told = source.state()
        marks = headers_with(TUPLES, {partition: source.told})
        yield from tuple_records("tuples", partition, tuples_of(keys.dictionary_encode(), values, times), marks)

    def _marks_before(self, times: NDArray[np.int64], good: NDArray[np.bool_], before: int | None) -> NDArray[np.int64]:
        floor = np.iinfo(np.int64).min if before is None else before
        seen = np.where(good, times, floor)
        running = np.maximum.accumulate(np.concatenate((np.array([floor], dtype=np.int64), seen)))[:-1]
        marks: NDArray[np.int64] = running - self._rules.lateness_ms
        return marks

    def _late(self, batch: Batch, judged: Judgement, marks: NDArray[np.int64]) -> Iterator[Output]:
        parsed, scale = judged.parsed, 10**self._rules.decimals
        for index in np.flatnonzero(judged.late[parsed.records]):
            record, value = int(parsed.records[index]), int(parsed.values[index])
            fact = LateTuple(
                key=parsed.keys[index],
                value=value if scale == 1 else value / scale,
                time=int(parsed.times[record]),
                mark=int(marks[record]),
                partition=batch.partition,
                offset=batch.offsets[record],
            )
            yield Output("late", msgspec.json.encode(fact), key=fact.key.encode(), timestamp=fact_timestamp(fact.time))

    def end_of_partition(self, partition: int, now: int) -> None:
        """End a bounded run here, or see whether the partition has been silent for long enough to be idle."""
        source = self._sources[partition]
        if self._rules.drain:
            source.ended = True
            return
        source.heard = source.heard or now
        timeout = self._rules.idle_timeout_ms
        if timeout is not None and now - source.heard >= timeout:
            source.idle = True

    def flush(self, now: int) -> Iterable[Output]:  # noqa: ARG002 - what is due was said when it came
        """Tell of time that moved without tuples."""
        outputs: list[Output] = []
        for partition, source in self._sources.items():
            state = source.state()
            if state not in (NOTHING_REPORTED, source.told):
                source.told = state
                outputs += progress("tuples", [partition], {partition: state})
        return outputs

    def position(self, partition: int) -> str:
        """Save the largest event time, and whether the partition is idle."""
        source = self._sources[partition]
        return msgspec.json.encode(_Checkpoint(source.clock.max_time, source.idle)).decode()

    def watermark(self, partition: int) -> int | None:
        """Tell the source partition's mark."""
        return self._sources[partition].state().watermark

    def idle(self, partition: int) -> bool:
        """Return whether the source partition is idle."""
        return self._sources[partition].state().idle

    def event_time(self, partition: int) -> int | None:
        """Largest event time of the source partition."""
        return self._sources[partition].clock.max_time

    def finished(self, partition: int) -> bool:
        """Whether downstream was told of the partition's end."""
        return self._sources[partition].told.watermark == END_OF_TIME
