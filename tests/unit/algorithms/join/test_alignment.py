"""Alignment of partitions: who waits for whom, and that the join cannot block itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms.join.alignment import Alignment, Blocked
from skewless.algorithms.join.held_records import records_of
from skewless.algorithms.join.window_join import JoinRules, Side, WindowJoin

RULES = JoinRules(apart_ms=5, left_disorder_ms=0, right_disorder_ms=0)
logs = st.lists(st.integers(0, 60), max_size=40).map(sorted)
speeds = st.lists(st.tuples(st.sampled_from(Side), st.integers(1, 4)), min_size=1, max_size=30)


def test_alignment_partition_ahead_by_more_than_the_drift_waits() -> None:
    alignment: Alignment[str] = Alignment(max_drift_ms=10, buffer_records=100)
    assert alignment.decide({"a": 10, "b": 20, "c": 21}, held=0).partitions == {"c"}
    assert alignment.decide({"a": 11, "b": 20, "c": 21}, held=0).partitions == frozenset()


def test_alignment_partition_without_records_holds_nothing_back_before_the_buffer_is_full() -> None:
    alignment: Alignment[str] = Alignment(max_drift_ms=10, buffer_records=100)
    assert alignment.decide({"a": None, "b": 1000}, held=99).partitions == frozenset()
    assert alignment.decide({"a": None, "b": 1000}, held=100).partitions == {"b"}


def test_alignment_growth_of_batches_in_flight_is_no_sign_of_a_window_that_does_not_fit() -> None:
    alignment: Alignment[str] = Alignment(max_drift_ms=10**9, buffer_records=100)
    watermarks = {"a": 0, "b": 5}
    assert alignment.decide(watermarks, held=100, read="a").partitions == {"b"}
    assert not alignment.decide(watermarks, held=150, read="b").stuck
    assert not alignment.decide(watermarks, held=160, read="a").stuck
    assert alignment.decide(watermarks, held=161, read="a").stuck
    assert alignment.decide(watermarks, held=161).partitions == {"a", "b"}


def test_alignment_slowest_that_frees_records_is_read_on() -> None:
    alignment: Alignment[str] = Alignment(max_drift_ms=10**9, buffer_records=100)
    for held in (100, 109, 90, 105, 101, 110):
        assert not alignment.decide({"a": 0, "b": 5}, held=held, read="a").stuck


def test_alignment_that_waited_for_a_first_watermark_reads_the_slowest_on_when_it_is_known() -> None:
    alignment: Alignment[str] = Alignment(max_drift_ms=10**9, buffer_records=100)
    alignment.decide({"a": None, "b": None, "c": None}, held=255, read="a")
    assert alignment.decide({"a": None, "b": None, "c": None}, held=500, read="b").stuck
    assert alignment.decide({"a": 7, "b": None, "c": 5}, held=500).stuck
    assert alignment.decide({"a": 7, "b": 9, "c": 5}, held=500) == Blocked(frozenset({"a", "b"}), stuck=False)
    assert not alignment.decide({"a": 7, "b": 9, "c": 6}, held=510, read="c").stuck
    assert alignment.decide({"a": 7, "b": 9, "c": 6}, held=511, read="c").stuck
    assert alignment.decide({"a": 7, "b": 9, "c": 6}, held=511).stuck


def test_alignment_that_lets_a_partition_without_a_watermark_out_of_account_stays_blocked() -> None:
    alignment: Alignment[str] = Alignment(max_drift_ms=10**9, buffer_records=100)
    alignment.decide({"a": 5}, held=100, read="a")
    assert alignment.decide({"a": 6}, held=111, read="a").stuck
    for _ in range(3):  # everything of b is read, and then it has a record that another topic must decide
        assert alignment.decide({"a": 6, "b": None}, held=112).stuck
        assert alignment.decide({"a": 6}, held=112).stuck
    assert alignment.decide({"a": 6, "b": None}, held=112).stuck
    assert not alignment.decide({"a": 6, "b": 9}, held=112).stuck


class Reading:
    """Two logs that are read as an alignment allows."""

    def __init__(self, left: Sequence[int], right: Sequence[int], buffer_records: int) -> None:
        self.logs = {Side.LEFT: left, Side.RIGHT: right}
        self.read = dict.fromkeys(Side, 0)
        self.join = WindowJoin(RULES)
        self.alignment: Alignment[Side] = Alignment(10**9, buffer_records)
        self.blocked: frozenset[Side] = frozenset()
        self.most_held = 0

    @property
    def remaining(self) -> list[Side]:
        return [side for side in Side if self.read[side] < len(self.logs[side])]

    def step(self, side: Side, count: int) -> None:
        """Read records of a side, and decide who waits."""
        first = self.read[side]
        times = np.array(self.logs[side][first : first + count], dtype=np.int64)
        offsets = np.arange(first, first + len(times))
        ids = [f"{side.value}{offset}" for offset in offsets.tolist()]
        self.join.add(side, records_of(ids, times, offsets, [b""] * len(times)))
        self.read[side] += len(times)
        for expiring in Side:
            self.join.expire(expiring)
        for ended in set(Side) - set(self.remaining):
            self.join.expire_all(ended.opposite)
        held = sum(len(self.join.held(each)) for each in Side)
        self.most_held = max(self.most_held, held)
        watermarks = {each: self.join.watermark(each) for each in self.remaining}
        decision = self.alignment.decide(watermarks, held, side)
        assert not decision.stuck
        self.blocked = decision.partitions


def slowest_first(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the most records that are held when the side with the earlier record is always read next."""
    reading = Reading(left, right, 10**9)
    while reading.remaining:
        reading.step(min(reading.remaining, key=lambda side: reading.logs[side][reading.read[side]]), 1)
    return reading.most_held


@given(left=logs, right=logs, speeds=speeds)
def test_alignment_any_speeds_with_a_buffer_that_fits_read_everything(
    left: list[int], right: list[int], speeds: list[tuple[Side, int]]
) -> None:
    """The slowest partition is always read, so the held records of one window suffice."""
    reading = Reading(left, right, buffer_records=10 * (slowest_first(left, right) + 1))
    rounds = 0
    while reading.remaining:
        side, count = speeds[rounds % len(speeds)]
        rounds += 1
        allowed = [each for each in reading.remaining if each not in reading.blocked]
        assert allowed
        reading.step(side if side in allowed else allowed[0], count)
