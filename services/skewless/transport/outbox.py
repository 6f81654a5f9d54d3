"""Where outputs go: one producer per process, outputs and offsets in one transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from skewless.errors import BrokerError, FencedError, UnreachableError
from skewless.records import Output
from skewless.transport.bounded import returns_in_time
from skewless.transport.counts import Tally
from skewless.transport.failures import RewindError, refusal, retriable, stop_or_rewind
from skewless.transport.probe import READY_S
from skewless.transport.settings import KafkaSettings, TransportSettings

log = logging.getLogger(__name__)

CALL_S = 2.0
"""Longest single call into librdkafka; calls are repeated until their deadline."""
ABORT_S = 5.0
"""Longest wait for an abort; behind it a new producer does the same."""
MARGIN_S = 2.0
"""A call that takes this much longer than it may will not return."""
SPACE_S = 0.005
"""Pause between two tries to hand a record to a producer whose queue is full."""


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
        self.sent: defaultdict[str, Tally] = defaultdict(Tally)
        """What was sent by topic, for the metrics."""
        self.outcomes: Counter[str] = Counter({"committed": 0, "aborted": 0})
        """Commits by outcome, for the metrics."""
        self.ready = False
        """Whether it can send, for the probes."""
        self.replaced = 0
        """How often the producer was replaced, for the metrics."""

    @property
    def producer(self) -> Producer:
        """The producer; only between `open` and `close`."""
        if self._producer is None:
            raise RuntimeError("the outbox is not open")
        return self._producer

    def _options(self) -> dict[str, object]:
        return {
            "linger.ms": 5,
            "compression.type": self._transport.compression,
            "message.max.bytes": 16 * 2**20,
            "queue.buffering.max.kbytes": 128 * 1024,
            # Small records weigh many times their bytes in librdkafka's queue; the broker takes this many in a moment.
            "queue.buffering.max.messages": 100_000,
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
        produce = self.producer.produce
        for output in outputs:
            self._begin()
            self.dirty = True
            tally = self.sent[output.topic]
            tally.records += 1
            tally.bytes += len(output.value or b"")
            options: dict[str, object] = {"value": output.value, "key": output.key}
            if output.partition is not None:
                options["partition"] = output.partition
            if output.timestamp is not None:
                options["timestamp"] = output.timestamp
            if output.headers:
                options["headers"] = list(output.headers)
            name = self._topic(output.topic)
            try:
                produce(name, **options)
            except BufferError:
                self._wait_for_space(name, options)
            except KafkaException as error:
                raise self._judged(error, f"writing to topic {name}") from error
        self._serve(0)

    def _serve(self, wait_s: float) -> None:
        """Hear of deliveries, and of what is fatal: librdkafka raises it here."""
        try:
            self.producer.poll(wait_s)
        except KafkaException as error:
            raise self._judged(error, "writing") from error

    def _wait_for_space(self, name: str, options: dict[str, object]) -> None:
        deadline = time.monotonic() + self._transport.transaction_timeout_s
        while time.monotonic() < deadline:
            self._serve(SPACE_S)
            try:
                self.producer.produce(name, **options)
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

    @abstractmethod
    def open(self, timeout_s: float) -> None:
        """Get ready to send; UnreachableError when the broker does not answer in time."""

    @abstractmethod
    def commit(self, offsets: Sequence[TopicPartition], consumer: Consumer) -> None:
        """Make everything sent and these offsets durable together; called on the consumer's own thread."""

    @abstractmethod
    def abort(self, *, replace: bool) -> None:
        """Forget everything sent since the last commit; with `replace` also the producer."""

    def close(self) -> None:
        """Drop the producer and what it still holds."""
        self.ready = False
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=True)
            self._producer = None


class TransactionalOutbox(Outbox):
    """Exactly once: outputs and offsets in one transaction."""

    def __init__(
        self,
        kafka: KafkaSettings,
        transport: TransportSettings,
        topic: Callable[[str], str],
        transactional_id: str,
    ) -> None:
        super().__init__(kafka, transport, topic)
        self._transactional_id = transactional_id
        self._begun_at: float | None = None

    def _options(self) -> dict[str, object]:
        return super()._options() | {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": round(self._transport.transaction_timeout_s * 1000),
        }

    def open(self, timeout_s: float) -> None:
        """Start a producer; what its predecessor of the same id left open is aborted by the broker."""
        self._producer = Producer(self._options())
        self._begun_at = None
        self._failed = None
        deadline = time.monotonic() + timeout_s
        with suppress(KafkaException):  # what is wrong is told below
            self.producer.list_topics(timeout=min(READY_S, timeout_s))
        while True:
            try:
                self.producer.init_transactions(min(CALL_S, timeout_s))
            except KafkaException as error:
                if not retriable(error):
                    failure = stop_or_rewind(error, f"starting transactions as {self._transactional_id}")
                    raise BrokerError(str(failure)) if isinstance(failure, RewindError) else failure from error
                if time.monotonic() > deadline:
                    address = self._kafka.bootstrap_servers
                    raise UnreachableError(f"no answer from Kafka at {address} within {timeout_s:g} s") from error
            else:
                self.ready = True
                return

    def _begin(self) -> None:
        if self._begun_at is None:
            try:
                self.producer.begin_transaction()
            except KafkaException as error:
                raise self._judged(error, "beginning a transaction") from error
            self._begun_at = time.monotonic()

    def commit(self, offsets: Sequence[TopicPartition], consumer: Consumer) -> None:
        """Commit outputs and offsets in one transaction."""
        self._begin()
        deadline = time.monotonic() + self._transport.transaction_timeout_s
        if offsets:
            members = consumer.consumer_group_metadata()
            self._repeat(lambda: self.producer.send_offsets_to_transaction(list(offsets), members, CALL_S), deadline)
        self._repeat(lambda: self.producer.commit_transaction(CALL_S), deadline)
        self._begun_at = None
        self.dirty = False
        self.outcomes["committed"] += 1

    def _repeat(self, call: Callable[[], None], deadline: float) -> None:
        asked_again = False
        while True:
            try:
                if returns_in_time(call, CALL_S + MARGIN_S):
                    return
                raise RewindError("committing: librdkafka does not return, its outcome is unknown", replace=True)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._STATE and not asked_again:  # noqa: SLF001
                    # The transaction failed while the call was on its way: asked once more, librdkafka says of what.
                    asked_again = True
                    continue
                if not retriable(error):
                    topics = ", ".join(sorted(map(self._topic, self.sent)))
                    raise self._judged(error, f"committing to topics {topics}") from error
                if time.monotonic() > deadline:
                    raise RewindError("committing: no answer in time, its outcome is unknown", replace=True) from error

    def _judged(self, error: KafkaException, doing: str) -> Exception:
        """Tell a twin, which fences this producer, from a transaction so old that the broker gave it up."""
        if error.args[0].code() == KafkaError._FATAL:  # noqa: SLF001
            error = self._fatal_error(error)
        failure = super()._judged(error, f"{doing} as {self._transactional_id}")
        if isinstance(failure, RewindError) and failure.fenced:
            age = 0.0 if self._begun_at is None else time.monotonic() - self._begun_at
            if age < self._transport.transaction_timeout_s * 0.8:
                return FencedError(
                    f"another process runs with transactional id {self._transactional_id}; give each its own --instance"
                )
        return failure

    def _fatal_error(self, error: KafkaException) -> KafkaException:
        """Ask for the cause: produce() only says that there was one, transactional calls repeat it."""
        try:
            self.producer.abort_transaction(CALL_S)
        except KafkaException as cause:
            return cause
        return error

    def abort(self, *, replace: bool) -> None:
        """Abort the open transaction, by the broker where this producer cannot any more."""
        if not replace and self._begun_at is not None:
            try:
                replace = not returns_in_time(lambda: self.producer.abort_transaction(ABORT_S), ABORT_S + MARGIN_S)
            except KafkaException as error:
                log.warning("abort failed, starting a new producer: %s", error.args[0].str())
                replace = True
        if replace:
            self.replaced += 1
            self.close()
            self.open(max(60.0, self._transport.transaction_timeout_s * 2))
        self._begun_at = None
        self._failed = None
        self.dirty = False
        self.outcomes["aborted"] += 1


class FlushingOutbox(Outbox):
    """At least once: outputs are written before the offsets; a crash in between repeats them."""

    def _begin(self) -> None:
        """There is no transaction to begin."""

    def open(self, timeout_s: float) -> None:
        """Start a producer and wait for the broker."""
        self._producer = Producer(self._options())
        self._failed = None
        try:
            self.producer.list_topics(timeout=timeout_s)
        except KafkaException as error:
            address = self._kafka.bootstrap_servers
            raise UnreachableError(f"no answer from Kafka at {address} within {timeout_s:g} s") from error
        self.ready = True

    def commit(self, offsets: Sequence[TopicPartition], consumer: Consumer) -> None:
        """Write everything, then commit the offsets."""
        if self.producer.flush(self._transport.transaction_timeout_s):
            raise RewindError("writing: no answer in time", replace=True)
        if self._failed is not None:
            raise self._judged(KafkaException(self._failed), f"writing to topic {self._failed_topic}")
        if offsets:
            try:
                consumer.commit(offsets=list(offsets), asynchronous=False)
            except KafkaException as error:
                raise stop_or_rewind(error, "committing") from error
        self.dirty = False
        self.outcomes["committed"] += 1

    def abort(self, *, replace: bool) -> None:
        """Drop what is still queued; what was written stays, and will be repeated."""
        with suppress(KafkaException):
            self.producer.purge(in_queue=True, in_flight=True, blocking=True)
            self.producer.poll(0)
        if replace:
            self.replaced += 1
            self.close()
            self.open(60.0)
        self._failed = None
        self.dirty = False
        self.outcomes["aborted"] += 1
