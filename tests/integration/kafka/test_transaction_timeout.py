"""Timeouts of transactions that a real broker does not allow: more than 15 minutes by default."""

from __future__ import annotations

import pytest

from helpers.waiting import WAIT_S
from integration.engine.harness import Harness
from skewless.errors import BrokerError
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import TransportSettings


def test_transactional_producer_raised_timeout_that_the_brokers_refuse_is_halved(broker: str) -> None:
    harness = Harness(broker)
    tested = TransactionalProducer(harness.kafka, TransportSettings(), harness.topic, harness.prefix)
    tested._timeout_s = 1_500
    tested.open(WAIT_S)
    assert tested.options()["transaction.timeout.ms"] == 750_000
    tested.close()


def test_transactional_producer_setting_that_the_brokers_refuse_is_named(broker: str) -> None:
    harness = Harness(broker)
    transport = TransportSettings().model_copy(update={"transaction_timeout_s": 1_500})
    tested = TransactionalProducer(harness.kafka, transport, harness.topic, harness.prefix)
    with pytest.raises(BrokerError, match=r"^transport\.transaction_timeout_s: the brokers do not allow 1500 s: lower"):
        tested.open(WAIT_S)
