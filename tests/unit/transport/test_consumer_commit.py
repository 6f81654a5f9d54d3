"""Commits of the consumer's thread: the offsets that they carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from laws.model_process import EagerLoop, Ledger
from skewless.errors import LimitError
from skewless.records import Output
from skewless.transport.consumer import ConsumerThread
from skewless.transport.failures import RewindError
from skewless.transport.flushing_outbox import FlushingOutbox
from skewless.transport.membership import GroupMembership
from skewless.transport.resumption import Input
from skewless.transport.session import Session, Taken
from skewless.transport.settings import KafkaSettings, TransportSettings


class Talkative(Ledger):
    """Writes a record at each flush. Its checkpoint does not change, as that of a splitter that reports idle."""

    def flush(self, now: int) -> Iterator[Output]:
        yield Output("out", b"idle", partition=0)


class Recorder(FlushingOutbox):
    """Keeps the offsets of each commit."""

    def __init__(self, transport: TransportSettings) -> None:
        super().__init__(KafkaSettings(), transport, str)
        self.commits: list[list[tuple[int, int]]] = []
        self.slow_s = 0.0
        """Time that writing takes; the broker then aborts."""

    def send(self, outputs: Iterable[Output]) -> None:
        self.dirty = bool(list(outputs)) or self.dirty

    def commit(self, offsets: Sequence[TopicPartition], consumer: Consumer) -> None:
        if self.slow_s:
            self.uncommitted.records, self.uncommitted.seconds = 4_000_000, self.slow_s
            raise RewindError("the broker aborted the transaction")
        self.commits.append([(at.partition, at.offset) for at in offsets])
        self.dirty = False


class Positioned:
    """A consumer that has fetched nothing yet."""

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(at.topic, at.partition, -1001) for at in partitions]

    def get_watermark_offsets(self, at: TopicPartition, *, cached: bool) -> tuple[int, int]:
        return 0, -1001


def thread_of(step: Ledger) -> tuple[ConsumerThread, Recorder]:
    transport = TransportSettings(guarantee="at_least_once")
    outbox, session = Recorder(transport), Session(step)
    thread = ConsumerThread(
        loop=cast("Any", EagerLoop()),
        session=session,
        outbox=outbox,
        source=Input("g", "in", internal=False, shape=None),
        options={"group.id": "g"},
        transport=transport,
        connect_timeout_s=1,
        deliver=lambda _batch: None,
        assigned=lambda _partitions: None,
        stopped=lambda _failure: None,
        restore=lambda _positions: {},
        membership=GroupMembership({}, "g", "i"),
    )
    session.send = outbox.send
    thread._consumer = cast("Any", Positioned())
    return thread, outbox


def test_commit_of_outputs_without_new_offsets_carries_an_owned_partition_so_that_the_group_can_fence_it() -> None:
    thread, outbox = thread_of(Talkative(drain=False))
    thread._session.assign({2: Taken(7, '{"count": 5}'), 3: Taken(9, '{"count": 5}')})
    thread._owned = {2, 3}
    thread._commit()
    first = outbox.commits.pop()
    assert dict(first).keys() <= {2, 3}
    thread._commit()
    assert outbox.commits == [[(2, 7)]]


def test_commit_without_outputs_and_news_is_none() -> None:
    thread, outbox = thread_of(Ledger(drain=False))
    thread._session.assign({2: Taken(7, None)})
    thread._owned = {2}
    thread._commit()
    thread._commit()
    assert outbox.commits == [[(2, 7)]]


def test_commit_that_is_aborted_twice_because_writing_takes_too_long_ends_with_setting_and_size() -> None:
    thread, outbox = thread_of(Talkative(drain=False))
    thread._session.assign({2: Taken(7, None)})
    thread._owned = {2}
    outbox.slow_s = 20.0
    with pytest.raises(RewindError):
        thread._commit()
    with pytest.raises(LimitError, match=r"transaction_timeout_s \(15 s\).* 4,000,000 records"):
        thread._commit()


def test_commit_that_an_outage_aborts_twice_is_repeated() -> None:
    thread, outbox = thread_of(Talkative(drain=False))
    thread._session.assign({2: Taken(7, None)})
    thread._owned = {2}
    outbox.slow_s = 1.0
    for _ in range(3):
        with pytest.raises(RewindError):
            thread._commit()
