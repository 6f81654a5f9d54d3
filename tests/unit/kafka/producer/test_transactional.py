"""The transactional producer's errors, with a librdkafka producer whose transaction fails."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, LimitError, TransactionAbortedError
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
    """A producer, and its clock. While `answers` is false, a commit gets no answer for 2 s at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, transport: TransportSettings) -> None:
        self.now = 1000.0
        self.answers = True
        self.tested = TransactionalProducer(KafkaSettings(), transport, "p.{}".format, "p-aggregator-0")
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(self.tested._calls, "call", lambda call, _timeout_s: call() is None)

    def write(self, seconds: float, waited_s: float = 0) -> None:
        """Begin a transaction and write for some time, with a new producer if the last one was discarded."""
        self.tested._producer = self
        self.tested._begin()
        self.tested.waited_s = waited_s
        self.now += seconds

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _timeout: float) -> None: ...

    def purge(self, **_options: bool) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        if not self.answers:
            self.now += timeout
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))

    def timeout_s(self) -> float:
        """Return the transaction timeout of the next producer."""
        return float(str(self.tested.options()["transaction.timeout.ms"])) / 1000


@pytest.mark.parametrize(("wrote_s", "waited_s", "timeout_s"), [(14, 0, 15), (50, 40, 15), (22, 2, 80), (52, 2, 180)])
def test_transactional_producer_transaction_that_took_longer_than_its_timeout_gets_more_time(
    wrote_s: int, waited_s: int, timeout_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, TransportSettings())
    slow.write(wrote_s, waited_s)
    slow.tested.abort(replace=False)
    assert slow.timeout_s() == timeout_s
    assert (slow.tested._producer is None) is (timeout_s > 15)


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


def test_transactional_producer_longest_time_is_that_after_which_a_stage_counts_as_hung() -> None:
    assert MetricsSettings.model_fields["liveness_timeout_s"].default == MAX_TIMEOUT_S
