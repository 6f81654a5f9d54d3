"""IdleMember: a member of a consumer group that reads no records. It shows that a program runs in place of the group.

The broker refuses offsets that are set for a group with members, and other programs see its name and address.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from skewless.errors import UnreachableError
from skewless.kafka.clients import create_client
from skewless.kafka.consumer.leave_group import leave_group
from skewless.kafka.consumer.options import consumer_options
from skewless.kafka.reachability import QUIET
from skewless.kafka.settings import KafkaSettings, TransportSettings

POLL_S = 0.2
LEAVE_S = 5.0


class IdleMember:
    """Membership until the end of the block. A thread of its own answers the rebalances of the group.

    It replaces an earlier process with the same group instance id, as the member of a stage does.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        transport: TransportSettings,
        group: str,
        group_instance_id: str,
        topics: Sequence[str],
    ) -> None:
        options = consumer_options(kafka, transport, group, group_instance_id, end_of_partition=False) | QUIET
        self._limit_s = kafka.connect_timeout_s + transport.session_timeout_s
        self._group = group
        self._topics = list(topics)
        self._consumer = create_client(Consumer, options)
        self._joined, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._poll, name="group-member", daemon=True)

    def wait_until_joined(self) -> None:
        """Return when the group has this member. Raises UnreachableError if that takes too long."""
        if not self._joined.wait(self._limit_s):
            raise UnreachableError(f"cannot join group {self._group} within {self._limit_s:g} s: check the brokers")

    def _poll(self) -> None:
        def assign_none(consumer: Consumer, _partitions: Sequence[TopicPartition]) -> None:
            consumer.assign([])
            self._joined.set()

        self._consumer.subscribe(self._topics, on_assign=assign_none)
        while not self._ended.is_set():
            self._consumer.poll(POLL_S)
        leave_group(self._consumer, LEAVE_S)
        self._consumer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(2 * LEAVE_S)
