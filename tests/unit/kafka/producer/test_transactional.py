"""The transactional producer's errors, with a librdkafka producer whose transaction fails."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, LimitError, TransactionAbortedError, UnavailableError
from skewless.kafka.producer.transactional import MAX_TIMEOUT_S, TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.monitoring.settings import MetricsSettings
from skewless.wire.record import OutputRecord


class Refused:
    """A producer whose transaction fails in the background after its first record."""

    def __init__(self) -> None:
        self.records = self.transactions = 0

    def begin_transaction(self) -> None:
        self.transactions += 1
        if self.transactions > 1:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    def produce(self, *_record: object) -> None:
        self.records += 1
        if self.records > 1:
            raise KafkaException(KafkaError(KafkaError._STATE))


def test_transactional_producer_refused_between_two_records_names_their_topic() -> None:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    tested = TransactionalProducer(kafka, TransportSettings(), "p.{}".format, "p-router-0")
    tested._producer = Refused()
    records = [OutputRecord("worker-input", b"x")] * 2
    with pytest.raises(BrokerError, match=r"^not allowed while writing to topics p\.worker-input as p-router-0: "):
        tested.send(records)


class Slow:
    """A producer, and its clock. While `answers` is false, a commit gets no answer for 2 s at a time.

    While it has unwritten records, a commit writes so many of them in this time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, transport: TransportSettings) -> None:
        self.now = 1000.0
        self.answers = True
        self.unwritten, self.per_call, self.refuses_at = 0, 0, math.inf
        self.waited_s: list[float] = []
        """The metric at each attempt to write."""
        self.tested = TransactionalProducer(KafkaSettings(), transport, "p.{}".format, "p-aggregator-0")
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(self.tested._calls, "call", lambda call, _timeout_s: call() is None)

    def __len__(self) -> int:
        return self.unwritten

    def write(self, seconds: float, waits: Sequence[float] = ()) -> None:
        """Begin a transaction and write for some time, with a new producer if the last one was discarded.

        It includes these waits for room in the queue.
        """
        self.tested._producer = self
        self.tested._begin()
        for self._full_s in waits:
            self.tested._wait_for_room("p.aggregates", ())
        self.now += seconds - sum(waits)

    def poll(self, _timeout: float) -> None:
        self.now, self._full_s = self.now + min(1, self._full_s), max(0, self._full_s - 1)

    def produce(self) -> None:
        self.waited_s.append(self.tested.waited_s)
        if self._full_s:
            raise BufferError

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _timeout: float) -> None: ...

    def purge(self, **_options: bool) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        self.unwritten -= min(self.unwritten, self.per_call)
        if self.now >= self.refuses_at:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "5 message(s) timed out"))
        if not self.answers or self.unwritten:
            self.now += timeout
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))

    def timeout_s(self) -> float:
        """Return the transaction timeout of the next producer."""
        return float(str(self.tested.options()["transaction.timeout.ms"])) / 1000


@pytest.mark.parametrize(
    ("wrote_s", "waits", "timeout_s"),
    [(14, (), 15), (20, (14,), 15), (20, (12,), 15), (20, (2,) * 7, 80), (50, (0.5,) * 90, 180), (20, (), 80)],
)
def test_transactional_producer_transaction_that_took_longer_than_its_timeout_gets_more_time(
    wrote_s: int, waits: Sequence[float], timeout_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long wait is an outage. A broker that is slower than the stage makes it wait many times."""
    slow = Slow(monkeypatch, TransportSettings())
    slow.write(wrote_s, waits)
    slow.tested.abort(replace=False)
    assert slow.timeout_s() == timeout_s
    assert (slow.tested._producer is None) is (timeout_s > 15)


def test_transactional_producer_time_without_room_adds_up_over_commits_and_aborts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.write(2, waits=[2])
    slow.tested.abort(replace=False)
    slow.write(1, waits=[1])
    slow.tested.commit({})
    assert slow.waited_s == [1, 2, 3]  # also while it waits: a scrape may come between
    assert slow.tested.waited_s == 3


def test_transactional_producer_closed_before_the_abort_was_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, TransportSettings(transaction_timeout_s=200))
    slow.write(210)
    slow.tested.close()
    slow.tested.abort(replace=True)
    assert slow.timeout_s() == 200


def test_transactional_producer_commit_without_an_answer_is_no_long_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.answers = False
    for _ in range(3):
        slow.write(0.3)
        began = slow.now
        with pytest.raises(TransactionAbortedError, match="no answer in time"):
            slow.tested.commit({})
        slow.tested.abort(replace=True)
        assert slow.now - began < 20
        assert slow.timeout_s() == 15


def test_transactional_producer_commit_that_writes_what_is_queued_has_time_and_counts_as_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.unwritten, slow.per_call = 100, 5
    slow.write(0)
    slow.tested.commit({})
    assert slow.now == 1038
    slow.unwritten, slow.per_call = 100, 10
    slow.write(0)
    slow.answers = False
    with pytest.raises(TransactionAbortedError, match="no answer in time"):
        slow.tested.commit({})
    slow.tested.abort(replace=True)
    assert slow.timeout_s() == 4 * 20


@pytest.mark.parametrize(("per_call", "after_s", "timeout_s"), [(5, 15, 64), (0, 14, 15)])
def test_transactional_producer_records_that_time_out_in_a_commit_get_more_time_if_others_were_written(
    per_call: int, after_s: int, timeout_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.unwritten, slow.per_call = 100, per_call
    slow.write(0)
    slow.refuses_at = slow.now + after_s
    with pytest.raises(TransactionAbortedError, match="timed out"):
        slow.tested.commit({})
    slow.tested.abort(replace=True)
    assert slow.timeout_s() == timeout_s


def test_transactional_producer_after_a_commit_the_next_producer_has_the_timeout_of_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.write(20)
    slow.tested.abort(replace=False)
    slow.write(20)
    slow.tested.commit({})
    assert slow.timeout_s() == 15
    assert slow.tested._producer is slow


@pytest.mark.parametrize(("setting_s", "attempts"), [(15, 2), (300, 1)])
def test_transactional_producer_longest_time_is_not_enough_names_the_settings_to_raise(
    setting_s: int, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, TransportSettings(transaction_timeout_s=setting_s))
    slow.tested.sent["aggregates"].records += 1
    for _ in range(attempts - 1):
        slow.write(400)
        slow.tested.abort(replace=False)
    slow.write(400)
    with pytest.raises(
        LimitError, match=r"topics p\.aggregates took 400 s.* transport\.transaction_timeout_s "
    ) as raised:
        slow.tested.abort(replace=False)
    assert raised.value.exit_code == 3


def test_transactional_producer_longest_time_that_the_brokers_allow_is_not_enough_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.write(20)
    slow.tested.abort(replace=False)
    assert isinstance(slow.tested._timeout_refused(), UnavailableError)  # 80 s
    slow.write(41)
    with pytest.raises(LimitError, match="took 41 s, and the longest one is 40 s"):
        slow.tested.abort(replace=False)


def test_transactional_producer_longest_time_is_that_after_which_a_stage_counts_as_hung() -> None:
    assert MetricsSettings.model_fields["liveness_timeout_s"].default == MAX_TIMEOUT_S
