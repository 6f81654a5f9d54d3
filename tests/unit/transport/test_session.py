"""Sessions with a step that notes down what happens to it; batches are of a real class over stand-ins for messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from skewless.records import Batch, Output
from skewless.step import Step
from skewless.transport.batch import MessageBatch
from skewless.transport.session import CommitPoint, Session, Taken


class Message:
    """As much of a confluent_kafka.Message as a batch asks for: that class cannot be made by hand."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> None:
        return None

    def value(self) -> bytes:
        return b"x" * 10


class Notes(Step):
    """Notes down calls; its position is the number of records that it has processed."""

    wants_commit = False

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.seen: dict[int, int] = {}
        self.ended: set[int] = set()
        self.bad_offset: int | None = None

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        self.calls.append(("assign", partition, position, list(state)))
        self.seen[partition] = int(position or 0)

    def revoke(self, partition: int) -> None:
        self.calls.append(("revoke", partition))
        del self.seen[partition]

    def process(self, batch: Batch, now: int) -> Iterable[Output]:
        offsets = [message.offset() for message in batch.messages] if isinstance(batch, MessageBatch) else []
        self.calls.append(("process", batch.partition, offsets, now))
        if self.bad_offset in offsets:
            raise ZeroDivisionError
        self.seen[batch.partition] += len(offsets)
        return [Output("out", b"processed")]

    def flush(self, now: int) -> Iterable[Output]:
        self.calls.append(("flush", now))
        return [Output("out", b"flushed")]

    def position(self, partition: int) -> str:
        return str(self.seen[partition])

    def watermark(self, partition: int) -> int | None:
        return self.seen[partition]

    def finished(self, partition: int) -> bool:
        return partition in self.ended

    def end_of_partition(self, partition: int, now: int) -> None:
        self.calls.append(("end", partition, now))
        self.ended.add(partition)


class Bench:
    """A session over a step and a list of what it sent."""

    def __init__(self, *, drain: bool = False, partitions: Sequence[int] = (0,)) -> None:
        self.step = Notes()
        self.session = Session(self.step, drain=drain, clock=lambda: 42)
        self.sent: list[bytes | None] = []
        self.session.send = lambda outputs: self.sent.extend(output.value for output in outputs)
        if partitions:
            self.session.assign({partition: Taken(0, None) for partition in partitions})

    def batch(self, *offsets: int, partition: int = 0) -> MessageBatch:
        return MessageBatch(partition, self.session.generation, [Message(offset) for offset in offsets])

    def hand(self, *offsets: int, partition: int = 0) -> MessageBatch:
        batch = self.batch(*offsets, partition=partition)
        assert self.session.hand(batch)
        return batch

    def processed(self) -> list[list[int]]:
        return [call[2] for call in self.step.calls if call[0] == "process"]


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_commit_has_the_outputs_the_flush_and_the_offset_behind_what_is_processed() -> None:
    bench = Bench()
    first, _ = bench.hand(3, 4), bench.hand(7)
    await bench.session.process(first)
    assert bench.session.prepare({}) == {0: CommitPoint(5, "2")}
    assert bench.sent == [b"processed", b"flushed"]
    assert bench.step.calls[1:] == [("process", 0, [3, 4], 42), ("flush", 42)]


async def test_batches_wait_while_a_commit_is_under_way_and_keep_their_order() -> None:
    bench = Bench()
    first, second = bench.hand(1), bench.hand(2)
    prepared = bench.session.prepare({})
    tasks = [asyncio.create_task(bench.session.process(batch)) for batch in (first, second)]
    await settle()
    assert bench.processed() == []
    bench.session.committed(prepared)
    await asyncio.gather(*tasks)
    assert bench.processed() == [[1], [2]]


async def test_commit_wanted_step_holds_much_is_set_until_the_flush() -> None:
    bench = Bench()
    bench.step.wants_commit = True
    wanted = [bench.session.commit_wanted]
    await bench.session.process(bench.hand(1))
    wanted.append(bench.session.commit_wanted)
    bench.session.prepare({})
    wanted.append(bench.session.commit_wanted)
    assert wanted == [False, True, False]


async def test_nothing_is_processed_before_the_first_assignment() -> None:
    bench = Bench(partitions=())
    task = asyncio.create_task(bench.session.process(bench.batch(1)))
    await settle()
    assert not task.done()
    bench.session.assign({0: Taken(0, None)})
    await task
    assert bench.processed() == [[1]]


async def test_a_batch_of_an_earlier_assignment_is_ignored() -> None:
    bench = Bench()
    handed, stale = bench.hand(1), bench.batch(2)
    bench.session.revoke([0])
    bench.session.assign({0: Taken(1, "1", ())})
    assert not bench.session.hand(stale)
    await bench.session.process(handed)
    assert bench.processed() == []
    assert (bench.session.acks.retired_batches, bench.session.acks.retired_bytes) == (2, 20)
    assert bench.session.space.is_set()


async def test_a_batch_that_waits_for_a_commit_is_ignored_when_its_partition_is_lost_meanwhile() -> None:
    bench = Bench()
    batch = bench.hand(1)
    bench.session.prepare({})
    task = asyncio.create_task(bench.session.process(batch))
    await settle()
    bench.session.revoke([0])
    bench.session.assign({0: Taken(0, None)})
    await task
    assert bench.processed() == []


async def test_a_failing_step_closes_the_gate_and_the_commit_raises() -> None:
    bench = Bench()
    bench.step.bad_offset = 2
    batches = [bench.hand(1), bench.hand(2), bench.hand(3)]
    tasks = [asyncio.create_task(bench.session.process(batch)) for batch in batches]
    await settle()
    assert bench.processed() == [[1], [2]]
    failure = bench.session.failure
    assert isinstance(failure, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        bench.session.prepare({})
    assert b"flushed" not in bench.sent
    bench.session.revoke([0])
    bench.session.assign({0: Taken(0, None)})
    await asyncio.gather(*tasks)
    assert bench.session.failure is None
    assert bench.processed() == [[1], [2]]


async def test_before_is_asked_again_until_there_is_nothing_to_wait_for() -> None:
    bench = Bench()
    waits = [asyncio.Event(), asyncio.Event()]
    left = list(waits)

    async def wait(event: asyncio.Event) -> None:
        await event.wait()

    task = asyncio.create_task(bench.session.process(bench.hand(1), lambda _batch: wait(left.pop(0)) if left else None))
    for event in waits:
        await settle()
        assert bench.processed() == []
        event.set()
    await task
    assert bench.processed() == [[1]]


async def test_a_partition_lost_while_before_waits_is_not_processed() -> None:
    bench = Bench()
    event = asyncio.Event()

    async def wait() -> None:
        await event.wait()

    task = asyncio.create_task(bench.session.process(bench.hand(1), lambda _batch: wait()))
    await settle()
    bench.session.revoke([0])
    event.set()
    bench.session.assign({0: Taken(0, None)})
    await task
    assert bench.processed() == []


async def test_a_commit_without_news_has_nothing() -> None:
    bench = Bench(partitions=(0, 1))
    await bench.session.process(bench.hand(1))
    prepared = bench.session.prepare({})
    assert prepared == {0: CommitPoint(2, "1"), 1: CommitPoint(0, "0")}
    bench.session.committed(prepared)
    assert bench.session.prepare({}) == {}


async def test_a_checkpoint_that_changed_without_records_is_committed_at_the_same_offset() -> None:
    bench = Bench(partitions=())
    bench.session.assign({0: Taken(9, "5"), 1: Taken(3, "7")})
    bench.step.seen[0] += 1
    assert bench.session.prepare({}) == {0: CommitPoint(9, "6")}


async def test_a_commit_moves_over_markers_that_the_consumer_has_fetched() -> None:
    bench = Bench(partitions=())
    bench.session.assign({0: Taken(9, "5"), 1: Taken(3, "7"), 2: Taken(4, "8")})
    # Partition 0 has markers after its committed offset, 1 has none, 2 was not fetched yet.
    prepared = bench.session.prepare({0: (12, 1), 1: (3, None)})
    assert prepared == {0: CommitPoint(12, "5", 1)}
    bench.session.committed(prepared)
    assert bench.session.prepare({0: (12, 1), 1: (3, None)}) == {}
    assert bench.session.committed_offsets == {0: 12, 1: 3, 2: 4}


async def test_a_commit_does_not_move_over_records_that_are_not_processed() -> None:
    bench = Bench(partitions=())
    bench.session.assign({0: Taken(1, "0")})
    batch = bench.hand(1, 2)
    assert bench.session.prepare({0: (5, None)}) == {}
    bench.session.committed({})
    await bench.session.process(batch)
    assert bench.session.prepare({0: (5, None)}) == {0: CommitPoint(5, "2")}


async def test_a_commit_point_of_an_unchanged_partition_has_its_committed_offset() -> None:
    bench = Bench(partitions=())
    bench.session.assign({0: Taken(9, "5", leader_epoch=4)})
    assert bench.session.prepare({}) == {}
    assert bench.session.commit_point(0) == CommitPoint(9, "5", 4)


async def test_an_assignment_gives_the_step_position_and_state() -> None:
    bench = Bench(partitions=())
    bench.session.assign({4: Taken(9, "5", [(b"k", b"v")])})
    assert bench.step.calls == [("assign", 4, "5", [(b"k", b"v")])]


async def test_the_end_of_a_partition_is_told_when_its_batches_are_processed() -> None:
    bench = Bench()
    batch = bench.hand(1)
    bench.session.end_of_partition(0, bench.session.generation)
    bench.session.committed(bench.session.prepare({}))
    assert ("end", 0, 42) not in bench.step.calls
    await bench.session.process(batch)
    bench.session.prepare({})
    assert bench.step.calls[-2:] == [("end", 0, 42), ("flush", 42)]


async def test_the_end_is_taken_back_by_another_batch_and_by_another_generation() -> None:
    bench = Bench()
    bench.session.end_of_partition(0, bench.session.generation)
    await bench.session.process(bench.hand(1))
    bench.session.end_of_partition(0, bench.session.generation - 1)
    bench.session.prepare({})
    assert ("end", 0, 42) not in bench.step.calls


async def test_a_bounded_run_is_finished_when_everything_is_processed_committed_and_ended() -> None:
    bench = Bench(drain=True, partitions=())
    assert not bench.session.finished
    bench.session.assign({0: Taken(0, None)})
    batch = bench.hand(1)
    bench.step.ended.add(0)
    assert not bench.session.finished
    await bench.session.process(batch)
    prepared = bench.session.prepare({})
    assert not bench.session.finished
    bench.session.committed(prepared)
    assert not bench.session.finished
    bench.session.end_of_partition(0, bench.session.generation)
    assert bench.session.finished


async def test_without_draining_a_run_is_never_finished() -> None:
    bench = Bench()
    bench.step.ended.add(0)
    assert not bench.session.finished
