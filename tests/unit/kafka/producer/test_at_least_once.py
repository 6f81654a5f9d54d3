from __future__ import annotations

from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings


def test_at_least_once_producer_aborted_again_without_a_broker_stays_closed() -> None:
    """A dropped producer is created again when a broker responds. Until then an abort may be repeated."""
    kafka, transport = KafkaSettings.model_validate({}), TransportSettings.model_validate({})
    producer = AtLeastOnceProducer(kafka, transport, lambda topic: topic)
    producer.abort(replace=True)
    producer.abort(replace=True)
    assert not producer.ready
    assert producer.outcomes["aborted"] == 2
