"""The admin client repeats requests that only read while no broker answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.admin.client import Admin
from skewless.kafka.settings import KafkaSettings


class Unsteady:
    """A client whose first requests for the topics fail."""

    def __init__(self, code: int, failures: int) -> None:
        self._code, self._failures = code, failures
        self.requests = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.requests += 1
        if self.requests <= self._failures:
            raise KafkaException(KafkaError(self._code))
        return SimpleNamespace(topics={"events": SimpleNamespace(partitions={0: None, 1: None}, error=None)})


def admin(client: Unsteady, connect_timeout_s: float = 30.0) -> Admin:
    made = object.__new__(Admin)
    made._kafka, made._client = KafkaSettings(connect_timeout_s=connect_timeout_s), client
    return made


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR])
def test_admin_connection_lost_in_a_request_repeats_it(code: int) -> None:
    client = Unsteady(code, failures=2)
    assert admin(client).partition_counts() == {"events": 2}
    assert client.requests == 3


def test_admin_broker_away_for_longer_than_the_timeout_is_unreachable() -> None:
    client = Unsteady(KafkaError._TRANSPORT, failures=1_000)
    with pytest.raises(
        UnreachableError, match="no answer from Kafka at localhost:9092 while reading the list of topics"
    ):
        admin(client, connect_timeout_s=0.3).partition_counts()
    assert client.requests > 1


def test_admin_refused_request_is_not_repeated() -> None:
    client = Unsteady(KafkaError.CLUSTER_AUTHORIZATION_FAILED, failures=1_000)
    with pytest.raises(BrokerError, match="reading the list of topics"):
        admin(client).partition_counts()
    assert client.requests == 1
