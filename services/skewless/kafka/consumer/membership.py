"""Reads from the group coordinator which members hold the group instance ids."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, GroupMetadata

from skewless.errors import UnavailableError
from skewless.kafka.admin.groups import list_group
from skewless.kafka.consumer.options import NOT_A_MEMBER
from skewless.kafka.errors import is_refused_login
from skewless.kafka.reachability import CREATE_NO_TOPIC, QUIET, refused_error

REQUEST_TIMEOUT_S = 2.0
REFUSED_S = 10.0
"""Time for which brokers must refuse all logins of a running process before it is an error. More than at a start
(`reachability.REFUSED_S`): in a rolling restart, a broker may refuse logins until it has loaded the passwords."""
UUID_CHARACTERS = 36


class GroupMembership:
    """The registration of one static member of a consumer group at the group coordinator.

    `topic` is an input of the group.
    """

    def __init__(self, client_options: Mapping[str, Any], group: str, group_instance_id: str, topic: str) -> None:
        self._options = {**QUIET, **client_options, **CREATE_NO_TOPIC}
        self._group = group
        self._topic = topic
        self._refused_since: float | None = None
        """Time since which brokers have refused the login of each request."""
        self.group_instance_id = group_instance_id

    def member_id(self) -> str | None:
        """Return the member id that the coordinator has for this instance; None if it has none.

        Raises UnavailableError if the coordinator does not answer within `REQUEST_TIMEOUT_S`, and BrokerError if
        brokers have refused the login of each request for `REFUSED_S`.
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
        errors: list[KafkaError] = []
        admin = AdminClient({**self._options, "error_cb": errors.append})
        try:
            # Any other first request may wait for a second, and the list of all topics for longer than this timeout.
            admin.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S)
            self._refused_since = None
            return list_group(admin, self._group, REQUEST_TIMEOUT_S)
        except KafkaException as error:
            admin.poll(0)
            self._check_login(errors)
            raise UnavailableError(f"describing group {self._group}: {error.args[0].str()}") from error

    def _check_login(self, errors: Iterable[KafkaError]) -> None:
        """Raise BrokerError if brokers refused the login of this request, as that of each other one for `REFUSED_S`."""
        refusals = [error.str() for error in errors if is_refused_login(error, self._options)]
        if not refusals:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = time.monotonic()
        elif time.monotonic() - self._refused_since >= REFUSED_S:
            raise refused_error(refusals[0], self._options["bootstrap.servers"])

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
