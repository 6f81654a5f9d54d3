"""Describes consumer groups: their states and members."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, GroupMetadata

from skewless.kafka.clients import connect_admin
from skewless.kafka.repeat import repeat_while_transient
from skewless.kafka.settings import KafkaSettings


def list_group(client: AdminClient, group: str, timeout_s: float) -> list[GroupMetadata]:
    """Return the description of a group, or nothing if no broker lists it. Raises KafkaException."""
    with warnings.catch_warnings():
        # Its successor, `describe_consumer_groups`, aborts the process if no broker answers (librdkafka 2.16,
        # "Assertion `eonce->refcnt > 0' failed").
        warnings.simplefilter("ignore", DeprecationWarning)
        groups: list[GroupMetadata] = client.list_groups(group=group, timeout=timeout_s)
    for found in groups:
        if found.error is not None:
            raise KafkaException(found.error)
    return groups


class GroupDescription(NamedTuple):
    """A consumer group at its coordinator."""

    state: str
    """Kafka's name of the state, such as `Stable`, `PreparingRebalance` or `Empty`. `Dead`: there is no such group."""
    members: Mapping[str, str]
    """Client ids of the members, and the addresses from which they are connected. Those of a stage are their group
    instance ids."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether partitions are being assigned."""
        return self.state.endswith("Rebalance")


class GroupReader:
    """Describes groups. Raises UnreachableError if no broker answers within `kafka.connect_timeout_s`."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._client = connect_admin(kafka)

    def describe(self, group: str) -> GroupDescription:
        """Return the description of a group. Raises BrokerError if the broker refuses the request."""
        operation = f"describing group {group}"
        return repeat_while_transient(self._kafka, lambda: self._describe(group), operation, "Describe")

    def _describe(self, group: str) -> GroupDescription:
        for found in list_group(self._client, group, self._kafka.connect_timeout_s):
            members = {member.client_id: member.client_host.strip("/") for member in found.members}
            return GroupDescription(found.state, members)
        return GroupDescription("Dead", {})
