"""The transactional producer's errors, with a librdkafka producer whose transaction fails."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
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


class Open:
    """A producer with an open transaction, for which a clock is set."""

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _timeout: float) -> None: ...

    def purge(self, **_options: bool) -> None: ...


@pytest.mark.parametrize(("wrote_s", "waited_s", "timeout_ms"), [(14, 0, 15_000), (50, 40, 15_000), (52, 2, 200_000)])
def test_transactional_producer_transaction_that_took_longer_than_its_timeout_gets_more_time(
    wrote_s: int, waited_s: int, timeout_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = TransactionalProducer(KafkaSettings(), TransportSettings(), "p.{}".format, "p-aggregator-0")
    tested._producer = Open()
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tested._begin()
    tested.uncommitted.waited_s = waited_s
    now += wrote_s
    tested.abort(replace=False)
    assert tested.options()["transaction.timeout.ms"] == timeout_ms
    assert (tested._producer is None) is (timeout_ms > 15_000)
