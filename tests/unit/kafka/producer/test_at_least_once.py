"""The start and the abort of a producer without transactions."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.errors import BrokerError, TransactionAbortedError, UnavailableError
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import CommittedOffset, TopicPartition


def test_at_least_once_producer_aborted_again_without_a_broker_stays_closed() -> None:
    """A dropped producer is created again when a broker responds. Until then an abort may be repeated."""
    kafka, transport = KafkaSettings.model_validate({}), TransportSettings.model_validate({})
    producer = AtLeastOnceProducer(kafka, transport, lambda topic: topic)
    producer.abort(replace=True)
    producer.abort(replace=True)
    assert not producer.ready
    assert producer.outcomes["aborted"] == 2


class Recorder:
    """A producer that keeps the timestamp of each record."""

    def __init__(self) -> None:
        self.timestamps: list[object] = []

    def produce(self, *record: object) -> None:
        self.timestamps.append(record[6])

    def poll(self, _timeout: float) -> None: ...


def test_at_least_once_producer_record_of_the_time_0_does_not_get_the_time_of_writing() -> None:
    """For librdkafka, 0 is the time of writing."""
    producer = AtLeastOnceProducer(KafkaSettings.model_validate({}), TransportSettings.model_validate({}), str)
    producer._producer = recorder = Recorder()
    producer.send(OutputRecord("enriched", b"x", timestamp=time_ms) for time_ms in (None, 0, 1, 5))
    assert recorder.timestamps == [0, 1, 1, 5]


class Cluster:
    """A producer. The cluster has an id or none, and a list of topics or no answer."""

    def __init__(self, *, has_id: bool, answers: bool) -> None:
        self._has_id = has_id
        self._answers = answers
        self.lists = 0

    def cluster_id(self, _timeout: float) -> str:
        if not self._has_id:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return "id"

    def list_topics(self, *, timeout: float) -> None:
        self.lists += 1
        if not self._answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.mark.parametrize(
    ("has_id", "answers", "lists", "ready"), [(True, False, 0, True), (False, True, 1, True), (False, False, 1, False)]
)
def test_at_least_once_producer_connects_without_a_list_of_all_topics_if_the_cluster_has_an_id(
    *, has_id: bool, answers: bool, lists: int, ready: bool
) -> None:
    """The list of a large cluster takes longer than an attempt."""
    producer = AtLeastOnceProducer(KafkaSettings.model_validate({}), TransportSettings.model_validate({}), str)
    producer._producer = cluster = Cluster(has_id=has_id, answers=answers)
    if ready:
        producer.connect()
    else:
        with pytest.raises(UnavailableError, match="starting a producer"):
            producer.connect()
    assert (producer.ready, cluster.lists) == (ready, lists)


class Refusing:
    """A producer and a consumer. The broker refuses the offset of the second partition."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __len__(self) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        return 0

    def commit(self, *, offsets: list[KafkaPartition], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        return [SimpleNamespace(error=None), SimpleNamespace(error=KafkaError(self._code))][: len(offsets)]


@pytest.mark.parametrize(
    ("code", "failure", "message"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokerError, "grant Read on the topic"),
        (KafkaError.REBALANCE_IN_PROGRESS, TransactionAbortedError, "committing: "),
    ],
)
def test_at_least_once_producer_offset_of_one_partition_refused_fails_the_commit(
    code: int, failure: type[Exception], message: str
) -> None:
    producer = AtLeastOnceProducer(KafkaSettings.model_validate({}), TransportSettings.model_validate({}), str)
    producer._producer = producer._consumer = Refusing(code)
    offset = CommittedOffset(7, "", None)
    producer.commit({TopicPartition("t", 0): offset})
    with pytest.raises(failure, match=message):
        producer.commit({TopicPartition("t", 0): offset, TopicPartition("t", 1): offset})
    assert producer.outcomes["committed"] == 1


class Slow:
    """A producer that writes so many records per second, or none if there is no answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, records: int, per_s: int) -> None:
        self._remaining, self._per_s, self.now = records, per_s, 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def __len__(self) -> int:
        return self._remaining

    def flush(self, timeout_s: float) -> int:
        self.now += timeout_s
        self._remaining = max(0, self._remaining - round(self._per_s * timeout_s))
        return self._remaining


@pytest.mark.parametrize(("per_s", "took_s"), [(100, 100), (0, 16)])
def test_at_least_once_producer_flush_ends_after_a_timeout_without_progress_only(
    per_s: int, took_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = AtLeastOnceProducer(KafkaSettings.model_validate({}), TransportSettings.model_validate({}), str)
    producer._producer = slow = Slow(monkeypatch, 10_000, per_s)
    if per_s:
        producer.commit({})
    else:
        with pytest.raises(TransactionAbortedError, match="no answer in time"):
            producer.commit({})
    assert (slow.now - 1000, producer.outcomes["committed"]) == (took_s, bool(per_s))
