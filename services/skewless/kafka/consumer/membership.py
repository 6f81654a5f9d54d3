"""Reads from the group coordinator which members hold the group instance ids."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, GroupMetadata

from skewless.errors import UnavailableError
from skewless.kafka.admin.groups import list_group
from skewless.kafka.consumer.options import NOT_A_MEMBER
from skewless.kafka.reachability import CREATE_NO_TOPIC, QUIET

REQUEST_TIMEOUT_S = 2.0
UUID_CHARACTERS = 36


class GroupMembership:
    """The registration of one static member of a consumer group at the group coordinator.

    `topic` is an input of the group.
    """

    def __init__(self, client_options: Mapping[str, Any], group: str, group_instance_id: str, topic: str) -> None:
        self._options = {**QUIET, **client_options, **CREATE_NO_TOPIC}
        self._group = group
        self._topic = topic
        self.group_instance_id = group_instance_id

    def member_id(self) -> str | None:
        """Return the member id that the coordinator has for this instance; None if it has none.

        Raises UnavailableError if the coordinator does not answer within `REQUEST_TIMEOUT_S`.
        """
        return next((member for member in self._members() if _instance_of(member) == self.group_instance_id), None)

    def instances(self) -> set[str]:
        """Return the group instance ids of all processes in the group. Raises UnavailableError as `member_id`."""
        return {instance for instance in map(_instance_of, self._members()) if instance.startswith(f"{self._group}-")}

    def _members(self) -> list[str]:
        """Return the member ids in the group."""
        groups = self._groups()
        if not groups:
            # A broker that has just started lists no group, without an error, until it has loaded the groups.
            self._require_coordinator()
            groups = self._groups()
        return [member.id for group in groups for member in group.members]

    def _groups(self) -> list[GroupMetadata]:
        """Return the description of the group, or nothing if no broker lists the group."""
        # An admin client of its own: a request through the consumer is not allowed inside the consumer's callbacks.
        admin = AdminClient(self._options)
        try:
            # Any other first request may wait for a second, and the list of all topics for longer than this timeout.
            admin.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S)
            return list_group(admin, self._group, REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(f"describing group {self._group}: {error.args[0].str()}") from error

    def _require_coordinator(self) -> None:
        """Raise UnavailableError if the coordinator of the group does not answer, or has not loaded the group."""
        consumer = Consumer({**self._options, **NOT_A_MEMBER, "group.id": self._group})
        with contextlib.closing(consumer):
            try:
                consumer.committed([TopicPartition(self._topic, 0)], timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                raise UnavailableError(f"coordinator of group {self._group}: {error.args[0].str()}") from error


def _instance_of(member_id: str) -> str:
    """Return the instance id for which the coordinator created this member id: `<instance id>-<UUID>` (KIP-345)."""
    return member_id[: -UUID_CHARACTERS - 1]
