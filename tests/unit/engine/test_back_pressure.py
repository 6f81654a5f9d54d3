"""Back-pressure by counts and an injected clock."""

from __future__ import annotations

from typing import NamedTuple

from helpers.engine import at
from skewless.engine.assignment import WAITING_BATCHES, Assignment, InFlightBatch
from skewless.engine.back_pressure import BackPressure, PollDecision
from skewless.kafka.settings import TransportSettings

SETTINGS = TransportSettings(max_in_flight_batches=8, max_in_flight_bytes=2**16)


class Decision(NamedTuple):
    """Whether to poll, and the partitions to pause and to resume before the poll."""

    read: bool
    pause: frozenset[int] = frozenset()
    resume: frozenset[int] = frozenset()


class Bench:
    def __init__(self, partitions: int, pause_after_s: float = 1.0) -> None:
        self.assignment = Assignment()
        self.assign(*range(partitions))
        self.flow = BackPressure(SETTINGS, self.assignment, pause_after_s)
        self.offset = 0

    def assign(self, *partitions: int) -> None:
        self.assignment.begin(map(at, partitions))
        for partition in partitions:
            self.assignment[at(partition)].start(0, None, None)
        self.assignment.started()

    def decide(self, now: float) -> Decision:
        decision = self.flow.decide(now)
        if not (decision.pause or decision.resume or decision.block):
            return Decision(decision.read)
        pause, resume = self.flow.change(decision)
        numbers = [frozenset(partition.partition for partition in partitions) for partitions in (pause, resume)]
        return Decision(decision.read, *numbers)

    def push(self, partition: int, size: int = 1) -> None:
        self.offset += 1
        self.flow.batch_delivered(size)
        self.assignment.deliver(at(partition), self.assignment.generation, InFlightBatch(self.offset, size))

    def process(self, partition: int, offset: int) -> None:
        self.assignment.process(at(partition), offset, None)

    def fill(self, partition: int) -> list[int]:
        for _ in range(WAITING_BATCHES):
            self.push(partition)
        return list(range(self.offset - WAITING_BATCHES + 1, self.offset + 1))


def test_back_pressure_with_room_reads() -> None:
    bench = Bench(2)
    bench.push(0)
    assert bench.decide(0.0) == Decision(read=True)


def test_back_pressure_full_partition_waits_until_it_has_room() -> None:
    bench = Bench(2)
    first, *_ = bench.fill(0)
    assert bench.decide(0.0) == Decision(read=False)
    assert bench.decide(0.9) == Decision(read=False)
    bench.process(0, first)
    assert bench.decide(0.95) == Decision(read=True)


def test_back_pressure_partition_full_for_long_is_paused_and_resumed_with_room() -> None:
    bench = Bench(2)
    first, *_ = bench.fill(0)
    bench.decide(0.0)
    assert bench.decide(1.0) == Decision(read=True, pause=frozenset({0}))
    assert bench.decide(5.0) == Decision(read=True)
    bench.process(0, first)
    assert bench.decide(6.0) == Decision(read=True, resume=frozenset({0}))


def test_back_pressure_new_wait_restarts_the_pause_timer() -> None:
    bench = Bench(2)
    first, *_ = bench.fill(0)
    bench.decide(0.0)
    bench.process(0, first)
    bench.decide(0.9)
    bench.push(0)
    assert bench.decide(1.1) == Decision(read=False)


def test_back_pressure_zero_pause_delay_pauses_a_full_partition_at_once() -> None:
    bench = Bench(2, pause_after_s=0.0)
    bench.fill(1)
    assert bench.decide(0.0) == Decision(read=True, pause=frozenset({1}))


def test_back_pressure_too_many_bytes_stop_each_partition_with_a_batch_until_they_are_processed() -> None:
    bench = Bench(3)
    bench.push(1, size=2**16 + 1)
    assert bench.decide(0.0) == Decision(read=False)
    assert bench.decide(1.0) == Decision(read=True, pause=frozenset({1}))
    assert bench.decide(1.1) == Decision(read=True)
    assert bench.flow.change(PollDecision(read=True, block=True)).resume == frozenset()
    bench.process(1, bench.offset)
    assert bench.decide(1.2) == Decision(read=True, resume=frozenset({1}))


def test_back_pressure_partitions_that_wait_with_too_many_bytes_do_not_stop_the_others() -> None:
    bench = Bench(4)
    for waiting in (0, 1):
        bench.push(waiting, size=2**15)
        bench.push(waiting, size=2**15)
    bench.decide(0.0)
    bench.decide(1.0)
    for now in range(2, 10):
        assert bench.decide(now) == Decision(read=True)
        bench.push(2)
        assert bench.decide(now) == Decision(read=False)
        bench.process(2, bench.offset)


def test_back_pressure_above_the_limits_all_partitions_together_add_no_more_than_one_poll() -> None:
    bench = Bench(4)
    assert bench.flow.poll_records == SETTINGS.max_poll_records
    bench.push(0, size=2**16 + 1)
    assert bench.flow.poll_records == SETTINGS.max_poll_records / 4
    bench.assignment.revoke([at(partition) for partition in range(4)])
    bench.flow.batch_delivered(2**16 + 1)
    assert bench.flow.poll_records == SETTINGS.max_poll_records


def test_back_pressure_delivered_batches_not_yet_received_are_counted() -> None:
    bench = Bench(1)
    for _ in range(9):
        bench.flow.batch_delivered(1)
    assert bench.decide(0.0) == Decision(read=False)


def test_back_pressure_after_a_rebalance_pauses_nothing() -> None:
    bench = Bench(2)
    bench.fill(0)
    bench.decide(0.0)
    bench.decide(1.0)
    bench.assignment.revoke([at(0), at(1)])
    bench.assign(1)
    assert bench.decide(2.0) == Decision(read=True)


def test_decide_all_partitions_paused_over_the_limits_polls_for_callbacks() -> None:
    bench = Bench(1, pause_after_s=0.0)
    bench.push(0, size=2**16 + 1)
    bench.push(0)
    assert bench.decide(0.0) == Decision(read=True, pause=frozenset({0}))
    assert bench.flow.decide(0.0) == PollDecision(read=True)


def test_decide_while_a_partition_is_full_does_not_need_the_event_loop() -> None:
    bench = Bench(2)
    bench.fill(0)
    assert bench.flow.decide(0.0) == PollDecision(read=False)
    assert bench.flow.decide(0.9) == PollDecision(read=False)


def test_back_pressure_blocked_partition_is_paused_at_once_and_resumed_when_unblocked() -> None:
    bench = Bench(2)
    bench.push(1)
    bench.assignment.block([at(1)])
    assert bench.decide(0.0) == Decision(read=True, pause=frozenset({1}))
    assert bench.decide(5.0) == Decision(read=True)
    bench.assignment.block([])
    assert bench.decide(6.0) == Decision(read=True, resume=frozenset({1}))


def test_back_pressure_blocked_partition_that_is_full_is_resumed_only_with_room_and_unblocked() -> None:
    bench = Bench(1)
    first, *_ = bench.fill(0)
    bench.assignment.block([at(0)])
    bench.decide(0.0)
    bench.process(0, first)
    assert bench.decide(1.0) == Decision(read=True)
    bench.assignment.block([])
    assert bench.decide(2.0) == Decision(read=True, resume=frozenset({0}))


def test_back_pressure_partition_blocked_before_a_reset_is_fetched_after_it() -> None:
    bench = Bench(1)
    bench.assignment.block([at(0)])
    bench.decide(0.0)
    bench.assignment.reset()
    bench.assignment[at(0)].start(0, None, None)
    bench.assignment.started()
    assert bench.decide(1.0) == Decision(read=True)
    assert bench.assignment[at(0)].fetches
