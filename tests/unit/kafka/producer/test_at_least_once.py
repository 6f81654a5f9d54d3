from __future__ import annotations

from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings


def test_at_least_once_producer_aborted_again_without_a_broker_stays_closed() -> None:
    """A producer that was dropped is created again only when a broker answers; until then aborts may repeat."""
    kafka, transport = KafkaSettings.model_validate({}), TransportSettings.model_validate({})
    outbox = AtLeastOnceProducer(kafka, transport, lambda topic: topic)
    outbox.abort(replace=True)
    outbox.abort(replace=True)
    assert not outbox.ready
    assert outbox.outcomes["aborted"] == 2
