"""The admin client repeats requests that only read while no broker answers."""

from __future__ import annotations

import time
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


def admin(client: object, connect_timeout_s: float = 30.0) -> Admin:
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


class Slow:
    """A client of a broker that gives one more topic leaders at every second request, up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.requests = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.requests += 1
        ready = min(self._most, self.requests // 2)
        leaders = [0 if number < ready else -1 for number in range(5)]
        partitions = [{0: SimpleNamespace(leader=leader)} for leader in leaders]
        return SimpleNamespace(topics={f"t{i}": SimpleNamespace(partitions=each) for i, each in enumerate(partitions)})


TOPICS = {f"t{number}": 1 for number in range(5)}


def test_admin_leaders_that_appear_one_after_the_other_are_waited_for() -> None:
    client = Slow(most=5)
    started = time.monotonic()
    admin(client, connect_timeout_s=0.3).wait_for_leaders(TOPICS)
    assert time.monotonic() - started > 0.3


def test_admin_leaders_that_never_appear_are_named_with_what_to_do() -> None:
    with pytest.raises(UnreachableError, match=r"topics t3, t4 at .* leader after 0\.3 s: .* repeat the command"):
        admin(Slow(most=3), connect_timeout_s=0.3).wait_for_leaders(TOPICS)
