"""Executor in the event loop while partitions are assigned and revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import pytest
from confluent_kafka import Message

from helpers.engine import assign, at, batch_of
from skewless.engine.assignment import CommitPoint
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import Step
from skewless.wire.record import Batch, OutputRecord


class Copy(Step):
    """Writes each record that it reads, and is always finished."""

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        pass

    def revoke(self, partition: int) -> None:
        pass

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        for value in batch.values:
            yield OutputRecord("copy", value)

    def flush(self, now: int) -> Iterable[OutputRecord]:
        return ()

    def checkpoint(self, partition: int) -> str:
        return ""

    def watermark(self, partition: int) -> int | None:
        return None

    def finished(self, partition: int) -> bool:
        return True


@pytest.fixture
def sent() -> list[OutputRecord]:
    return []


@pytest.fixture
def executor(sent: list[OutputRecord]) -> StepExecutor:
    executor = StepExecutor(Copy(), drain=True)
    executor.send = sent.extend
    assign(executor, {0: RestoredPartition(0, None)})
    return executor


def batch(executor: StepExecutor, offset: int) -> MessageBatch:
    delivered = batch_of(executor, [Message("t", 0, offset, value=b"%d" % offset)])
    assert executor.deliver(delivered)
    return delivered


def test_executor_commit_that_revokes_a_partition_drops_its_waiting_batch(
    executor: StepExecutor, sent: list[OutputRecord]
) -> None:
    async def give_up_while_the_second_waits() -> None:
        first, second = batch(executor, 0), batch(executor, 1)
        await executor.process(first)
        prepared = executor.begin_commit({})
        waiting = asyncio.ensure_future(executor.process(second))
        await asyncio.sleep(0)
        executor.end_commit(prepared, revoked={at(0)})
        await waiting
        assert prepared == {at(0): CommitPoint(1, "")}

    asyncio.run(give_up_while_the_second_waits())
    assert [output.value for output in sent] == [b"0"]


def test_executor_bounded_run_between_revocation_and_assignment_is_not_finished(executor: StepExecutor) -> None:
    executor.end_of_partition(at(0), executor.assignment.generation)
    seen = [executor.finished]
    executor.end_commit(executor.begin_commit({}), revoked={at(0)})
    seen.append(executor.finished)
    executor.end_commit(executor.begin_commit({}))
    seen.append(executor.finished)
    assign(executor, {})
    seen.append(executor.finished)
    assert seen == [True, False, False, True]
