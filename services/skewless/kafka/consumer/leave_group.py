"""Leaves a consumer group permanently, instead of only closing the consumer."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException

POLL_S = 0.02


def leave_group(consumer: Consumer, timeout_s: float) -> bool:
    """Send LeaveGroup, so that the partitions are reassigned at once. Returns False if it failed within `timeout_s`.

    A consumer that another process has replaced has left already.
    """
    # A static member that only closes its consumer stays in the group until its session expires (KIP-345). librdkafka
    # sends LeaveGroup for a static member that unsubscribes first, but only after its partitions are revoked. That
    # takes some polls. The member id is empty afterwards.
    try:
        consumer.unsubscribe()
    except KafkaException as error:
        if error.args[0].code() != KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local codes are named so
            raise
        return True
    deadline = time.monotonic() + timeout_s
    while consumer.memberid():
        if time.monotonic() > deadline:
            return False
        consumer.poll(POLL_S)
    return True
