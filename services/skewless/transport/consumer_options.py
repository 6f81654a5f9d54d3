"""How a stage's consumer is set up in librdkafka."""

from __future__ import annotations

import logging

from skewless.transport.settings import KafkaSettings, TransportSettings

HEARTBEAT_S = 0.5
"""A process hears of a rebalance by its heartbeat, and until it does, those who have heard stand still."""


def consumer_options(
    kafka: KafkaSettings, transport: TransportSettings, group: str, member: str, *, end_of_partition: bool
) -> dict[str, object]:
    """Options of the stage's consumer; what exactness rests on comes last."""
    return {
        "fetch.wait.max.ms": 50,
        # Bounds of what librdkafka reads ahead, and with a short pause instead of a second when they are reached. Small
        # records weigh ten times their bytes in its queue, so each partition's number of records is bounded as well.
        "fetch.message.max.bytes": 2**20,
        "fetch.max.bytes": 4 * 2**20,
        "queued.max.messages.kbytes": 8 * 1024,
        "queued.min.messages": 10_000,
        "fetch.queue.backoff.ms": 20,
        "check.crcs": True,
        "topic.metadata.propagation.max.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 60_000,  # a source that grows is noticed in a minute, not in five
        "session.timeout.ms": round(transport.session_timeout_s * 1000),
        "heartbeat.interval.ms": round(min(HEARTBEAT_S, transport.session_timeout_s / 5) * 1000),
        **kafka.client_options(),
        "group.id": group,
        "group.instance.id": member,
        "client.id": member,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": end_of_partition,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "partition.assignment.strategy": "range",
        "logger": logging.getLogger("skewless.librdkafka"),
    }
