"""Back-pressure by counts and an injected clock."""

from __future__ import annotations

from skewless.transport.acks import Acks
from skewless.transport.flow import WAITING_BATCHES, Decision, Flow
from skewless.transport.settings import TransportSettings

SETTINGS = TransportSettings(in_flight_batches=8, in_flight_bytes=2**16)


class Bench:
    def __init__(self, partitions: int, patience_s: float = 1.0) -> None:
        self.acks = Acks()
        for partition in range(partitions):
            self.acks.assign(partition)
        self.flow = Flow(SETTINGS, lambda: self.acks, patience_s)
        self.flow.own(frozenset(range(partitions)))
        self.offset = 0

    def push(self, partition: int, size: int = 1) -> None:
        self.offset += 1
        self.flow.pushed(size)
        self.acks.handed(partition, self.offset, size)

    def fill(self, partition: int) -> list[int]:
        for _ in range(WAITING_BATCHES):
            self.push(partition)
        return list(range(self.offset - WAITING_BATCHES + 1, self.offset + 1))


def test_reads_on_while_there_is_room() -> None:
    bench = Bench(2)
    bench.push(0)
    assert bench.flow.decide(0.0) == Decision(read=True)


def test_waits_while_a_partition_is_full_and_reads_on_when_it_has_room_again() -> None:
    bench = Bench(2)
    first, *_ = bench.fill(0)
    assert bench.flow.decide(0.0) == Decision(read=False)
    assert bench.flow.decide(0.9) == Decision(read=False)
    bench.acks.done(0, first)
    assert bench.flow.decide(0.95) == Decision(read=True)


def test_pauses_what_is_full_for_too_long_and_resumes_it_when_it_has_caught_up() -> None:
    bench = Bench(2)
    first, *_ = bench.fill(0)
    bench.flow.decide(0.0)
    assert bench.flow.decide(1.0) == Decision(read=True, pause=frozenset({0}))
    assert bench.flow.decide(5.0) == Decision(read=True)
    bench.acks.done(0, first)
    assert bench.flow.decide(6.0) == Decision(read=True, resume=frozenset({0}))


def test_a_new_wait_has_its_own_patience() -> None:
    bench = Bench(2)
    first, *_ = bench.fill(0)
    bench.flow.decide(0.0)
    bench.acks.done(0, first)
    bench.flow.decide(0.9)
    bench.push(0)
    assert bench.flow.decide(1.1) == Decision(read=False)


def test_without_patience_a_slow_partition_never_holds_up_the_others() -> None:
    bench = Bench(2, patience_s=0.0)
    bench.fill(1)
    assert bench.flow.decide(0.0) == Decision(read=True, pause=frozenset({1}))


def test_too_many_bytes_stop_every_partition() -> None:
    bench = Bench(3)
    bench.push(1, size=2**16 + 1)
    assert bench.flow.decide(0.0) == Decision(read=False)
    assert bench.flow.decide(1.0) == Decision(read=True, pause=frozenset({0, 1, 2}))


def test_batches_that_are_not_yet_known_to_the_loop_count_too() -> None:
    bench = Bench(1)
    for _ in range(9):
        bench.flow.pushed(1)
    assert bench.flow.decide(0.0) == Decision(read=False)


def test_after_a_rebalance_nothing_is_paused() -> None:
    bench = Bench(2)
    bench.fill(0)
    bench.flow.decide(0.0)
    bench.flow.decide(1.0)
    bench.acks.revoke(0)
    bench.flow.own(frozenset({1}))
    assert bench.flow.decide(2.0) == Decision(read=True)
