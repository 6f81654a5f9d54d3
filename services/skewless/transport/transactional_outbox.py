"""Exactly once: outputs and the offsets they come from in one transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from skewless.errors import BrokerError, FencedError, UnreachableError
from skewless.transport.bounded import returns_in_time
from skewless.transport.failures import RewindError, retriable, stop_or_rewind
from skewless.transport.outbox import Outbox
from skewless.transport.probe import READY_S
from skewless.transport.settings import KafkaSettings, TransportSettings

log = logging.getLogger(__name__)

CALL_S = 2.0
"""Longest single call into librdkafka; calls are repeated until their deadline."""
ABORT_S = 5.0
"""Longest wait for an abort; behind it a new producer does the same."""
MARGIN_S = 2.0
"""A call that takes this much longer than it may will not return."""


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

    def options(self) -> dict[str, object]:
        """Tell librdkafka also how it takes part in transactions."""
        return super().options() | {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": round(self._transport.transaction_timeout_s * 1000),
        }

    def open(self, timeout_s: float) -> None:
        """Start a producer; what its predecessor of the same id left open is aborted by the broker."""
        self._start()
        self._begun_at = None
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
