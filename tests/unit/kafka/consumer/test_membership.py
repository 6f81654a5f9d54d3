"""GroupMembership: what the broker says, and what it does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from skewless.errors import UnavailableError
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
