"""Reads from the group coordinator which member holds a group instance id."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from skewless.errors import UnavailableError
from skewless.kafka.reachability import QUIET

REQUEST_TIMEOUT_S = 2.0
UUID_CHARACTERS = 36


class GroupMembership:
    """The registration of one static member of a consumer group at the group coordinator."""

    def __init__(self, client_options: Mapping[str, Any], group: str, group_instance_id: str) -> None:
        self._options = {**QUIET, **client_options}
        self._group = group
        self._group_instance_id = group_instance_id

    def member_id(self) -> str | None:
        """Return the member id that the coordinator has for this instance; None if it has none.

        Raises UnavailableError if the coordinator does not answer within `REQUEST_TIMEOUT_S`.
        """
        # An admin client of its own: a request through the consumer is not allowed inside the consumer's callbacks.
        admin = AdminClient(self._options)
        try:
            with warnings.catch_warnings():
                # Its successor, `describe_consumer_groups`, aborts the process if no broker answers (librdkafka
                # 2.16, "Assertion `eonce->refcnt > 0' failed").
                warnings.simplefilter("ignore", DeprecationWarning)
                groups = admin.list_groups(group=self._group, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(f"describing group {self._group}: {error.args[0].str()}") from error
        members = [member.id for group in groups for member in group.members]
        return next((member for member in members if self._is_of_instance(member)), None)

    def _is_of_instance(self, member_id: str) -> bool:
        """Return whether the coordinator created this member id for our instance: `<instance id>-<UUID>` (KIP-345)."""
        return member_id[: -UUID_CHARACTERS - 1] == self._group_instance_id
