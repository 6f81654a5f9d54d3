"""Where outputs go: one producer per process, and when what it wrote counts."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from skewless.records import Output
from skewless.transport.clients import made
from skewless.transport.counts import Tally
from skewless.transport.failures import RewindError, refusal, stop_or_rewind
from skewless.transport.settings import KafkaSettings, TransportSettings

SPACE_S = 0.005
"""Pause between two tries to hand a record to a producer whose queue is full."""
PARTITION_UA = -1
"""The producer's number for a partition that the key decides."""
CALL_S = 2.0
"""Timeout of a single call into librdkafka; calls are repeated until their deadline."""


@dataclass(slots=True)
class Uncommitted:
    """Records, bytes of their values, and the time that it took to make and queue them."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Without the time in which the producer's queue was full."""


class Outbox(ABC):
    """What both guarantees share: the producer and the hand-over of records to it."""

    def __init__(self, kafka: KafkaSettings, transport: TransportSettings, topic: Callable[[str], str]) -> None:
        self._kafka = kafka
        self._transport = transport
        self._topic = topic
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        self._failed_topic = ""
        self.dirty = False
        """Whether something was sent since the last commit."""
        self.uncommitted = Uncommitted()
        """What was sent since the last commit."""
        self.sent: defaultdict[str, Tally] = defaultdict(Tally)
        """What was sent by topic, for the metrics."""
        self.outcomes: Counter[str] = Counter({"committed": 0, "aborted": 0})
        """Commits by outcome, for the metrics."""
        self.ready = False
        """Whether there is a producer that can send."""
        self.replaced = 0
        """How often the producer was replaced, for the metrics."""

    @property
    def producer(self) -> Producer:
        """The producer; only between `open` and `close`."""
        if self._producer is None:
            raise RuntimeError("the outbox is not open")
        return self._producer

    def options(self) -> dict[str, object]:
        """Tell librdkafka what its producer is; what exactness rests on comes last."""
        return {
            "linger.ms": 5,
            "compression.type": self._transport.compression,
            "message.max.bytes": 16 * 2**20,
            "queue.buffering.max.kbytes": 16 * 1024,
            # Small records weigh many times their bytes in librdkafka's queue; the broker takes this many in a moment.
            "queue.buffering.max.messages": 50_000,
            "retry.backoff.ms": 20,
            "batch.size": 1_000_000,
            **self._kafka.client_options(),
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
            "logger": logging.getLogger("skewless.librdkafka"),
        }

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        purged = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
        if error is not None and error.code() not in purged and self._failed is None:
            self._failed, self._failed_topic = error, message.topic() or ""

    def send(self, outputs: Iterable[Output]) -> None:
        """Queue records; RewindError when one cannot be taken. Waits while the producer's queue is full."""
        started = time.monotonic()
        try:
            self._queue(outputs)
        finally:
            self.uncommitted.seconds += time.monotonic() - started

    def _queue(self, outputs: Iterable[Output]) -> None:
        uncommitted, topic, name, tally = self.uncommitted, "", "", Tally()
        # An aggregator writes a record per result, so nothing is looked up or made twice here.
        for output in outputs:
            self._begin()
            self.dirty = True
            if output.topic != topic:
                topic, name, tally = output.topic, self._topic(output.topic), self.sent[output.topic]
            size = len(output.value) if output.value else 0
            tally.records += 1
            tally.bytes += size
            uncommitted.records += 1
            uncommitted.bytes += size
            try:
                self._produce(name, output)
            except BufferError:
                self._wait_for_space(name, output)
            except KafkaException as error:
                raise self._judged(error, f"writing to topic {name}") from error
        self._serve(0)

    def _produce(self, name: str, output: Output) -> None:
        partition = PARTITION_UA if output.partition is None else output.partition
        # The producer replaces 0 by the present time.
        timestamp = output.timestamp or 0
        if output.headers:
            headers = list(output.headers)
            self.producer.produce(name, output.value, output.key, partition, timestamp=timestamp, headers=headers)
        else:
            self.producer.produce(name, output.value, output.key, partition, timestamp=timestamp)

    def _serve(self, wait_s: float) -> None:
        """Hear of deliveries, and of what is fatal: librdkafka raises it here."""
        try:
            self.producer.poll(wait_s)
        except KafkaException as error:
            raise self._judged(error, "writing") from error

    def _wait_for_space(self, name: str, output: Output) -> None:
        started = time.monotonic()
        try:
            self._repeat_until_taken(name, output, started + self._transport.transaction_timeout_s)
        finally:
            self.uncommitted.seconds -= time.monotonic() - started

    def _repeat_until_taken(self, name: str, output: Output, deadline: float) -> None:
        while time.monotonic() < deadline:
            self._serve(SPACE_S)
            try:
                self._produce(name, output)
            except BufferError:
                continue
            except KafkaException as error:
                raise self._judged(error, f"writing to topic {name}") from error
            return
        raise RewindError(f"writing to topic {name}: the broker takes no records", replace=True)

    @abstractmethod
    def _begin(self) -> None: ...

    def _judged(self, error: KafkaException, doing: str) -> Exception:
        """Judge by the record that was refused, if one was: the transaction only says that something failed."""
        refused = self._failed and refusal(self._failed, f"writing to topic {self._failed_topic}", "Write")
        return refused or stop_or_rewind(error, doing)

    def _start(self) -> None:
        self._producer = made(Producer, self.options())
        self._failed = None

    @abstractmethod
    def open(self, timeout_s: float) -> None:
        """Create the producer at start; UnreachableError if no broker answers in time."""

    def reopen(self) -> None:
        """Make one attempt to create a producer in place of a lost one; BrokerAwayError if it has to be repeated.

        Does nothing while the producer can be used.
        """
        if not self.ready:
            self._connect()
            self.replaced += 1

    @abstractmethod
    def _connect(self) -> None:
        """Create the producer unless there is one, and make one attempt to get it ready; BrokerAwayError."""

    @abstractmethod
    def commit(self, offsets: Sequence[TopicPartition], consumer: Consumer) -> None:
        """Make everything sent and these offsets durable together; called on the consumer's own thread."""

    @abstractmethod
    def abort(self, *, replace: bool) -> None:
        """Drop everything sent since the last commit; with `replace`, or if that fails, drop the producer too.

        The caller creates the next producer by `reopen`.
        """

    def _clear(self) -> None:
        """Note that nothing is uncommitted: it was committed, or dropped."""
        self.dirty = False
        self.uncommitted = Uncommitted()

    def close(self) -> None:
        """Drop the producer and what it still holds."""
        self.ready = False
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=True)
            self._producer = None
