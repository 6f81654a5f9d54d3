"""Output: the port through which the engine writes. It keeps the outputs of a step and the offsets of their input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from confluent_kafka import Consumer

from skewless.engine.step import Sample
from skewless.kafka.client_statistics import ClientStatistics
from skewless.wire.record import OutputRecord, OutputStats
from skewless.wire.topic_partition import CommittedOffset, TopicPartition


class Output(Protocol):
    """Stores the outputs of one process, and the offsets up to which their input is processed.

    `commit` makes both visible together. So the offsets are read back through this port, not from Kafka: the producers
    of `skewless.kafka.producer` store them in the consumer group, a database stores them in the transaction that
    stores the rows.

    The event loop calls `send`; the consumer thread calls all other methods, and not during a `send`. Errors decide
    what the engine does:

    - UnavailableError of `connect` and `committed_offsets`: the attempt is repeated, and the consumer is polled
      meanwhile. Of another method: the process ends.
    - TransactionAbortedError: `abort` is called, then all partitions restart at their `committed_offsets`.
    - any SkewlessError: the process ends with its message. FencedError says that another process has replaced this one.
    """

    ready: bool
    """Whether outputs can be sent."""
    not_ready_reason: str
    """Why outputs cannot be sent while it is not ready, for `/readyz`."""
    dirty: bool
    """Whether something was sent since the last commit."""
    replaced: int
    """Number of connections that were replaced, for the metrics."""

    @property
    def waited_s(self) -> float:
        """Time in s since the start for which the output accepted no records."""

    @property
    def sent(self) -> Mapping[str, OutputStats]:
        """What was sent by topic, for the metrics."""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Numbers of commits by outcome, `committed` and `aborted`, for the metrics."""

    @property
    def client(self) -> ClientStatistics | None:
        """Statistics of its librdkafka client, for the metrics; None for an output without such a client."""

    def collect_metrics(self) -> Iterable[Sample]:
        """Return the samples of metrics that only this kind of output has. Called like that of a step."""

    def attach(self, consumer: Consumer) -> None:
        """Use this member of the consumer group from now on; called before the first poll, and after a new join."""

    def connect(self) -> None:
        """Make one attempt to connect. Does nothing while there is a connection.

        Called when this process has joined the group, and again after `close` or an `abort` with `replace`. From then
        on, a process that had the same identity cannot commit.
        """

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        """Accept outputs, which may be lazy. Waits while the output is full."""

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Make everything that was sent visible, together with these offsets.

        `offsets` has at least one partition. The commit must fail if another process has committed one of them in the
        meantime. Kafka rejects such a commit by the generation of the consumer group. Any other output must compare,
        for each partition, the CommittedOffset that is stored now with the one that this object last read in
        `committed_offsets` or last stored in `commit`.
        """

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of partitions, without those that have none."""

    def abort(self, *, replace: bool) -> None:
        """Discard everything that was sent since the last commit; with `replace`, the connection too.

        Raises LimitError if the next attempt would fail as well, because there is too much to send.
        """

    def abort_open(self, identity: str) -> None:
        """Discard what a process that is gone has sent and not committed, if others wait for that.

        `identity` is its group instance id. Makes one attempt. May be called in any thread, at the same time as the
        other methods.
        """

    def close(self) -> None:
        """Discard the connection and what was not committed."""
