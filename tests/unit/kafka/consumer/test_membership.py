"""GroupMembership: what the broker says, and what it does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, UnavailableError
from skewless.kafka.consumer import membership
from skewless.kafka.consumer.membership import GroupMembership
from skewless.lab.local.kafka_process import free_ports


class StartingBroker:
    """Admin client of a broker that answers, and has not loaded its groups."""

    def __init__(self, options: dict[str, object]) -> None:
        assert options["allow.auto.create.topics"] is False

    def list_topics(self, topic: str, **_request: Any) -> None:
        assert topic == "t"  # never all topics: a cluster may have too many for the timeout

    def list_groups(self, **_request: Any) -> list[Any]:
        return []

    def poll(self, _timeout: float) -> None: ...


class MovedGroup(StartingBroker):
    """Admin client of a broker that lists a group, and then is no longer its coordinator."""

    def list_groups(self, **_request: Any) -> list[Any]:
        return [SimpleNamespace(error=KafkaError(KafkaError.NOT_COORDINATOR), members=[])]


def test_membership_of_a_group_that_has_moved_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "AdminClient", MovedGroup)
    with pytest.raises(UnavailableError, match="describing group g: "):
        GroupMembership({}, "g", "g-0", "t").member_id()


def test_membership_of_a_group_that_is_not_loaded_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "AdminClient", StartingBroker)
    monkeypatch.setattr(membership, "REQUEST_TIMEOUT_S", 0.2)
    absent = GroupMembership({"bootstrap.servers": f"127.0.0.1:{free_ports().client}"}, "g", "g-0", "t")
    with pytest.raises(UnavailableError, match="coordinator of group g"):
        absent.member_id()


class Refusing:
    """Admin clients of brokers that refuse a login, or do not answer, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.code = KafkaError._AUTHENTICATION
        self._note: Any = None
        monkeypatch.setattr(membership, "AdminClient", self.client)
        monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: self.now))

    def client(self, options: dict[str, Any]) -> Refusing:
        self._note = options["error_cb"]
        return self

    def list_topics(self, _topic: str, **_request: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, _timeout: float) -> None:
        self._note(KafkaError(self.code, "by the test"))


def test_membership_login_that_is_refused_for_some_seconds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, known = Refusing(monkeypatch), GroupMembership({"bootstrap.servers": "b:1"}, "g", "g-0", "t")

    def ask(now: float, code: int = KafkaError._AUTHENTICATION) -> None:
        brokers.now, brokers.code = now, code
        with pytest.raises(UnavailableError):
            known.member_id()

    ask(0)
    ask(9)
    ask(11, KafkaError._TRANSPORT)  # a broker that restarts is down before and after it refuses logins
    ask(12)
    ask(21)
    brokers.now = 22
    with pytest.raises(BrokerError, match=r"Kafka at b:1 refuses this client: by the test; correct kafka\."):
        known.member_id()


def test_membership_token_that_is_refused_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, known = Refusing(monkeypatch), GroupMembership({"sasl.mechanism": "OAUTHBEARER"}, "g", "g-0", "t")
    for brokers.now in (0, 100):
        with pytest.raises(UnavailableError):
            known.member_id()
