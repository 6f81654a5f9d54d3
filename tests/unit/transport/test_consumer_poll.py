"""One poll of the consumer's thread, its consumer a stand-in that fails where a real one does once in a long while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from laws.model_process import EagerLoop, Ledger
from skewless.transport.batch import MessageBatch
from skewless.transport.consumer import ConsumerThread
from skewless.transport.flushing_outbox import FlushingOutbox
from skewless.transport.membership import GroupMembership
from skewless.transport.resumption import Input
from skewless.transport.session import Session
from skewless.transport.settings import KafkaSettings, TransportSettings


class Message:
    """The first record of a poll."""

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def value(self) -> bytes:
        return b"x"


class Failing:
    """Gives one record, and then an error that librdkafka mends by itself."""

    def poll(self, _timeout: float) -> Message:
        return Message()

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...


def consumer_thread(deliver: Callable[[MessageBatch], None]) -> ConsumerThread:
    transport = TransportSettings(guarantee="at_least_once", commit_interval_s=60, transaction_timeout_s=180)
    thread = ConsumerThread(
        loop=cast("Any", EagerLoop()),
        session=Session(Ledger(drain=False)),
        outbox=FlushingOutbox(KafkaSettings(), transport, str),
        source=Input("g", "in", internal=False, shape=None),
        options={"group.id": "g"},
        transport=transport,
        connect_timeout_s=1,
        deliver=deliver,
        assigned=lambda _partitions: None,
        stopped=lambda _failure: None,
        restore=lambda _positions: {},
        membership=GroupMembership({}, "g", "i"),
    )
    thread._consumer = cast("Any", Failing())
    return thread


def test_a_record_that_was_read_is_handed_over_whatever_comes_behind_it() -> None:
    delivered: list[MessageBatch] = []
    consumer_thread(delivered.append)._poll()
    assert [batch.next_offset for batch in delivered] == [8]


@pytest.mark.parametrize("wanted", [False, True])
def test_turn_session_wants_a_commit_commits_before_its_time(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a parameter of the test
    thread, commits = consumer_thread(lambda _batch: None), list[bool]()
    monkeypatch.setattr(thread, "_commit", lambda: commits.append(True))
    thread._owned = {0}
    thread._due = time.monotonic() + 60
    thread._session.commit_wanted = wanted
    thread._turn()
    assert bool(commits) == wanted
