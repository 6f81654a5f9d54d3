"""The loop's side of the transport, at the moments when partitions come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import pytest
from confluent_kafka import Message

from skewless.records import Batch, Output
from skewless.step import Step
from skewless.transport.batch import MessageBatch
from skewless.transport.session import CommitPoint, Session, Taken


class Copy(Step):
    """Writes what it reads, and has always come to the end."""

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        pass

    def revoke(self, partition: int) -> None:
        pass

    def process(self, batch: Batch, now: int) -> Iterator[Output]:
        for value in batch.values:
            yield Output("copy", value)

    def flush(self, now: int) -> Iterable[Output]:
        return ()

    def position(self, partition: int) -> str:
        return ""

    def watermark(self, partition: int) -> int | None:
        return None

    def finished(self, partition: int) -> bool:
        return True


@pytest.fixture
def sent() -> list[Output]:
    return []


@pytest.fixture
def session(sent: list[Output]) -> Session:
    session = Session(Copy(), drain=True)
    session.send = sent.extend
    session.assign({0: Taken(0, None)})
    return session


def batch(session: Session, offset: int) -> MessageBatch:
    handed = MessageBatch(0, session.generation, [Message("t", 0, offset, value=b"%d" % offset)])
    assert session.hand(handed)
    return handed


def test_a_batch_that_waits_for_a_commit_is_dropped_when_its_partition_is_given_up_by_it(
    session: Session, sent: list[Output]
) -> None:
    async def give_up_while_the_second_waits() -> None:
        first, second = batch(session, 0), batch(session, 1)
        await session.process(first)
        prepared = session.prepare({})
        waiting = asyncio.ensure_future(session.process(second))
        await asyncio.sleep(0)
        session.committed(prepared, given_up={0})
        await waiting
        assert prepared == {0: CommitPoint(1, "")}

    asyncio.run(give_up_while_the_second_waits())
    assert [output.value for output in sent] == [b"0"]


def test_a_bounded_run_is_not_over_between_losing_partitions_and_being_told_the_new_ones(session: Session) -> None:
    session.end_of_partition(0, session.generation)
    seen = [session.finished]
    session.committed(session.prepare({}), given_up={0})
    seen.append(session.finished)
    session.committed(session.prepare({}))
    seen.append(session.finished)
    session.assign({})
    seen.append(session.finished)
    assert seen == [True, False, False, True]
