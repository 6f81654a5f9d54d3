"""Commits of the consumer's thread: the offsets that they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from helpers.engine import TOPIC, adopt, assign, at, batch_of, consumer_thread
from helpers.messages import message
from laws.model_broker import Clock
from laws.model_process import Ledger
from skewless.engine.consumer_loop import ConsumerThread
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import Input
from skewless.errors import BrokerError, FencedError, TransactionAbortedError, UnavailableError, UnreachableError
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import CommittedOffset, TopicPartition


class EveryFlush(Ledger):
    """Writes a record at each flush. Its checkpoint does not change, like a splitter's that reports idle."""

    def flush(self, now: int) -> Iterator[OutputRecord]:
        yield OutputRecord("out", b"idle", partition=0)


class Recorder(AtLeastOnceProducer):
    """Records the offsets of each commit."""

    def __init__(self, transport: TransportSettings) -> None:
        super().__init__(KafkaSettings(), transport, str)
        self.commits: list[list[tuple[int, int]]] = []
        self.fails = self.fenced = False

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        self.dirty = bool(list(outputs)) or self.dirty

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if self.fails:
            raise TransactionAbortedError("the broker aborted the transaction")
        if self.fenced:
            raise FencedError("the coordinator knows another member")
        self.commits.append([(partition.partition, committed.offset) for partition, committed in offsets.items()])
        self.dirty = False


class Positioned:
    """A consumer that has fetched nothing yet."""

    def position(self, partitions: list[KafkaPartition]) -> list[KafkaPartition]:
        return [KafkaPartition(at.topic, at.partition, -1001) for at in partitions]

    def get_watermark_offsets(self, at: KafkaPartition, *, cached: bool) -> tuple[int, int]:
        return 0, -1001


def thread_of(step: Ledger, *, leave_group_on_close: bool = True) -> tuple[ConsumerThread, Recorder]:
    transport = TransportSettings(
        guarantee="at_least_once", session_timeout_s=10, leave_group_on_close=leave_group_on_close
    )
    producer, executor = Recorder(transport), StepExecutor(step)
    runtime = StageRuntime(
        kafka=KafkaSettings(),
        transport=transport,
        executor=executor,
        output=producer,
        inputs=(Input("g", TOPIC, kind="user", state_schema=None),),
        group_instance_id="i",
    )
    thread = consumer_thread(runtime, lambda _batch: None)
    executor.send = producer.send
    adopt(thread, Positioned())
    return thread, producer


def reset(thread: ConsumerThread) -> None:
    """Restore partition 2 after an abort."""
    thread._executor.reset()
    thread._executor.assign({at(2): RestoredPartition(7, None)})


def test_consumer_loop_commit_without_new_offsets_sends_an_assigned_offset_for_fencing() -> None:
    thread, producer = thread_of(EveryFlush(drain=False))
    assign(thread._executor, {2: RestoredPartition(7, '{"count": 5}'), 3: RestoredPartition(9, '{"count": 5}')})
    thread._commit()
    first = producer.commits.pop()
    assert dict(first).keys() <= {2, 3}
    thread._commit()
    assert producer.commits == [[(2, 7)]]


class Ahead(Positioned):
    """A consumer that has returned a record of partition 2, which the loop has not delivered yet."""

    def position(self, partitions: list[KafkaPartition]) -> list[KafkaPartition]:
        return [KafkaPartition(at.topic, at.partition, 8) for at in partitions]


def test_consumer_loop_revoked_within_a_poll_does_not_commit_beyond_the_delivered_records() -> None:
    thread, producer = thread_of(Ledger(drain=False))
    assign(thread._executor, {2: RestoredPartition(7, None)})
    adopt(thread, Ahead())
    thread._rebalance._revoke({at(2)})
    assert producer.commits == [[(2, 7)]]


def test_consumer_loop_commit_between_polls_moves_the_offset_to_the_position() -> None:
    thread, producer = thread_of(Ledger(drain=False))
    assign(thread._executor, {2: RestoredPartition(7, None)})
    adopt(thread, Ahead())
    thread._commit()
    assert producer.commits == [[(2, 8)]]


def test_consumer_loop_nothing_to_commit_sends_no_commit() -> None:
    thread, producer = thread_of(Ledger(drain=False))
    assign(thread._executor, {2: RestoredPartition(7, None)})
    thread._commit()
    thread._commit()
    assert producer.commits == [[(2, 7)]]


class Unanswered(Recorder):
    """A producer whose broker does not respond."""

    def __init__(self, transport: TransportSettings) -> None:
        super().__init__(transport)
        self.created = 0

    def connect(self) -> None:
        if not self.ready:
            self.created += 1
            self.ready = True
        raise UnavailableError("no broker")


def test_consumer_loop_producer_silent_during_restore_is_replaced_once_the_group_confirms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, _ = thread_of(Ledger(drain=False))
    producer = Unanswered(TransportSettings(guarantee="at_least_once"))
    now, requested, asked = [0.0], list[float](), list[object]()
    monkeypatch.setattr("skewless.engine.restore.time.monotonic", lambda: now[0])
    monkeypatch.setattr(thread._restorer, "_read_topic_ids", asked.append)
    monkeypatch.setattr(thread._restorer, "_output", producer)
    monkeypatch.setattr(thread._session, "serve", lambda _wait_s: None)
    adopt(thread, Member())

    def member_id() -> str:
        requested.append(now[0])
        return "member"

    monkeypatch.setattr(thread._session._membership, "member_id", member_id)
    thread._assignment.begin([at(0)])
    for now[0] in range(25):
        thread._rebalance.restore()
    assert producer.created == 3, "at 0, and after each 10 s"
    assert requested == [11.0, 22.0], "each new producer needs the membership confirmed"
    assert asked == [], "a client is created for each request"


class Member(Positioned):
    """A consumer that is a member of its group until it loses its membership."""

    lost = False

    def memberid(self) -> str | None:
        return None if self.lost else "member"


def use_clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("consumer_loop", "group_session"):
        monkeypatch.setattr(f"skewless.engine.{module}.time", clock)


UNANSWERED = "no answer"


def fenced(
    finder: str, members: list[str | None], monkeypatch: pytest.MonkeyPatch, *, lost: bool = False
) -> tuple[ConsumerThread, list[TransactionAbortedError]]:
    """Return a thread that is fenced in its next iteration, as its consumer or its commit finds.

    `members` answers requests for the member. `lost`: whether the consumer has lost its membership before.
    """
    thread, producer = thread_of(Ledger(drain=False))
    clock, resets = Clock(), list[TransactionAbortedError]()
    answers = iter(members)
    assign(thread._executor, {2: RestoredPartition(7, None)})
    adopt(thread, member := Member())
    thread._session._member_id, member.lost = "member", lost

    def poll() -> list[Message]:
        if finder == "consumer":
            thread._session._on_error(KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", fatal=True))
            thread._session._raise_failure_of_callback()
        return []

    use_clock(clock, monkeypatch)
    producer.fenced = thread._executor.commit_wanted = finder == "commit"
    monkeypatch.setattr(thread, "_poll", poll)
    monkeypatch.setattr(thread._rebalance, "reset", resets.append)

    def member_id() -> str | None:
        if (answer := next(answers, members[-1])) == UNANSWERED:
            raise UnavailableError("no broker")
        return answer

    monkeypatch.setattr(thread._session._membership, "member_id", member_id)
    return thread, resets


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("finder", ["consumer", "commit"])
@pytest.mark.parametrize(
    "answers", [[*["i-ghost"] * 45, None], ["i-ghost", "member"], [UNANSWERED, None], [UNANSWERED, "i-ghost", None]]
)
def test_consumer_loop_fenced_by_its_own_join_request_joins_again(
    finder: str, answers: list[str | None], monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    thread, resets = fenced(finder, answers, monkeypatch, lost=lost)
    thread._run_once()
    assert [failure.rejoin for failure in resets] == [True]
    assert not thread._assignment.partitions, "it must not process what it cannot commit"


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("finder", ["consumer", "commit"])
@pytest.mark.parametrize(
    "answers",
    [
        ["i-successor"],
        # The successor's session has expired in an outage, and it joins again.
        [*[UNANSWERED] * 3, *[None] * 45, "i-successor"],
        [*["i-successor"] * 3, *[UNANSWERED] * 3, "i-successor", *[None] * 45, "i-successor-2"],
        [None, "i-successor"],
    ],
)
def test_consumer_loop_fenced_by_a_member_that_stays_ends(
    finder: str, answers: list[str | None], monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    thread, resets = fenced(finder, answers, monkeypatch, lost=lost)
    with pytest.raises(FencedError):
        thread._run_once()
    assert resets == []


def noted(calls: list[str], name: str, method: Callable[..., None]) -> Callable[..., None]:
    """Return a method that notes each of its calls."""

    def call(**arguments: bool) -> None:
        calls.append(name)
        method(**arguments)

    return call


@pytest.mark.parametrize("is_lost", ["session", "membership"])
def test_consumer_loop_lost_partitions_close_the_output_before_its_transaction_is_aborted(
    is_lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, resets = fenced("consumer", ["member"], monkeypatch, lost=True)
    calls, output = list[str](), thread._output
    for name in ("close", "abort"):
        monkeypatch.setattr(output, name, noted(calls, name, getattr(output, name)))
    if is_lost == "session":
        thread._rebalance._lose({at(2)})
    else:
        thread._run_once()
    assert calls[:2] == ["close", "abort"]
    assert not thread._assignment.partitions
    assert len(resets) == (is_lost == "membership")


@pytest.mark.parametrize(("registered", "resets"), [(None, 2), ("i-other", 0)])
def test_consumer_loop_long_without_assignment_joins_again_unless_the_instance_is_known(
    registered: str | None, resets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, _ = thread_of(Ledger(drain=False))
    clock, failures = Clock(), list[TransactionAbortedError]()
    use_clock(clock, monkeypatch)
    monkeypatch.setattr(thread, "_poll", list)
    monkeypatch.setattr(thread._rebalance, "reset", failures.append)
    monkeypatch.setattr(thread._session._membership, "member_id", lambda: registered)
    for _ in range(40):
        thread._run_once()
        clock.advance(1.0)
    assert [failure.rejoin for failure in failures] == [True] * resets


def test_consumer_loop_empty_assignment_does_not_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, _ = thread_of(Ledger(drain=False))
    clock, failures = Clock(), list[TransactionAbortedError]()
    use_clock(clock, monkeypatch)
    monkeypatch.setattr(thread, "_poll", list)
    monkeypatch.setattr(thread._rebalance, "reset", failures.append)
    monkeypatch.setattr(thread._session._membership, "member_id", lambda: None)
    assign(thread._executor, {})
    for _ in range(40):
        thread._run_once()
        clock.advance(1.0)
    assert failures == []


@pytest.mark.parametrize("finder", ["fails", "fenced"])
def test_consumer_loop_failed_commit_before_unreadable_records_reads_them_again(
    finder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, producer = thread_of(Ledger(drain=False))
    monkeypatch.setattr(thread._rebalance, "reset", lambda _failure: reset(thread))
    monkeypatch.setattr(thread._rebalance, "join_again_unless_replaced", lambda _failure: reset(thread))
    monkeypatch.setattr(thread, "_poll", list)
    assign(thread._executor, {2: RestoredPartition(7, None)})
    thread._unreadable[at(2)] = BrokerError("the group has committed everything before it")
    setattr(producer, finder, True)
    thread._run_once()
    setattr(producer, finder, False)
    thread._run_once()
    assert not thread._unreadable


@pytest.mark.parametrize("finder", ["fails", "fenced"])
@pytest.mark.parametrize("stops", [False, True])
def test_consumer_loop_commit_that_fails_during_a_stop_is_reported(
    finder: str,
    stops: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, producer = thread_of(Ledger(drain=False))
    monkeypatch.setattr(thread._rebalance, "reset", lambda _failure: reset(thread))
    monkeypatch.setattr(thread._rebalance, "join_again_unless_replaced", lambda _failure: reset(thread))

    def poll() -> list[Message]:
        if stops:
            thread.stop()
        return []

    monkeypatch.setattr(thread, "_poll", poll)
    assign(thread._executor, {2: RestoredPartition(7, None)})
    thread._executor.commit_wanted = True
    setattr(producer, finder, True)
    with pytest.raises(UnreachableError, match="the last commit failed, so its") if stops else nullcontext():
        thread._run_once()


@pytest.mark.parametrize(("in_flight", "ends"), [(2, False), (3, True)])
def test_consumer_loop_unreadable_records_wait_only_for_batches_of_their_partition(
    in_flight: int,
    ends: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    thread, producer = thread_of(Ledger(drain=False))
    executor = thread._executor
    assign(executor, {2: RestoredPartition(7, None), 3: RestoredPartition(9, None)})
    executor.deliver(batch_of(executor, [message(9, partition=in_flight)], in_flight))
    thread._unreadable[at(2)] = BrokerError("a record batch is damaged")
    with pytest.raises(BrokerError, match="damaged") if ends else nullcontext():
        thread._finish_before_unreadable()
    assert producer.commits == ([[(2, 7), (3, 9)]] if ends else [])
    assert bool(thread._assignment.partitions) != ends, "a batch that is processed later would begin a transaction"


@pytest.mark.parametrize("failures", [[], [UnavailableError("no broker")]])
def test_consumer_loop_check_of_topics_that_is_answered_ends_an_outage(failures: list[Exception]) -> None:
    thread, _ = thread_of(Ledger(drain=False))
    thread._session.outage.warn("no broker is reachable")

    def read_topic_ids(_topics: object) -> dict[str, int]:
        for failure in failures:
            raise failure
        return {}

    thread._restorer._read_topic_ids = read_topic_ids
    thread._check_topics()
    assert thread._session.outage.waiting == bool(failures)


@pytest.mark.parametrize(
    ("partition_counts", "leave_group_on_close", "leaves"),
    [({}, True, True), ({TOPIC: 2}, True, True), ({TOPIC: 1}, True, False), ({TOPIC: 2}, False, False)],
)
def test_consumer_loop_stopped_leaves_the_group_unless_it_has_all_partitions_or_a_setting_says_no(
    partition_counts: dict[str, int],
    leave_group_on_close: bool,  # noqa: FBT001 - a parameter of the test
    leaves: bool,  # noqa: FBT001 - as above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, _ = thread_of(Ledger(drain=False), leave_group_on_close=leave_group_on_close)
    left: list[bool] = []
    monkeypatch.setattr(thread._session, "leave", lambda: left.append(True))
    monkeypatch.setattr(thread._session, "close", lambda: None)
    thread._assignment.begin([at(0)])
    thread._restorer.partition_counts = partition_counts
    thread.stop(leave=True)
    thread._close(clean=True)
    assert bool(left) == leaves
