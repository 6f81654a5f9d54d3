"""Leave a consumer group for good."""

from __future__ import annotations

import time

from confluent_kafka import Consumer

POLL_S = 0.02


def leave_group(consumer: Consumer, limit_s: float) -> bool:
    """Leave the group now, so that others take over at once; False when that could not be said within `limit_s`.

    A static member that only closes its consumer stays a member until its session ends (KIP-345). librdkafka tells the
    broker of one that unsubscribes before, but only once its partitions are given up: that takes some polls, and its
    member id is empty then.
    """
    consumer.unsubscribe()
    deadline = time.monotonic() + limit_s
    while consumer.memberid():
        if time.monotonic() > deadline:
            return False
        consumer.poll(POLL_S)
    return True
