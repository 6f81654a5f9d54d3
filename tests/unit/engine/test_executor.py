"""Executor with a step that records its calls. Batches are real; their messages are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from helpers.engine import assign, at, batch_of, revoke
from helpers.messages import message
from skewless.engine.assignment import CommitPoint
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import Step
from skewless.errors import RegistryError, TransactionAbortedError, UnreachableError
from skewless.wire.record import Batch, OutputRecord


class Notes(Step):
    """Records calls. Its checkpoint is the number of records that it has processed."""

    wants_commit = False
    blocked: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.seen: dict[int, int] = {}
        self.ended: set[int] = set()
        self.invalid_offset: int | None = None

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        self.calls.append(("assign", partition, checkpoint, list(state)))
        self.seen[partition] = int(checkpoint or 0)

    def revoke(self, partition: int) -> None:
        self.calls.append(("revoke", partition))
        del self.seen[partition]

    def process(self, batch: Batch, now: int) -> Iterable[OutputRecord]:
        offsets = [message.offset() for message in batch.messages] if isinstance(batch, MessageBatch) else []
        self.calls.append(("process", batch.partition, offsets, now))
        if self.invalid_offset in offsets:
            raise ZeroDivisionError
        self.seen[batch.partition] += len(offsets)
        return [OutputRecord("out", b"processed")]

    def flush(self, now: int) -> Iterable[OutputRecord]:
        self.calls.append(("flush", now))
        return [OutputRecord("out", b"flushed")]

    def checkpoint(self, partition: int) -> str:
        return str(self.seen[partition])

    def watermark(self, partition: int) -> int | None:
        return self.seen[partition]

    def finished(self, partition: int) -> bool:
        return partition in self.ended

    def end_of_partition(self, partition: int, now: int) -> None:
        self.calls.append(("end", partition, now))
        self.ended.add(partition)

    def up_to_date(self, partition: int, now: int) -> None:
        self.calls.append(("up to date", partition, now))

    def records_in_flight(self, partition: int) -> None:
        self.calls.append(("wait", partition))


class Bench:
    """An executor with a step and a list of its outputs."""

    def __init__(
        self, *, drain: bool = False, partitions: Sequence[int] = (0,), renew_offsets_ms: int | None = None
    ) -> None:
        self.step = Notes()
        self.now = 42
        self.executor = StepExecutor(self.step, drain=drain, clock=lambda: self.now, renew_offsets_ms=renew_offsets_ms)
        self.sent: list[bytes | None] = []
        self.executor.send = lambda outputs: self.sent.extend(output.value for output in outputs)
        if partitions:
            self.assign({partition: RestoredPartition(0, None) for partition in partitions})

    def assign(self, restored: Mapping[int, RestoredPartition]) -> None:
        assign(self.executor, restored)

    def revoke(self) -> None:
        revoke(self.executor, [0])

    def begin_commit(self, fetched: Mapping[int, tuple[int, int | None]]) -> Mapping[int, CommitPoint]:
        points = self.executor.begin_commit({at(partition): position for partition, position in fetched.items()})
        return {partition.partition: point for partition, point in points.items()}

    def end_commit(self, points: Mapping[int, CommitPoint]) -> None:
        self.executor.end_commit({at(partition): point for partition, point in points.items()})

    def end_of_partition(self, generation_back: int = 0) -> None:
        self.executor.end_of_partition(at(0), self.executor.assignment.generation - generation_back)

    def batch(self, *offsets: int, partition: int = 0) -> MessageBatch:
        return batch_of(self.executor, [message(offset, b"x" * 10) for offset in offsets], partition)

    def deliver_batch(self, *offsets: int, partition: int = 0) -> MessageBatch:
        batch = self.batch(*offsets, partition=partition)
        assert self.executor.deliver(batch)
        return batch

    def processed(self) -> list[list[int]]:
        return [call[2] for call in self.step.calls if call[0] == "process"]


async def settle() -> None:
    """Run the event loop until no task is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_executor_commit_contains_outputs_flush_and_next_offset() -> None:
    bench = Bench()
    first, _ = bench.deliver_batch(3, 4), bench.deliver_batch(7)
    await bench.executor.process(first)
    assert bench.begin_commit({}) == {0: CommitPoint(5, "2")}
    assert bench.sent == [b"processed", b"flushed"]
    assert bench.step.calls[1:] == [("process", 0, [3, 4], 42), ("wait", 0), ("flush", 42)]


async def test_executor_commit_in_progress_holds_batches_in_order() -> None:
    bench = Bench()
    first, second = bench.deliver_batch(1), bench.deliver_batch(2)
    prepared = bench.begin_commit({})
    tasks = [asyncio.create_task(bench.executor.process(batch)) for batch in (first, second)]
    await settle()
    assert bench.processed() == []
    bench.end_commit(prepared)
    await asyncio.gather(*tasks)
    assert bench.processed() == [[1], [2]]


async def test_executor_step_requests_a_commit_keeps_the_request_until_the_flush() -> None:
    bench = Bench()
    bench.step.wants_commit = True
    expected = [bench.executor.commit_wanted]
    await bench.executor.process(bench.deliver_batch(1))
    expected.append(bench.executor.commit_wanted)
    bench.begin_commit({})
    expected.append(bench.executor.commit_wanted)
    assert expected == [False, True, False]


async def test_executor_step_that_stops_for_its_commit_processes_nothing_before_it() -> None:
    bench = Bench()
    bench.step.wants_commit = bench.step.stops_for_commit = True
    first, second = bench.deliver_batch(1), bench.deliver_batch(2)
    await bench.executor.process(first)
    waiting = asyncio.create_task(bench.executor.process(second))
    await settle()
    assert bench.processed() == [[1]]
    bench.end_commit(bench.begin_commit({}))
    await waiting
    assert bench.processed() == [[1], [2]]


async def test_executor_step_that_blocks_the_same_partition_after_a_reset_is_obeyed() -> None:
    bench = Bench()
    bench.step.blocked = frozenset({0})
    await bench.executor.process(bench.deliver_batch(1))
    bench.executor.reset()
    bench.executor.assign({at(0): RestoredPartition(1, None)})
    await bench.executor.process(bench.deliver_batch(1))
    assert bench.executor.assignment[at(0)].blocked


async def test_executor_before_the_first_assignment_processes_nothing() -> None:
    bench = Bench(partitions=())
    bench.executor.assignment.begin([at(0)])
    batch = bench.batch(1)
    task = asyncio.create_task(bench.executor.process(batch))
    await settle()
    assert not task.done()
    bench.executor.assign({at(0): RestoredPartition(0, None)})
    bench.executor.deliver(batch)
    await task
    assert bench.processed() == [[1]]


async def test_executor_batch_of_an_earlier_assignment_is_ignored() -> None:
    bench = Bench()
    delivered, stale = bench.deliver_batch(1), bench.batch(2)
    bench.revoke()
    bench.assign({0: RestoredPartition(1, "1", ())})
    assert not bench.executor.deliver(stale)
    await bench.executor.process(delivered)
    assert bench.processed() == []
    assert (bench.executor.assignment.retired_batches, bench.executor.assignment.retired_bytes) == (2, 20)
    assert bench.executor.room_available.is_set()


async def test_executor_batch_waiting_for_a_commit_is_ignored_when_its_partition_is_lost() -> None:
    bench = Bench()
    batch = bench.deliver_batch(1)
    bench.begin_commit({})
    task = asyncio.create_task(bench.executor.process(batch))
    await settle()
    bench.revoke()
    bench.assign({0: RestoredPartition(0, None)})
    await task
    assert bench.processed() == []


async def test_executor_step_raises_stops_processing_and_the_commit_raises() -> None:
    bench = Bench()
    bench.step.invalid_offset = 2
    batches = [bench.deliver_batch(1), bench.deliver_batch(2), bench.deliver_batch(3)]
    tasks = [asyncio.create_task(bench.executor.process(batch)) for batch in batches]
    await settle()
    assert bench.processed() == [[1], [2]]
    failure = bench.executor.failure
    assert isinstance(failure, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        bench.begin_commit({})
    assert b"flushed" not in bench.sent
    bench.revoke()
    bench.assign({0: RestoredPartition(0, None)})
    await asyncio.gather(*tasks)
    assert bench.executor.failure is None
    assert bench.processed() == [[1], [2]]


async def test_executor_server_that_a_step_waited_for_in_vain_resets_the_partitions_at_the_commit() -> None:
    bench = Bench()
    bench.executor.fail(UnreachableError("no schema registry answers"))
    with pytest.raises(TransactionAbortedError, match="no schema registry answers"):
        bench.begin_commit({})


async def test_executor_failure_before_a_reset_is_forgotten_if_the_partitions_are_lost_after_it() -> None:
    bench = Bench()
    bench.executor.fail(UnreachableError("no schema registry answers"))
    bench.executor.reset()
    bench.executor.assignment.abandon_restore()
    bench.executor.check_failure()


async def test_executor_failure_during_a_commit_ends_processing_with_its_own_error() -> None:
    bench = Bench()
    first, second = bench.deliver_batch(1), bench.deliver_batch(2)
    points = bench.begin_commit({})
    bench.executor.fail(RegistryError("the registry refuses this client"))  # the first batch waited for a schema
    bench.end_commit(points)
    task = asyncio.create_task(bench.executor.process(second))
    await settle()
    assert isinstance(bench.executor.failure, RegistryError)
    assert (bench.processed(), first.next_offset, task.done()) == ([], 2, False)
    task.cancel()


async def test_executor_awaited_conditions_before_a_batch_are_checked_until_none_is_left() -> None:
    bench = Bench()
    waits = [asyncio.Event(), asyncio.Event()]
    left = list(waits)

    async def wait(event: asyncio.Event) -> None:
        await event.wait()

    task = asyncio.create_task(
        bench.executor.process(bench.deliver_batch(1), lambda _batch: wait(left.pop(0)) if left else None)
    )
    for event in waits:
        await settle()
        assert bench.processed() == []
        event.set()
    await task
    assert bench.processed() == [[1]]


async def test_executor_partition_lost_while_a_batch_waits_is_not_processed() -> None:
    bench = Bench()
    event = asyncio.Event()

    async def wait() -> None:
        await event.wait()

    task = asyncio.create_task(bench.executor.process(bench.deliver_batch(1), lambda _batch: wait()))
    await settle()
    bench.revoke()
    event.set()
    bench.assign({0: RestoredPartition(0, None)})
    await task
    assert bench.processed() == []


async def test_executor_commit_without_changes_is_empty() -> None:
    bench = Bench(partitions=(0, 1))
    await bench.executor.process(bench.deliver_batch(1))
    prepared = bench.begin_commit({})
    assert prepared == {0: CommitPoint(2, "1"), 1: CommitPoint(0, "0")}
    bench.end_commit(prepared)
    assert bench.begin_commit({}) == {}


async def test_executor_unchanged_offsets_that_expire_are_committed_after_a_start_and_each_interval() -> None:
    bench = Bench(partitions=(), renew_offsets_ms=1000)
    bench.assign({0: RestoredPartition(9, "5"), 1: RestoredPartition(3, "7")})
    unchanged = {0: CommitPoint(9, "5"), 1: CommitPoint(3, "7")}
    assert bench.begin_commit({}) == unchanged  # the age of restored offsets is unknown
    bench.end_commit(unchanged)

    bench.now += 999
    await bench.executor.process(bench.deliver_batch(9))
    prepared = bench.begin_commit({})
    assert prepared == {0: CommitPoint(10, "6")}
    bench.end_commit(prepared)

    bench.now += 1
    prepared = bench.begin_commit({})
    assert prepared == {1: CommitPoint(3, "7")}
    bench.end_commit(prepared)
    assert bench.begin_commit({}) == {}
    bench.end_commit({})

    bench.now -= 5000  # the clock was set back
    assert bench.begin_commit({}).keys() == {0, 1}


async def test_executor_checkpoint_changed_without_records_is_committed_at_the_same_offset() -> None:
    bench = Bench(partitions=())
    bench.assign({0: RestoredPartition(9, "5"), 1: RestoredPartition(3, "7")})
    bench.step.seen[0] += 1
    assert bench.begin_commit({}) == {0: CommitPoint(9, "6")}


async def test_executor_commit_after_fetched_markers_advances_over_them() -> None:
    bench = Bench(partitions=())
    bench.assign({0: RestoredPartition(9, "5"), 1: RestoredPartition(3, "7"), 2: RestoredPartition(4, "8")})
    # Partition 0 has markers after its committed offset, partition 1 has none, and partition 2 has fetched nothing.
    prepared = bench.begin_commit({0: (12, 1), 1: (3, None)})
    assert prepared == {0: CommitPoint(12, "5", 1)}
    bench.end_commit(prepared)
    assert bench.begin_commit({0: (12, 1), 1: (3, None)}) == {}
    assert bench.executor.committed_offsets == {at(0): 12, at(1): 3, at(2): 4}


async def test_executor_commit_with_unprocessed_records_does_not_advance_over_them() -> None:
    bench = Bench(partitions=())
    bench.assign({0: RestoredPartition(1, "0")})
    batch = bench.deliver_batch(1, 2)
    assert bench.begin_commit({0: (5, None)}) == {}
    bench.end_commit({})
    await bench.executor.process(batch)
    assert bench.begin_commit({0: (5, None)}) == {0: CommitPoint(5, "2")}


async def test_executor_commit_point_of_an_unchanged_partition_has_its_committed_offset() -> None:
    bench = Bench(partitions=())
    bench.assign({0: RestoredPartition(9, "5", leader_epoch=4)})
    assert bench.begin_commit({}) == {}
    assert bench.executor.commit_point(at(0)) == CommitPoint(9, "5", 4)


async def test_executor_assignment_gives_the_step_checkpoint_and_state() -> None:
    bench = Bench(partitions=())
    bench.assign({4: RestoredPartition(9, "5", [(b"k", b"v")])})
    assert bench.step.calls == [("assign", 4, "5", [(b"k", b"v")])]


async def test_executor_assignment_keeps_no_state_that_the_step_has_taken() -> None:
    executor, states = StepExecutor(step := Notes()), {at(0): RestoredPartition(9, "5", [(b"k", b"v")])}
    states[at(1)] = RestoredPartition(9, "5")
    left: list[int] = []
    step.assign = lambda *_: left.append(len(states))  # type: ignore[method-assign]
    executor.assignment.begin(states)
    executor.assign(states)
    assert left == [1, 0]


async def test_executor_end_of_partition_is_passed_on_when_its_batches_are_processed() -> None:
    bench = Bench()
    batch = bench.deliver_batch(1)
    bench.end_of_partition()
    bench.end_commit(bench.begin_commit({}))
    assert bench.step.calls[-2:] == [("wait", 0), ("flush", 42)]
    await bench.executor.process(batch)
    bench.begin_commit({})
    assert bench.step.calls[-2:] == [("end", 0, 42), ("flush", 42)]


@pytest.mark.parametrize(("log_end", "expected"), [(2, "up to date"), (3, "wait")])
async def test_executor_partition_with_new_records_at_each_commit_is_up_to_date_without_earlier_ones(
    log_end: int, expected: str
) -> None:
    bench = Bench()
    bench.end_commit(bench.begin_commit({}))
    bench.executor.update_lag({at(0): (0, log_end)}, {})
    first, _ = bench.deliver_batch(1), bench.deliver_batch(2)
    await bench.executor.process(first)
    bench.end_commit(bench.begin_commit({}))
    assert [call[0] for call in bench.step.calls[-2:]] == [expected, "flush"]
    bench.begin_commit({})
    assert bench.step.calls[-2:] == [("wait", 0), ("flush", 42)], "nothing was processed since the last commit"


async def test_executor_end_of_partition_is_withdrawn_by_another_batch_or_generation() -> None:
    bench = Bench()
    bench.end_of_partition()
    await bench.executor.process(bench.deliver_batch(1))
    bench.end_of_partition(1)
    bench.begin_commit({})
    assert ("end", 0, 42) not in bench.step.calls


async def test_executor_bounded_run_is_finished_when_everything_is_processed_committed_and_ended() -> None:
    bench = Bench(drain=True, partitions=())
    assert not bench.executor.finished
    bench.assign({0: RestoredPartition(0, None)})
    batch = bench.deliver_batch(1)
    bench.step.ended.add(0)
    assert not bench.executor.finished
    await bench.executor.process(batch)
    prepared = bench.begin_commit({})
    assert not bench.executor.finished
    bench.end_commit(prepared)
    assert not bench.executor.finished
    bench.end_of_partition()
    assert bench.executor.finished


async def test_executor_bounded_run_at_its_end_before_the_last_commit_is_not_finished() -> None:
    bench = Bench(drain=True)
    batch = bench.deliver_batch(1)
    bench.step.ended.add(0)
    bench.end_of_partition()
    await bench.executor.process(batch)
    assert not bench.executor.finished
    bench.end_commit(bench.begin_commit({}))
    assert bench.executor.finished


async def test_executor_without_drain_is_never_finished() -> None:
    bench = Bench()
    bench.step.ended.add(0)
    assert not bench.executor.finished


async def test_executor_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_not_processed() -> None:
    bench = Bench()
    executor = bench.executor
    executor._clock = lambda: 60_000
    assert executor.lag_s == {}
    timed = [message(offset, timestamp_ms=timestamp) for offset, timestamp in ((3, 20_000), (4, 30_000))]
    batches = [batch_of(executor, [record], 0) for record in timed]
    for batch in batches:
        assert executor.deliver(batch)
    assert executor.lag_s == {at(0): 40.0}
    await executor.process(batches[0])
    assert executor.lag_s == {at(0): 30.0}
    await executor.process(batches[1])
    executor.lag = {at(0): 7}
    assert executor.lag_s == {at(0): 30.0}
    executor.lag = {at(0): 0}
    assert executor.lag_s == {at(0): 0.0}


async def test_executor_revoked_partition_has_no_metrics_of_its_last_commit() -> None:
    """A process may be left without any partition, and then commits nothing that would replace them."""
    bench = Bench(partitions=(0, 1))
    executor = bench.executor
    bench.end_commit(bench.begin_commit({}))
    executor.idle = frozenset({at(0)})
    executor.update_lag({at(0): (0, 5), at(1): (0, 6)}, {})
    executor.event_times = {at(0): 7, at(1): 8}
    assert executor.watermarks.keys() == executor.lag.keys() == {at(0), at(1)}
    bench.revoke()
    assert executor.watermarks.keys() == executor.lag.keys() == executor.log_ranges.keys() == {at(1)}
    assert (executor.event_times, executor.idle) == ({at(1): 8}, frozenset())


async def test_executor_lag_in_seconds_of_a_record_from_the_future_is_zero() -> None:
    bench = Bench()
    assert bench.executor.deliver(batch_of(bench.executor, [message(3, timestamp_ms=99_000)], 0))
    assert bench.executor.lag_s == {at(0): 0.0}
