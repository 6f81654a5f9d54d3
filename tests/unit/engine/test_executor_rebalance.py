"""The loop's side of the transport, at the moments when partitions come and go."""

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
    """Writes what it reads, and has always come to the end."""

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
def session(sent: list[OutputRecord]) -> StepExecutor:
    session = StepExecutor(Copy(), drain=True)
    session.send = sent.extend
    assign(session, {0: RestoredPartition(0, None)})
    return session


def batch(session: StepExecutor, offset: int) -> MessageBatch:
    handed = batch_of(session, [Message("t", 0, offset, value=b"%d" % offset)])
    assert session.deliver(handed)
    return handed


def test_executor_commit_that_revokes_a_partition_drops_its_waiting_batch(
    session: StepExecutor, sent: list[OutputRecord]
) -> None:
    async def give_up_while_the_second_waits() -> None:
        first, second = batch(session, 0), batch(session, 1)
        await session.process(first)
        prepared = session.begin_commit({})
        waiting = asyncio.ensure_future(session.process(second))
        await asyncio.sleep(0)
        session.end_commit(prepared, revoked={at(0)})
        await waiting
        assert prepared == {at(0): CommitPoint(1, "")}

    asyncio.run(give_up_while_the_second_waits())
    assert [output.value for output in sent] == [b"0"]


def test_executor_bounded_run_between_revocation_and_assignment_is_not_finished(session: StepExecutor) -> None:
    session.end_of_partition(at(0), session.assignment.generation)
    seen = [session.finished]
    session.end_commit(session.begin_commit({}), revoked={at(0)})
    seen.append(session.finished)
    session.end_commit(session.begin_commit({}))
    seen.append(session.finished)
    assign(session, {})
    seen.append(session.finished)
    assert seen == [True, False, False, True]
