"""Statistics that librdkafka reports of a client every few seconds: queues, and how long brokers throttle it."""

from __future__ import annotations

import msgspec

INTERVAL = {"statistics.interval.ms": 10_000}
"""Option of a client. Its statistics are some 1 KB of JSON per assigned partition. At the same interval, a consumer
requests the log start offset of each of its partitions."""


class _Throttle(msgspec.Struct):
    sum: int = 0
    """Throttle times in ms since the last report."""


class _Broker(msgspec.Struct):
    throttle: _Throttle = msgspec.field(default_factory=_Throttle)


class _Partition(msgspec.Struct):
    fetchq_cnt: int = 0
    fetchq_size: int = 0


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class _Report(msgspec.Struct):
    """The fields of librdkafka's report that are read (STATISTICS.md). A consumer has no messages to send."""

    msg_cnt: int = 0
    msg_size: int = 0
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}


_decode = msgspec.json.Decoder(_Report).decode


class ClientStatistics:
    """Statistics of the clients that follow each other in one role of a process, such as its consumers.

    The thread that polls the client updates them, and another one reads them.
    """

    def __init__(self) -> None:
        self.reported = False
        """Whether a client has reported."""
        self.queue_records = 0
        """Records in the queue: read and not yet polled, or produced and not yet acknowledged."""
        self.queue_bytes = 0
        self.throttled_s = 0.0
        """Total time for which brokers have throttled requests."""

    def options(self) -> dict[str, object]:
        """Return the options with which a client reports to this object. `INTERVAL` must be among its others."""
        return {"stats_cb": self.update}

    def update(self, report: str) -> None:
        """Read a report."""
        decoded = _decode(report)
        partitions = [part for topic in decoded.topics.values() for part in topic.partitions.values()]
        # The partitions of a consumer have one queue, and each of them reports all of it.
        self.queue_records = decoded.msg_cnt + max((part.fetchq_cnt for part in partitions), default=0)
        self.queue_bytes = decoded.msg_size + max((part.fetchq_size for part in partitions), default=0)
        self.throttled_s += sum(broker.throttle.sum for broker in decoded.brokers.values()) / 1000
        self.reported = True
