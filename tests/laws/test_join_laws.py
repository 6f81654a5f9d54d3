"""Laws of the windowed join: they hold for any records, reading order, batches and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.join_oracle import Answer, Event, answer
from skewless.algorithms.join.held_records import HeldRecords, Records, decode_block, records_of
from skewless.algorithms.join.window_join import JoinRules, Side, WindowJoin

rules = st.builds(JoinRules, st.integers(0, 6), st.integers(0, 8), st.integers(0, 8))
logs = st.lists(st.builds(Event, st.sampled_from("abc"), st.integers(0, 20)), max_size=14)
cuts = st.lists(st.tuples(st.sampled_from(Side), st.integers(1, 6)), max_size=12)
"""Order of reading: side and number of records of each batch."""

Logs = dict[Side, Sequence[Event]]


class Batch(NamedTuple):
    """A batch of one side: its records, and the offset of the first one."""

    side: Side
    first: int
    events: Sequence[Event]


def batches(logs: Logs, order: Iterable[tuple[Side, int]]) -> Iterator[Batch]:
    """Cut two logs into batches; what the order leaves is read at the end."""
    read = dict.fromkeys(Side, 0)
    for side, size in [*order, *((side, len(logs[side]) + 1) for side in Side)]:
        events = logs[side][read[side] : read[side] + size]
        if events:
            yield Batch(side, read[side], events)
        read[side] += len(events)


def columns(events: Sequence[Event], offsets: Sequence[int]) -> Records:
    times = np.array([event.time for event in events], dtype=np.int64)
    values = [f"{offset}".encode() for offset in offsets]
    return records_of([event.id for event in events], times, np.array(offsets, dtype=np.int64), values)


class Reader:
    """Feeds a join and collects what it emits."""

    def __init__(self, rules: JoinRules, logs: Logs) -> None:
        self.rules, self.logs = rules, logs
        self.join = WindowJoin(rules)
        self.read = dict.fromkeys(Side, 0)
        self.pairs: list[tuple[int, int]] = []
        self.unmatched: dict[Side, list[int]] = {side: [] for side in Side}
        self.late: dict[Side, list[int]] = {side: [] for side in Side}
        self.changelog: dict[Side, dict[int, bytes]] = {side: {} for side in Side}

    def feed(self, batch: Batch) -> None:
        offsets = range(batch.first, batch.first + len(batch.events))
        added = self.join.add(batch.side, columns(batch.events, offsets))
        self.read[batch.side] += len(batch.events)
        self.pairs += zip(added.left.offsets.tolist(), added.right.offsets.tolist(), strict=True)
        self.late[batch.side] += np.array(offsets)[added.late].tolist()

    def flush(self) -> None:
        for side in Side:
            self.unmatched[side] += self.join.expire(side).offsets.tolist()
            self.changelog[side].update(self.join.held(side).changed_blocks())

    def restart(self) -> None:
        """Continue with a new join that knows only the committed state and the logs."""
        starts = []
        for side in Side:
            held = [int(at) for number, bits in self.changelog[side].items() for at in decode_block(number, bits)]
            records = columns([self.logs[side][at] for at in sorted(held)], sorted(held))
            starts.append((self.join.state(side), records))
        self.join = WindowJoin(self.rules, *starts)

    def pair_times(self, side: Side) -> list[int]:
        """Return the times that the records of one side have in the pairs so far."""
        return [self.logs[side][pair[0 if side is Side.LEFT else 1]].time for pair in self.pairs]

    def answer(self) -> Answer:
        assert len(set(self.pairs)) == len(self.pairs)
        offsets = [*self.unmatched.values(), *self.late.values()]
        assert all(len(set(rows)) == len(rows) for rows in offsets)
        return Answer(set(self.pairs), *map(set, offsets))


@given(rules=rules, left=logs, right=logs, order=cuts, data=st.data())
def test_join_any_interleaving_cut_and_restart_emits_the_definition(
    rules: JoinRules, left: list[Event], right: list[Event], order: list[tuple[Side, int]], data: st.DataObject
) -> None:
    reader = Reader(rules, {Side.LEFT: left, Side.RIGHT: right})
    for batch in batches(reader.logs, order):
        reader.feed(batch)
        if data.draw(st.booleans()):
            reader.flush()
            if data.draw(st.booleans()):
                reader.restart()
        so_far = answer(left[: reader.read[Side.LEFT]], right[: reader.read[Side.RIGHT]], rules)
        assert set(reader.pairs) == so_far.pairs
    reader.flush()
    assert reader.answer() == answer(left, right, rules)
    for side in Side:
        reader.unmatched[side] += reader.join.expire_all(side).offsets.tolist()
    assert reader.answer() == answer(left, right, rules, ended=True)


@given(rules=rules, left=logs, right=logs, order=cuts)
def test_join_every_record_has_one_outcome(
    rules: JoinRules, left: list[Event], right: list[Event], order: list[tuple[Side, int]]
) -> None:
    reader = Reader(rules, {Side.LEFT: left, Side.RIGHT: right})
    for batch in batches(reader.logs, order):
        reader.feed(batch)
        reader.flush()
    for side, log in reader.logs.items():
        at = 0 if side is Side.LEFT else 1
        outcomes = Counter(pair[at] for pair in reader.pairs)
        outcomes.update(reader.unmatched[side])
        outcomes.update(reader.late[side])
        waiting = reader.join.expire_all(side).offsets.tolist()
        outcomes.update(waiting)
        assert outcomes == Counter(range(len(log)))


@given(rules=rules, left=logs, right=logs, order=cuts)
def test_join_held_records_are_in_reach_of_the_other_watermark(
    rules: JoinRules, left: list[Event], right: list[Event], order: list[tuple[Side, int]]
) -> None:
    """The buffers are bounded by event time: nothing is held that no later record can pair with."""
    reader = Reader(rules, {Side.LEFT: left, Side.RIGHT: right})
    for batch in batches(reader.logs, order):
        reader.feed(batch)
        reader.flush()
        watermark = {side: reader.join.watermark(side) for side in Side}
        oldest = {Side.LEFT: watermark[Side.RIGHT], Side.RIGHT: watermark[Side.LEFT]}
        for side in Side:
            bound = oldest[side]
            if bound is not None:
                reach = rules.apart_ms if side is Side.LEFT else 0
                held = [
                    at for number, bits in reader.changelog[side].items() for at in decode_block(number, bits).tolist()
                ]
                assert all(reader.logs[side][at].time + reach >= bound for at in held)
                assert len(held) == len(reader.join.held(side))


@given(rules=rules, left=logs, right=logs, order=cuts)
def test_join_pairs_are_out_of_order_by_at_most_the_larger_bound(
    rules: JoinRules, left: list[Event], right: list[Event], order: list[tuple[Side, int]]
) -> None:
    """A pipeline that aggregates pairs needs this allowed lateness, which its settings require."""
    reader = Reader(rules, {Side.LEFT: left, Side.RIGHT: right})
    for batch in batches(reader.logs, order):
        reader.feed(batch)
    for side in Side:
        times = reader.pair_times(side)
        disorder = max((max(times[: at + 1]) - time for at, time in enumerate(times)), default=0)
        assert disorder <= rules.pair_disorder_ms(side)


@pytest.mark.parametrize(
    ("side", "left", "right"),
    [
        (Side.LEFT, [Event("a", 0), Event("b", 8)], [Event("b", 8), Event("a", 5)]),
        (Side.RIGHT, [Event("b", 2), Event("a", 0)], [Event("a", 0), Event("b", 7)]),
    ],
)
def test_join_one_millisecond_less_than_the_larger_bound_is_too_little(
    side: Side, left: list[Event], right: list[Event]
) -> None:
    rules = JoinRules(apart_ms=5, left_disorder_ms=2, right_disorder_ms=3)
    reader = Reader(rules, {Side.LEFT: left, Side.RIGHT: right})
    for batch in batches(reader.logs, [(side, 2)]):
        reader.feed(batch)
    assert reader.pair_times(side) == [rules.pair_disorder_ms(side), 0]


@given(
    held=st.lists(st.integers(0, 3 * 4096), unique=True, max_size=30),
    steps=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=12),
    gone=st.integers(0, 30),
)
def test_held_records_changed_blocks_have_exactly_the_held_offsets(
    held: list[int], steps: list[tuple[int, bool]], gone: int
) -> None:
    records = HeldRecords()
    blocks: dict[int, bytes] = {}
    offsets = sorted(held)
    waiting: set[int] = set()
    added = 0
    for count, is_commit in [*steps, (len(offsets), False)]:
        new = offsets[added : added + count]
        records.add(columns([Event(f"{offset}", added + row) for row, offset in enumerate(new)], new))
        added += len(new)
        waiting.update(new)
        partners = [f"{offset}" for offset in sorted(waiting)[: count // 2]]
        slots = records.find(partners)
        records.claim(partners)
        waiting.difference_update(records.pop_claimed(slots).offsets.tolist())
        if is_commit:
            blocks.update(records.changed_blocks())
            records.include_blocks([0])
    waiting.difference_update(records.expire(gone).offsets.tolist())
    changed = records.changed_blocks()
    assert list(changed) == sorted(changed)
    blocks.update(changed)
    found = [at for number, bits in sorted(blocks.items()) for at in decode_block(number, bits).tolist()]
    assert found == sorted(waiting)
    assert not any(bits.endswith(b"\0") for bits in blocks.values())
    assert records.changed_blocks() == {}
