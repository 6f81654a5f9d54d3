"""Step of the join: parses the records of both topics, and joins the partitions with the same number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from skewless.algorithms.duration_histogram import Histogram
from skewless.algorithms.join.alignment import Alignment, slowest
from skewless.algorithms.join.held_records import NO_RECORDS, Records
from skewless.algorithms.join.window_join import END_OF_TIME, JoinRules, Side, SideState, WindowJoin
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState, WatermarkTracker, encoded_upstreams
from skewless.engine.step import HistogramSample, MultiInputStep, Sample
from skewless.errors import BadRecordError, BrokerError
from skewless.parsing.batch_slices import slices
from skewless.parsing.join_records import SideRules, read_records
from skewless.stages.join.metrics import WAITS
from skewless.stages.source_partition import PartitionActivity
from skewless.wire import join_changelog
from skewless.wire.aggregates import Encode, encode_json
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import idle_of, update_watermarks, watermarks_of
from skewless.wire.join_changelog import Block, JoinCheckpoint
from skewless.wire.joined import JOINED_HEADERS, joined_records, late_records, unmatched_records
from skewless.wire.record import Batch, Headers, OutputRecord, OwnHeaders
from skewless.wire.timed_records import Origins, read_timed_records
from skewless.wire.topic_partition import TopicPartition

ASK_INTERVAL_MS = 5_000
"""Time between two requests of a join that cannot read on."""
SILENT_MS = 60_000
"""Time without a higher watermark after which a partition is silent. In a join that keeps up, all partitions are at
their ends after most commits, and the newest records wait for those that come next."""
RECORD_BYTES = 300
"""Memory of a held record besides its value."""
UNMATCHED_TOPICS = {Side.LEFT: "unmatched-left", Side.RIGHT: "unmatched-right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStepRules:
    """Settings of the join."""

    sides: Mapping[Side, SideRules]
    topics: Mapping[Side, str]
    """Full names of the user's topics."""
    join: JoinRules
    emit_unmatched_left: bool
    max_drift_ms: int
    buffer_records: int
    buffer_bytes: int
    idle_timeout_ms: int | None
    """Time without records after which a partition is idle. None: never."""
    max_ahead_ms: int
    drain: bool
    merged_partitions: Mapping[Side, int] | None = None
    """Number of partitions of the user's topics whose records each input partition merges. None: it merges none.

    The smaller topic may get more partitions."""
    encode: Encode = encode_json
    """Returns the value of a pair."""
    headers: OwnHeaders = field(default_factory=lambda: JOINED_HEADERS)
    """Headers of pairs."""


@dataclass(frozen=True, slots=True)
class JoinState:
    """Restored state of an input partition."""

    held: Records = NO_RECORDS
    empty_blocks: Sequence[int] = ()
    """Blocks of the changelog without held records."""
    processed: Collection[int] = ()
    """Partitions of the user's topic that are processed to their ends, in a bounded run that merges them."""

    def __len__(self) -> int:
        """Return the number of held records and of empty blocks."""
        return len(self.held.times) + len(self.empty_blocks)


@dataclass(slots=True, kw_only=True)
class _Source(PartitionActivity):
    """State of one input partition."""

    start: tuple[SideState, Records]
    """State at the last commit, until the partition of the other side is assigned as well."""
    version: int
    """Version of its blocks in the changelog."""
    blocks: dict[int, bytes] = field(default_factory=dict)
    """Bitmaps in the changelog, by number of the block."""
    merged: WatermarkTracker | None = None
    """Watermarks of the partitions that it merges; None if it merges none."""
    ended_before: frozenset[int] = frozenset()
    """Those that had ended before the assignment, and have no records that were not written to this partition then."""
    at_end: bool = False
    """Whether the last flush found everything read."""
    last_watermark: int | None = None
    """Watermark at the last flush."""
    unchanged_since_ms: int = 0
    """Wall-clock time since which flushes found this watermark. 0: before the first one."""

    def observe_watermark(self, watermark: int | None, now: int) -> None:
        """Note the watermark at a flush."""
        if watermark != self.last_watermark or not self.unchanged_since_ms:
            self.last_watermark, self.unchanged_since_ms = watermark, now


class _Fill(NamedTuple):
    """How full the buffer of held records is."""

    setting: str
    """Setting with the bound that is nearer."""
    used: int
    limit: int


class JoinStep(MultiInputStep):
    """Joins each left partition with the right partition of the same number."""

    def __init__(self, rules: JoinStepRules) -> None:
        self._rules = rules
        self._side_of = {side_rules.topic: side for side, side_rules in rules.sides.items()}
        self._sources: dict[TopicPartition, _Source] = {}
        self._joins: dict[int, WindowJoin] = {}
        self._alignment: Alignment[TopicPartition] = Alignment(rules.max_drift_ms, rules.buffer_records)
        self._blocked: frozenset[TopicPartition] = frozenset()
        self._stalled: str | None = None
        self._silent: list[TopicPartition] = []
        self._waiting: tuple[str, ...] = ()
        self.first_states: Callable[[Side], Mapping[int, WatermarkState]] = lambda _side: {}
        """Returns what is known of partitions of the user's topic before their first report is read: a bound of the
        times of all their records, or that they are idle without records. Set by the stage if partitions are merged."""
        self._asked_ms = 0
        self._pairs = 0
        self._waits = Histogram(WAITS)
        self._unmatched: Counter[Side] = Counter()
        self._late: Counter[Side] = Counter()

    # Assignment

    def assign(self, partition: TopicPartition, checkpoint: str | None, state: JoinState | tuple[()]) -> str | None:
        """Restore the committed checkpoint and the held records."""
        committed = join_changelog.decode_checkpoint(checkpoint)
        restored = state if isinstance(state, JoinState) else JoinState()
        start = SideState(committed.max_time, committed.floor), restored.held
        source = _Source(start=start, version=committed.version, blocks=dict.fromkeys(restored.empty_blocks, b""))
        if self._rules.merged_partitions is not None:
            source.merged = WatermarkTracker(self._rules.merged_partitions[self._side(partition)])
            if committed.sources:
                # A broker that does not know a new partition yet gives fewer partitions than have reported.
                source.merged.grow(encoded_upstreams(committed.sources))
                source.merged.decode(committed.sources)
            # An earlier bounded run may have ended partitions that have new records now.
            ended = source.merged.ended()
            source.merged.forget(ended)
            if not self._becomes_idle:
                source.merged.forget_idle()
            source.ended_before = ended & set(restored.processed)
        self._sources[partition] = source
        opposite = self._partition(self._side(partition).opposite, partition.partition)
        if opposite in self._sources:
            self._start(partition.partition)
        held = len(restored.held.times)
        return f"restored {held} held records of {partition.topic}" if held else None

    def _start(self, number: int) -> None:
        sources = {side: self._sources[self._partition(side, number)] for side in Side}
        join = WindowJoin(
            self._rules.join,
            sources[Side.LEFT].start,
            sources[Side.RIGHT].start,
            external_watermarks=self._rules.merged_partitions is not None,
        )
        for side, source in sources.items():
            source.start = (SideState(), NO_RECORDS)
            restored = join.held(side).changed_blocks()
            source.blocks.update(restored)
            # At least once, a block may have a later version that was never committed. The next commit could be of that
            # version, so it replaces all of them.
            join.held(side).include_blocks(restored)
        self._joins[number] = join

    def revoke(self, partition: TopicPartition) -> None:
        """Drop the state of the partition, and of its pair."""
        self._sources.pop(partition, None)
        self._joins.pop(partition.partition, None)
        self._blocked, self._stalled, self._silent, self._waiting = frozenset(), None, [], ()
        # The next assignment may hold more records. They must not count as an excess over those of this one.
        self._alignment = Alignment(self._rules.max_drift_ms, self._rules.buffer_records)

    def _side(self, partition: TopicPartition) -> Side:
        return self._side_of[partition.topic]

    def _partition(self, side: Side, number: int) -> TopicPartition:
        return TopicPartition(self._rules.sides[side].topic, number)

    def _join_of(self, partition: TopicPartition) -> WindowJoin:
        join = self._joins.get(partition.partition)
        if join is None:
            opposite = self._partition(self._side(partition).opposite, partition.partition)
            raise BrokerError(
                f"topic {partition.topic} partition {partition.partition} is assigned to this process, but topic "
                f"{opposite.topic} partition {opposite.partition} is not: the join needs both. Give both topics the "
                "same number of partitions"
            )
        return join

    @property
    def _becomes_idle(self) -> bool:
        """Whether silent partitions follow the other topic."""
        return self._rules.idle_timeout_ms is not None and not self._rules.drain

    # Records

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Emit pairs, unmatched records, late records and dead letters."""
        partition = TopicPartition(batch.topic, batch.partition)
        join, source, side = self._join_of(partition), self._sources[partition], self._side(partition)
        source.at_end = False
        for batch_slice in slices(batch):
            records, origins, invalid = self._read(batch_slice, side, source, now)
            if len(records.times) or source.merged is not None:
                source.observe_records(now)
            for index, reason in sorted(invalid.items()):
                yield dead_letter(batch.topic, batch_slice, index, f"{side.value}: {reason}")
            yield from self._add(batch.partition, side, join, records, origins)
            if source.merged is not None:
                _advance_merged(join, side, source, source.merged)
            for expiring in Side:
                yield from self._unmatched_records(batch.partition, expiring, join.expire(expiring))
        self._align(partition)

    def _read(self, batch: Batch, side: Side, source: _Source, now: int) -> tuple[Records, Origins, Mapping[int, str]]:
        """Return the valid records, where they are, and the reasons of the others. Reads the reported watermarks."""
        offsets = np.fromiter(batch.offsets, dtype=np.int64, count=len(batch.values))
        if source.merged is None:
            records, refused = read_records(self._rules.sides[side], batch, offsets, now + self._rules.max_ahead_ms)
            return records, Origins(np.full(len(records.times), batch.partition), records.offsets), refused
        records, origins, reports, invalid = read_timed_records(batch.keys, batch.values, offsets)
        headers = batch.headers if reports else ()
        for row in reports:
            try:
                self._grow(source.merged, headers[row])
                update_watermarks(source.merged, headers[row])
            except BadRecordError as error:
                invalid[row] = str(error)
            else:
                source.ended_before -= watermarks_of(headers[row]).keys()
        if reports and not self._rules.drain:
            # A bounded run that was killed may have left reports of its end, which no join had read.
            source.merged.forget(source.merged.ended())
        return records, origins, invalid

    def _grow(self, merged: WatermarkTracker, headers: Headers) -> None:
        """Add partitions that the user's topic has got since the start, up to as many as the other one has."""
        reported = max(watermarks_of(headers).keys() | idle_of(headers), default=0) + 1
        if reported <= max((self._rules.merged_partitions or {}).values(), default=0):
            merged.grow(reported)

    def _add(
        self, number: int, side: Side, join: WindowJoin, records: Records, origins: Origins
    ) -> Iterator[OutputRecord]:
        rules = self._rules.sides[side]
        added = join.add(side, records)
        self.tuples += len(records.times)
        self._pairs += len(added.left.times)
        self._waits.observe_each((added.right.times - added.left.times) / 1000)
        if added.late.any():
            partitions, offsets = (column[added.late] for column in origins)
            late = records.take(added.late)._replace(offsets=offsets)
            self._late[side] += len(late.times)
            watermarks = added.watermarks[added.late].tolist()
            yield from late_records(side.value, late, partitions.tolist(), watermarks, is_json=rules.is_json)
        yield from joined_records(
            number,
            added.left,
            added.right,
            left_is_json=self._rules.sides[Side.LEFT].is_json,
            right_is_json=self._rules.sides[Side.RIGHT].is_json,
            encode=self._rules.encode,
            headers=self._rules.headers,
        )

    def _unmatched_records(self, number: int, side: Side, records: Records) -> Iterator[OutputRecord]:
        self._unmatched[side] += len(records.times)
        if side is Side.RIGHT or self._rules.emit_unmatched_left:
            is_json = self._rules.sides[side].is_json
            yield from unmatched_records(UNMATCHED_TOPICS[side], number, records, is_json=is_json)

    # Alignment

    def _fill(self) -> _Fill:
        sides = [join.held(side) for join in self._joins.values() for side in Side]
        records = sum(map(len, sides))
        in_bytes = RECORD_BYTES * records + sum(held.bytes for held in sides)
        bounds = (
            _Fill("buffer_records", records, self._rules.buffer_records),
            _Fill("buffer_bytes", in_bytes, self._rules.buffer_bytes),
        )
        return max(bounds, key=lambda bound: bound.used / bound.limit)

    def _align(self, read: TopicPartition | None = None) -> None:
        fill = self._fill()
        watermarks = {
            partition: self._join_of(partition).watermark(self._side(partition))
            for partition, source in self._sources.items()
            if source.is_active and not self._is_read(partition)
        }
        # The alignment counts records: bytes count as the same part of its bound.
        decision = self._alignment.decide(watermarks, fill.used * self._rules.buffer_records // fill.limit, read)
        self._blocked = decision.partitions
        self._stalled = self._stall(fill, slowest(watermarks)) if decision.stuck else None

    def _is_read(self, partition: TopicPartition) -> bool:
        """Return whether everything of both sides is read. Nothing that arrives later is waited for here."""
        self._join_of(partition)  # an error if the other side is assigned to another process
        return all(self._sources[self._partition(side, partition.partition)].at_end for side in Side)

    def _stall(self, fill: _Fill, waited_for: Iterable[TopicPartition]) -> str:
        """Return why nothing is read on. `waited_for` are the slowest partitions."""
        places = sorted(
            f"topic {self._rules.topics[self._side(partition)]} {_numbers(merged.slowest())}"
            for partition in waited_for
            if (merged := self._sources[partition].merged) is not None
        )
        advice = "Set"
        if places:
            otherwise = "wait for" if self._becomes_idle else "set"
            advice = (
                f"They wait for {' and '.join(dict.fromkeys(places))}. If no records come there, write some, or "
                f"{otherwise} join.idle_timeout_s. Otherwise set"
            )
        return (
            f"the records of one window do not fit: {fill.used} of {fill.limit} of join.{fill.setting} are in use. "
            f"{advice} join.{fill.setting} to at least {2 * fill.used}, or use shorter spans in join.sync_delay_s and "
            "join.window_s"
        )

    def _ask(self, now: int) -> None:
        """Look for partitions whose first report is behind records that are not read on, so that it is never read."""
        if self._stalled is None or abs(now - self._asked_ms) < ASK_INTERVAL_MS:  # the clock may be set back
            return
        self._asked_ms = now
        behind = [
            (partition, source, source.merged)
            for partition, source in self._sources.items()
            if source.merged is not None and source.merged.watermark() is None
        ]
        # An answer is given once, and is for all partitions of its side.
        asked = {self._side(partition) for partition, _, _ in behind}
        known = {side: self.first_states(side) for side in asked}
        for partition, source, merged in behind:
            side = self._side(partition)
            states = {number: known[side][number] for number in merged.slowest() if number in known[side]}
            merged.update(
                {number: state.watermark for number, state in states.items() if state.watermark is not None},
                [number for number, state in states.items() if state.idle and self._becomes_idle],
            )
            _advance_merged(self._join_of(partition), side, source, merged)

    @property
    def blocked(self) -> frozenset[TopicPartition]:
        """Partitions that are ahead of slower ones."""
        return self._blocked

    @property
    def stalled(self) -> str | None:
        """Whether the records of one window do not fit."""
        return self._stalled

    @property
    def waiting(self) -> tuple[str, ...]:
        """The silent partitions, as of the last flush, and those that wait for a schema."""
        return (*self._waiting, *self.waits())

    # Commits

    def end_of_partition(self, partition: TopicPartition, now: int) -> None:
        """End the partition in a bounded run. Otherwise mark it idle if no record had a time for the idle timeout."""
        source = self._sources[partition]
        source.at_end = True
        if source.merged is not None:
            # The stage that writes the partition decides what is idle, and what has ended.
            if source.ended_before:
                source.merged.update(dict.fromkeys(source.ended_before, MAX_WATERMARK))
                source.ended_before = frozenset()
            _advance_merged(self._join_of(partition), self._side(partition), source, source.merged)
            # Only here: before the end, the report that ends the idle time of these records may be unread. A bounded
            # run reads all records before it decides, so what was idle in an earlier run is not.
            source.idle = self._becomes_idle and source.merged.state().idle
            return
        source.observe_end(now, drain=self._rules.drain, idle_timeout_ms=self._rules.idle_timeout_ms)

    def up_to_date(self, partition: TopicPartition, now: int) -> None:
        """Mark the partition idle if it gets records, but none had a time for the idle timeout."""
        source = self._sources[partition]
        if source.merged is None and self._becomes_idle:
            source.observe_time(now, self._rules.idle_timeout_ms)

    def records_in_flight(self, partition: TopicPartition) -> None:
        """Note that the partition has records: it is not idle while they are in flight."""
        source = self._sources[partition]
        source.observe_in_flight()
        source.at_end = False

    def flush(self, now: int) -> Iterable[OutputRecord]:
        """Emit unmatched records, and write the changes of what is held to the changelog."""
        for partition in self._sources:
            self._join_of(partition)
        self._ask(now)
        for number, join in self._joins.items():
            sources = {side: self._sources[self._partition(side, number)] for side in Side}
            _advance_idle(join, sources)
            for side in Side:
                ended = sources[side.opposite].ended
                expired = join.expire_all(side) if ended else join.expire(side)
                yield from self._unmatched_records(number, side, expired)
            for side, source in sources.items():
                source.observe_watermark(join.watermark(side), now)
                yield from self._changelog(number, side, source, join)
        self._align()
        self._silent = [partition for partition in self._sources if self._is_silent(partition, now)]
        self._waiting = tuple(map(self._silence, self._silent))

    def _changelog(self, number: int, side: Side, source: _Source, join: WindowJoin) -> Iterator[OutputRecord]:
        changed = join.held(side).changed_blocks()
        empty = [block for block, bitmap in source.blocks.items() if not bitmap and block not in changed]
        for block in empty:
            # One commit later than the empty bitmap: a restore may still need the bitmap before it.
            del source.blocks[block]
            yield join_changelog.tombstone(number, side.value, block)
        if changed or empty:
            source.version += 1
        for block, bitmap in changed.items():
            previous = source.blocks.get(block, b"")
            source.blocks[block] = bitmap
            record = Block(side.value, block, source.version, previous, bitmap)
            yield join_changelog.block_record(number, record)

    def checkpoint(self, partition: TopicPartition) -> str:
        """Return the checkpoint: event time, version of the changelog, and whether a bounded run has ended here."""
        state = self._join_of(partition).state(self._side(partition))
        source = self._sources[partition]
        merged = "" if source.merged is None else source.merged.encode()
        checkpoint = JoinCheckpoint(state.max_time, state.floor, source.version, merged, source.ended)
        return join_changelog.encode_checkpoint(checkpoint)

    # Monitoring

    def watermark(self, partition: TopicPartition) -> int | None:
        """Return the watermark of the partition."""
        if self._sources[partition].ended:
            return END_OF_TIME
        return self._join_of(partition).watermark(self._side(partition))

    def idle(self, partition: TopicPartition) -> bool:
        """Return whether the partition is idle."""
        return self._sources[partition].idle

    def max_event_time(self, partition: TopicPartition) -> int | None:
        """Return the largest event time of the partition in ms."""
        return self._join_of(partition).state(self._side(partition)).max_time

    def finished(self, partition: TopicPartition) -> bool:
        """Return whether both sides have ended, and nothing is held."""
        join = self._join_of(partition)
        ended = all(self._sources[self._partition(side, partition.partition)].ended for side in Side)
        return ended and not any(len(join.held(side)) for side in Side)

    def collect_metrics(self) -> Iterator[Sample | HistogramSample]:
        """Return pairs, unmatched, late and held records, and what waits."""
        yield Sample("skewless_join_pairs_total", (), self._pairs)
        yield HistogramSample("skewless_join_wait_seconds", (), self._waits)
        fill, records = self._fill(), sum(len(join.held(side)) for join in self._joins.values() for side in Side)
        limit = records * fill.limit // fill.used if records else self._rules.buffer_records
        yield Sample("skewless_join_buffer_limit_records", (), limit)
        for side in Side:
            held = [join.held(side) for join in self._joins.values()]
            for name, value in (
                ("unmatched_total", self._unmatched[side]),
                ("late_total", self._late[side]),
                ("held_records", sum(map(len, held))),
                ("held_bytes", sum(records.bytes for records in held)),
                ("paused_partitions", sum(self._side(partition) is side for partition in self._blocked)),
                ("silent_partitions", sum(self._side(partition) is side for partition in self._silent)),
            ):
                yield Sample(f"skewless_join_{name}", (side.value,), value)

    def _is_silent(self, partition: TopicPartition, now: int) -> bool:
        """Return whether the partition is at its end, and records of the other side wait for its time to advance."""
        source = self._sources[partition]
        held = self._join_of(partition).held(self._side(partition).opposite)
        is_stuck = abs(now - source.unchanged_since_ms) >= SILENT_MS  # the clock may be set back
        return is_stuck and source.at_end and source.is_active and len(held) > 0

    def _silence(self, partition: TopicPartition) -> str:
        side = self._side(partition)
        merged = self._sources[partition].merged
        numbers = [partition.partition] if merged is None else merged.slowest()
        held = len(self._join_of(partition).held(side.opposite))
        otherwise = "wait for" if self._becomes_idle else "set"
        return (
            f"{held} {side.opposite.value} records wait for topic {self._rules.topics[side]}, of which everything is "
            f"read, in {_numbers(numbers)}: write to it, or {otherwise} join.idle_timeout_s"
        )


def _numbers(partitions: Sequence[int]) -> str:
    return f"partition {', '.join(map(str, partitions))}" if partitions else "each partition"


def _advance_merged(join: WindowJoin, side: Side, source: _Source, merged: WatermarkTracker) -> None:
    """Let a side follow the watermarks of the partitions that it merges."""
    watermark = merged.watermark()
    source.ended = watermark == MAX_WATERMARK
    if watermark is not None and not source.ended:
        join.raise_watermark(side, watermark)


def _advance_idle(join: WindowJoin, sources: Mapping[Side, _Source]) -> None:
    """Let an idle side follow the watermark of the other one. If both are idle, they get the higher one.

    So the watermarks do not depend on which side became idle first.
    """
    for side, source in sources.items():
        watermark = join.watermark(side.opposite)
        if source.idle and watermark is not None:
            join.raise_watermark(side, watermark)
