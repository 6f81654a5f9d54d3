from __future__ import annotations

from skewless.transport.flushing_outbox import FlushingOutbox
from skewless.transport.settings import KafkaSettings, TransportSettings


def test_outbox_aborted_again_before_a_broker_answers_stays_closed() -> None:
    """A producer that was dropped is created again only when a broker answers; until then aborts may repeat."""
    kafka, transport = KafkaSettings.model_validate({}), TransportSettings.model_validate({})
    outbox = FlushingOutbox(kafka, transport, lambda topic: topic)
    outbox.abort(replace=True)
    outbox.abort(replace=True)
    assert not outbox.ready
    assert outbox.outcomes["aborted"] == 2
