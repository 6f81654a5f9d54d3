"""One poll of the consumer thread. A consumer in memory raises errors that a real one rarely raises."""

from __future__ import annotations

import ast
import inspect
import math
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from helpers.engine import TOPIC, adopt, assign, at, consumer_thread
from helpers.messages import message
from laws.model_process import Ledger
from skewless.engine import consumer_loop
from skewless.engine.commit_policy import IDLE_POLL_S, REST_S
from skewless.engine.consumer_loop import ConsumerThread
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import Input, OffsetsLostError
from skewless.errors import BrokerError, TransactionAbortedError, UnavailableError
from skewless.kafka.consumer.broker_queries import BrokerQueries
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.settings import METADATA_INTERVAL_MS, KafkaSettings, TransportSettings


class Failing:
    """Returns one record, and then an error, by default one from which librdkafka recovers by itself."""

    def __init__(self, code: int = KafkaError._TRANSPORT) -> None:
        self._code = code

    def poll(self, _timeout: float) -> Message:
        return message(7, topic=TOPIC)

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        raise KafkaException(KafkaError(self._code))

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...


def thread_of(
    deliver: Callable[[MessageBatch], None],
    consumer: Failing | Empty | None = None,
    kafka: Mapping[str, object] = MappingProxyType({}),
) -> ConsumerThread:
    transport = TransportSettings(guarantee="at_least_once", commit_interval_s=60, transaction_timeout_s=180)
    runtime = StageRuntime(
        kafka=KafkaSettings.model_validate(kafka),
        transport=transport,
        executor=StepExecutor(Ledger(drain=False)),
        output=AtLeastOnceProducer(KafkaSettings(), transport, str),
        inputs=(Input("g", TOPIC, kind="user", state_schema=None),),
        group_instance_id="i",
    )
    thread = consumer_thread(runtime, deliver)
    adopt(thread, consumer or Failing())
    return thread


def test_consumer_loop_error_after_a_record_still_delivers_the_record() -> None:
    delivered: list[MessageBatch] = []
    thread = thread_of(delivered.append)
    thread._deliver(thread._poll())
    assert [batch.next_offset for batch in delivered] == [8]


def login(sasl: object) -> dict[str, object]:
    return {"security_protocol": "SASL_SSL", "sasl": sasl}


def test_consumer_loop_refused_token_is_not_the_end() -> None:
    """The token may have expired within the login."""
    refused = Failing(KafkaError._AUTHENTICATION)
    endpoint = {"token_endpoint_url": "https://id.example/token", "client_id": "c", "client_secret": "s"}
    kafka = login({"mechanism": "OAUTHBEARER", "oauthbearer": endpoint})
    thread = thread_of(lambda _batch: None, refused, kafka)
    assert [each.offset() for each in thread._poll()] == [7]


def test_consumer_loop_refused_password_ends_the_process() -> None:
    refused = Failing(KafkaError._AUTHENTICATION)
    thread = thread_of(lambda _batch: None, refused, login({"username": "ann", "password": "p"}))
    with pytest.raises(BrokerError, match=r"authentication failed .*correct kafka\.sasl"):
        thread._poll()


def test_consumer_loop_refused_login_is_the_end_if_brokers_refuse_new_clients_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = thread_of(lambda _batch: None, kafka=login({"username": "ann", "password": "p"}))
    answers: list[Exception | None] = [UnavailableError("no answer"), None, BrokerError("for some seconds")]

    def member_id() -> str:
        if answer := answers.pop(0):
            raise answer
        return "member"

    monkeypatch.setattr(thread._session._membership, "member_id", member_id)
    thread._session._on_error(KafkaError(KafkaError._AUTHENTICATION))
    for _ in range(3):  # the third one does not ask: a broker has accepted a login since
        thread._poll()
    assert len(answers) == 1
    thread._session._on_error(KafkaError(KafkaError._AUTHENTICATION))
    with pytest.raises(BrokerError, match="for some seconds"):
        thread._poll()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError._TRANSPORT, "a broker is not reachable: b2"),
        (KafkaError._ALL_BROKERS_DOWN, "no broker is reachable, waiting: b2"),
    ],
)
def test_group_session_one_lost_connection_is_not_reported_as_that_of_all_brokers(
    code: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    thread_of(lambda _batch: None)._session._on_error(KafkaError(code, "b2"))
    assert caplog.messages == [text]


@pytest.mark.parametrize("expected", [False, True])
def test_consumer_loop_requested_commit_is_sent_early(expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a parameter of the test
    thread, commits = thread_of(lambda _batch: None), list[bool]()
    monkeypatch.setattr(thread, "_commit", lambda: commits.append(True))
    monkeypatch.setattr(thread, "_poll", list)
    assign(thread._executor, {0: RestoredPartition(0, None)})
    thread._policy.begin(time.monotonic())
    thread._executor.commit_wanted = expected
    thread._run_once()
    assert bool(commits) == expected


class Empty:
    """A consumer without records. Its waits advance a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits_s: list[float] = []

    def poll(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self.now += wait_s

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("progressed", [False, True])
def test_consumer_loop_without_partitions_polls_ten_times_a_second(
    progressed: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Empty()
    monkeypatch.setattr(consumer_loop, "time", consumer)
    thread = thread_of(lambda _batch: None, consumer)
    executor = thread._executor
    if progressed:
        assign(executor, {0: RestoredPartition(0, None)})
        executor.progressed = True
        executor.revoke([at(0)])  # without a commit, as when the session has expired
    assign(executor, {})
    thread._policy.begin(consumer.now)
    while consumer.now < 200:  # two commits would have been due
        thread._run_once()
    assert set(consumer.waits_s) == {IDLE_POLL_S}


def test_consumer_loop_with_partitions_and_an_overdue_commit_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, commits = Empty(), list[float]()
    monkeypatch.setattr(consumer_loop, "time", consumer)
    thread = thread_of(lambda _batch: None, consumer)
    monkeypatch.setattr(thread, "_commit", lambda: commits.append(consumer.now))
    assign(thread._executor, {0: RestoredPartition(0, None)})
    thread._policy.begin(consumer.now)
    consumer.now = 200
    thread._run_once()
    assert (consumer.waits_s, commits) == ([REST_S], [200 + REST_S])


def test_consumer_thread_has_no_attribute_that_a_thread_of_any_python_has_for_itself() -> None:
    own = {
        target.attr
        for node in ast.walk(ast.parse(inspect.getsource(ConsumerThread)))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    assert "_stop_event" in own
    added_in_3_14 = {"_context", "_os_thread_handle"}
    assert own & (vars(threading.Thread()).keys() | added_in_3_14) == set()


@pytest.mark.parametrize(
    ("interval_ms", "looks_after_s"), [(300, 0.3), ("300", 0.3), (60_000.0, 60.0), (0, math.inf), (-1, math.inf)]
)
def test_consumer_loop_looks_for_partitions_at_the_interval_of_the_client(
    interval_ms: str | float, looks_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, looks = Empty(), list[float]()
    monkeypatch.setattr(consumer_loop, "time", consumer)
    thread = thread_of(lambda _batch: None, consumer, {"options": {METADATA_INTERVAL_MS: interval_ms}})
    monkeypatch.setattr(thread, "_look_for_partitions", lambda _find_inputs: looks.append(consumer.now))
    monkeypatch.setattr(thread, "_find_inputs", lambda _counts: ())
    monkeypatch.setattr(thread, "_check_topics", lambda: None)
    assign(thread._executor, {})
    thread._policy.begin(consumer.now)
    while not looks and consumer.now < 200:
        thread._run_once()
    assert looks == [pytest.approx(looks_after_s, abs=IDLE_POLL_S)] * (looks_after_s < 200)


def test_consumer_loop_partition_that_no_process_reads_at_two_looks_makes_it_join_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, left = thread_of(lambda _batch: None), list[bool]()
    unread = [{at(1)}, {at(2)}, {at(2)}]
    monkeypatch.setattr(BrokerQueries, "partition_counts", lambda _queries: {TOPIC: 3})
    monkeypatch.setattr(thread._restorer, "without_offset", lambda _counts: unread.pop(0))
    monkeypatch.setattr(thread._session, "leave", lambda: left.append(True))
    monkeypatch.setattr(thread, "_commit", lambda: None)
    for _ in range(2):
        thread._look_for_partitions(lambda _counts: ())
    assert not left
    with pytest.raises(TransactionAbortedError, match="no process reads 1 partitions"):
        thread._look_for_partitions(lambda _counts: ())
    assert left


def test_consumer_loop_assigned_partition_that_does_not_exist_makes_it_join_again_at_a_further_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the first attempt, the broker that answers may not know new partitions yet."""
    thread, left = thread_of(lambda _batch: None), list[bool]()
    monkeypatch.setattr(BrokerQueries, "partition_counts", lambda _queries: {TOPIC: 1})
    monkeypatch.setattr(thread._session, "leave", lambda: left.append(True))
    thread._restorer._check_partition_counts([at(0), at(1)])
    assert not left
    thread._restorer._waiting_since = 0.0
    thread._restorer._check_partition_counts([at(0)])
    with pytest.raises(TransactionAbortedError, match="assigned partitions do not exist, joining again"):
        thread._restorer._check_partition_counts([at(0), at(1)])
    assert left


@pytest.mark.parametrize(
    ("begun", "error"),
    [([False, True], UnavailableError), ([False, False], OffsetsLostError), ([True, True], OffsetsLostError)],
)
def test_consumer_loop_offsets_are_lost_unless_the_group_has_committed_its_first_ones_meanwhile(
    begun: list[bool], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`begun`: whether the group has a checkpoint before and after the attempt to restore partitions."""
    restorer = thread_of(lambda _batch: None)._restorer

    def prepare(*_arguments: object, begun: bool) -> None:
        raise OffsetsLostError(f"{begun}")

    monkeypatch.setattr(restorer._output, "committed_offsets", lambda _partitions: {})
    monkeypatch.setattr(BrokerQueries, "ranges", lambda _queries, _partitions: {})
    monkeypatch.setattr(restorer, "_has_begun", lambda *_: begun.pop(0))
    monkeypatch.setattr(restorer, "_prepare", prepare)
    with pytest.raises(error):
        restorer._read([at(0)], lambda: None)


class Damaged(Failing):
    """Returns a record, a damaged batch at offset 8, and records after it, and is at their end then."""

    def __init__(self) -> None:
        super().__init__()
        self._messages = [
            message(7, topic=TOPIC),
            Message(topic=TOPIC, partition=0, offset=8, error=KafkaError(KafkaError._BAD_MSG, "wrong checksum")),
            message(18, topic=TOPIC),
        ]

    def poll(self, _timeout: float) -> Message:
        return self._messages.pop(0)

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        taken, self._messages = self._messages, []
        return taken

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, 19) for each in partitions]


def test_consumer_loop_commit_before_a_damaged_batch_does_not_pass_it() -> None:
    def process(batch: MessageBatch) -> None:
        executor.deliver(batch)
        executor.assignment.process(batch.source, batch.next_offset, None, None)

    thread = thread_of(process, Damaged())
    executor = thread._executor
    thread._retried._retried.add((TOPIC, 0, 8))  # it was read once more before
    assign(executor, {0: RestoredPartition(7, None)})
    thread._deliver(thread._poll())
    assert executor.begin_commit(thread._fetch_positions())[at(0)].offset == 8
