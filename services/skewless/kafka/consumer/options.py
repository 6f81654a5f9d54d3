"""librdkafka options of a stage's consumer."""

from __future__ import annotations

from skewless.kafka import client_statistics
from skewless.kafka.clients import librdkafka_logger
from skewless.kafka.settings import METADATA_INTERVAL_MS, KafkaSettings, TransportSettings

HEARTBEAT_S = 0.5
"""A member learns of a rebalance from the answer to its heartbeat. Until then the other members wait for it."""
LONGEST_FETCH_S, SHORTEST_FETCH_S = 0.05, 0.01
"""Bounds of the time for which a broker may delay the answer to a fetch until there are more records."""
NOT_A_MEMBER = {"enable.auto.commit": False, "session.timeout.ms": 1}
"""Options of a consumer that does not join its group, and so has no session. librdkafka nevertheless requires that
`max.poll.interval.ms` is not less than the session timeout, whose default exceeds that of a stage."""
CO_PARTITIONED = {"partition.assignment.strategy": "range"}
"""Options of a consumer that must get the same partitions of all its topics."""


def _fetch_wait_s(transport: TransportSettings) -> float:
    # A commit of a transaction does not complete a read_committed fetch that waits at the broker. So this time is the
    # interval at which a stage looks for new commits of the previous stage. A fifth of the commit interval adds little
    # to the latency.
    return max(SHORTEST_FETCH_S, min(LONGEST_FETCH_S, transport.commit_interval_s / 5))


def consumer_options(
    kafka: KafkaSettings, transport: TransportSettings, group: str, group_instance_id: str, *, end_of_partition: bool
) -> dict[str, object]:
    """Return the options of a stage's consumer. Those that exactness depends on come last, so they take precedence."""
    return {
        **client_statistics.INTERVAL,
        "fetch.wait.max.ms": round(1000 * _fetch_wait_s(transport)),
        # Limits of librdkafka's read-ahead, with a short pause instead of one second when they are reached. A small
        # record occupies ten times its bytes in librdkafka's queue, so the number of records per partition is limited
        # as well.
        "fetch.message.max.bytes": 2**20,
        "fetch.max.bytes": 4 * 2**20,
        "queued.max.messages.kbytes": 8 * 1024,
        "queued.min.messages": 10_000,
        "fetch.queue.backoff.ms": 20,
        "check.crcs": True,
        "topic.metadata.propagation.max.ms": 10_000,
        METADATA_INTERVAL_MS: 60_000,  # notices new source partitions in 1 min; the default is 5 min
        "session.timeout.ms": round(transport.session_timeout_s * 1000),
        "heartbeat.interval.ms": round(min(HEARTBEAT_S, transport.session_timeout_s / 5) * 1000),
        **kafka.client_options(),
        "group.id": group,
        "group.instance.id": group_instance_id,
        "client.id": group_instance_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": end_of_partition,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        # The workers in use have the first partitions. In ranges, the first processes would get all of them. A group
        # uses the first strategy that all members have: versions before 0.6.4 have range only.
        "partition.assignment.strategy": "roundrobin,range",
        "logger": librdkafka_logger(),
    }
