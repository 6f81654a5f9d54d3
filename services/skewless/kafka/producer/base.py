"""Base class for output producers. Each process has one; subclasses decide when its records become visible."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.algorithms.record_size import PRODUCED_BYTES
from skewless.errors import TransactionAbortedError
from skewless.kafka import client_statistics
from skewless.kafka.client_statistics import ClientStatistics
from skewless.kafka.clients import create_client, librdkafka_logger
from skewless.kafka.consumer.broker_queries import BrokerQueries
from skewless.kafka.errors import authorization_error, classify_transaction_error
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.wire.record import OutputRecord, OutputStats, OwnHeaders
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

Header = tuple[str, bytes]

QUEUE_FULL_PAUSE_S = 0.005
"""Pause between two attempts to enqueue a record if the producer's queue is full."""
PARTITION_UA = -1
"""librdkafka's number for a partition that the hash of the key decides."""
CALL_S = 2.0
"""Timeout of a single call into librdkafka; calls are repeated until their deadline."""
STALLED_S = 5.0
"""A longer wait for room in the producer's queue is an outage. A broker that is only slow makes room in between."""
LAST_ATTEMPT_S = 0.1
"""Minimum timeout of the second request that looks for a broker."""


class OutputProducer(ABC):
    """Enqueues output records in a librdkafka producer; the part that both guarantees share.

    Implements the port `skewless.engine.output.Output`, which describes the methods.
    """

    def __init__(self, kafka: KafkaSettings, transport: TransportSettings, topic: Callable[[str], str]) -> None:
        self._kafka = kafka
        self._transport = transport
        self._topic = topic
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._failed: KafkaError | None = None
        self._failed_topic = ""
        self.dirty = False
        """Whether something was sent since the last commit."""
        self.waited_s = 0.0
        """Time in s since the start for which the producer's queue was full."""
        self.stalled_s = 0.0
        """Part of it since the last commit, in which the broker accepted nothing."""
        self.sent: defaultdict[str, OutputStats] = defaultdict(OutputStats)
        """Records sent by topic, for the metrics."""
        self.outcomes: Counter[str] = Counter({"committed": 0, "aborted": 0})
        """Commits by outcome, for the metrics."""
        self.ready = False
        """Whether the producer can send."""
        self.not_ready_reason = (
            f"no producer: Kafka at {kafka.bootstrap_servers} does not answer, or is still ending an older transaction"
        )
        self._connections = 0
        self.replaced = 0
        """Number of times the producer was replaced, for the metrics."""
        self.client = ClientStatistics()
        """Statistics of librdkafka's producers, for the metrics."""

    def collect_metrics(self) -> tuple[()]:
        """Return no samples: a producer has the metrics of every output only."""
        return ()

    @property
    def producer(self) -> Producer:
        """The librdkafka producer; only between `connect` and `close`."""
        if self._producer is None:
            raise RuntimeError("the producer is not open")
        return self._producer

    @property
    def consumer(self) -> Consumer:
        """The consumer whose group has the offsets; only after `attach`."""
        if self._consumer is None:
            raise RuntimeError("the output has no consumer")
        return self._consumer

    def attach(self, consumer: Consumer) -> None:
        """Commit and read offsets through this consumer, which is a member of the group."""
        self._consumer = consumer

    def options(self) -> dict[str, object]:
        """Return librdkafka's options. Options that exactness depends on come last, so they take precedence."""
        return {
            **client_statistics.INTERVAL,
            "linger.ms": 5,
            "compression.type": self._transport.compression,
            "message.max.bytes": PRODUCED_BYTES,
            "queue.buffering.max.kbytes": 16 * 1024,
            # A small record occupies many times its bytes in librdkafka's queue. The broker accepts this many at once.
            "queue.buffering.max.messages": 50_000,
            "retry.backoff.ms": 20,
            "batch.size": 1_000_000,
            **self._kafka.client_options(),
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
            **self.client.options(),
            "logger": librdkafka_logger(),
        }

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        purged = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
        if error is not None and error.code() not in purged and self._failed is None:
            self._failed, self._failed_topic = error, message.topic() or ""

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        """Enqueue records. Waits while the producer's queue is full. Raises TransactionAbortedError if a record fails.

        `outputs` are lazy in a flush: then the step computes them within this call, and its errors are raised here.
        """
        # An aggregator writes one record per result, so what can be done once per topic is not done once per record.
        for topic, outputs_of_topic in itertools.groupby(outputs, attrgetter("topic")):
            self._begin()
            self.dirty = True
            self._send_to(topic, outputs_of_topic)
        self._poll_delivery_reports(0)

    def _send_to(self, topic: str, outputs: Iterable[OutputRecord]) -> None:
        produce, topic_name = self.producer.produce, self._topic(topic)
        sent = self.sent[topic]  # before the first record: an error names the topics in `sent`
        headers: OwnHeaders = ()
        header_list: list[Header] | None = None
        records = value_bytes = 0
        try:
            for output in outputs:
                if output.headers is not headers:  # the headers of all results are the same object
                    headers, header_list = output.headers, list(output.headers) or None
                partition = PARTITION_UA if output.partition is None else output.partition
                # Positional arguments save 0.2 us. The two that are None are callbacks for the delivery of this
                # record. librdkafka replaces the timestamp 0 by the current time; 1 is the nearest one that it writes.
                timestamp = output.timestamp or (0 if output.timestamp is None else 1)
                record = topic_name, output.value, output.key, partition, None, None, timestamp, header_list
                try:
                    produce(*record)
                except BufferError:
                    self._wait_for_room(topic_name, record)
                except KafkaException as error:
                    raise self._classify(error, f"writing to topic {topic_name}") from error
                records += 1
                value_bytes += len(output.value or b"")
        finally:
            sent.records += records
            sent.bytes += value_bytes

    def _poll_delivery_reports(self, wait_s: float) -> None:
        """Process delivery reports. librdkafka also raises fatal errors here."""
        try:
            self.producer.poll(wait_s)
        except KafkaException as error:
            raise self._classify(error, "writing") from error

    def _wait_for_room(self, topic_name: str, record: tuple[object, ...]) -> None:
        started = time.monotonic()
        try:
            self._retry_until_enqueued(topic_name, record, started + self._transport.transaction_timeout_s)
        finally:
            waited_s = time.monotonic() - started
            if waited_s > STALLED_S:
                self.stalled_s += waited_s

    def _retry_until_enqueued(self, topic_name: str, record: tuple[object, ...], deadline: float) -> None:
        produce: Callable[..., None] = self.producer.produce
        while (now := time.monotonic()) < deadline:
            self._poll_delivery_reports(QUEUE_FULL_PAUSE_S)
            self.waited_s += time.monotonic() - now  # at each pause: metrics are read meanwhile
            try:
                produce(*record)
            except BufferError:
                continue
            except KafkaException as error:
                raise self._classify(error, f"writing to topic {topic_name}") from error
            return
        raise TransactionAbortedError(
            f"writing to topic {topic_name}: the broker accepts no records", replace_output=True
        )

    @abstractmethod
    def _begin(self) -> None: ...

    def _classify(self, error: KafkaException, operation: str) -> Exception:
        """Return the error to raise: that of the record that was refused, if one was, otherwise the transaction's."""
        # The transaction's error does not name the cause.
        refused = self._failed and authorization_error(self._failed, f"writing to topic {self._failed_topic}", "Write")
        return refused or classify_transaction_error(error, operation)

    def _start(self) -> None:
        self._producer = create_client(Producer, self.options())
        self._failed = None

    def _await_broker(self) -> None:
        """Wait until a broker has answered the new producer. Raises KafkaException if none has within `CALL_S`.

        It must be the first request: `reachability` says why.
        """
        # The id is in the answer to the request that librdkafka makes by itself, which has no topics. The list of all
        # topics of a large cluster takes longer than `CALL_S`.
        deadline = time.monotonic() + CALL_S
        try:
            self.producer.cluster_id(CALL_S)
        except KafkaException:
            # At once if the broker has answered and has no id.
            self.producer.list_topics(timeout=max(LAST_ATTEMPT_S, deadline - time.monotonic()))

    def connect(self) -> None:
        """Make one attempt to create a producer, at the start or after it was discarded.

        Does nothing while the producer is ready. Raises UnavailableError if the attempt has to be repeated.
        """
        if not self.ready:
            self._connect()
            self._connections += 1
            self.replaced = self._connections - 1

    @abstractmethod
    def _connect(self) -> None:
        """Create the producer unless there is one, and make one attempt to get it ready.

        Raises UnavailableError if the attempt has to be repeated.
        """

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit everything that was sent, and these offsets."""

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that the group has committed, without the partitions that have none."""
        return BrokerQueries(self.consumer).committed(partitions)

    @abstractmethod
    def abort_open(self, identity: str) -> None:
        """Abort what a process that is gone has left open. Called in any thread."""

    @abstractmethod
    def abort(self, *, replace: bool) -> None:
        """Discard everything that was sent since the last commit; with `replace`, or if that fails, the producer too.

        The caller creates the next producer by `connect`.
        """

    @staticmethod
    def _to_kafka(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[KafkaPartition]:
        return [
            KafkaPartition(
                *partition,
                committed.offset,
                committed.metadata,
                *(() if committed.leader_epoch is None else (committed.leader_epoch,)),
            )
            for partition, committed in offsets.items()
        ]

    def _clear(self) -> None:
        """Record that nothing is uncommitted: everything was committed or discarded."""
        self.dirty = False
        self.stalled_s = 0.0

    def close(self) -> None:
        """Discard the producer and its queued records."""
        self.ready = False
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=True)
            self._producer = None
