"""Exactly once: outputs and the offsets they come from in one transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from skewless.errors import BrokerError, FencedError, UnreachableError
from skewless.transport.bounded import returns_in_time
from skewless.transport.failures import BrokerAwayError, RewindError, is_transient, retriable, stop_or_rewind
from skewless.transport.outbox import CALL_S, Outbox
from skewless.transport.settings import KafkaSettings, TransportSettings

log = logging.getLogger(__name__)

ABORT_S = 5.0
"""Timeout of an abort. After it the producer is replaced; the start of the next one aborts the transaction."""
MARGIN_S = 2.0
"""A call that takes this much longer than its timeout will not return."""
REFUSED_STARTS = 5
"""Attempts to start a producer that may fail with errors that are not retriable, before the process ends."""


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
        self._refused_starts = 0
        """Attempts to start that failed for good, since the last one that succeeded."""

    def options(self) -> dict[str, object]:
        """Tell librdkafka also how it takes part in transactions."""
        return super().options() | {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": round(self._transport.transaction_timeout_s * 1000),
        }

    def open(self, timeout_s: float) -> None:
        """Create the producer. The broker aborts what the previous producer of the same id left open."""
        deadline = time.monotonic() + timeout_s
        while not self.ready:
            try:
                self._connect(min(CALL_S, timeout_s))
            except BrokerAwayError as error:
                if time.monotonic() > deadline:
                    address = self._kafka.bootstrap_servers
                    raise UnreachableError(f"no answer from Kafka at {address} within {timeout_s:g} s") from error

    def _connect(self, timeout_s: float = CALL_S) -> None:
        if self._producer is None:
            self._start()
            self._begun_at = None
            with suppress(KafkaException):  # the next call reports it
                self.producer.list_topics(timeout=timeout_s)
        try:
            self.producer.init_transactions(timeout_s)
        except KafkaException as error:
            doing = f"starting transactions as {self._transactional_id}"
            if retriable(error):
                raise BrokerAwayError(f"{doing}: {error.args[0].str()}") from error
            raise self._not_started(error, doing) from error
        self.ready = True
        self._refused_starts = 0

    def _not_started(self, error: KafkaException, doing: str) -> Exception:
        """Drop the producer after an error that a repeated call cannot solve; a new producer may."""
        self.close()
        if is_transient(error.args[0]):
            return BrokerAwayError(f"{doing}: {error.args[0].str()}")
        self._refused_starts += 1
        failure = stop_or_rewind(error, doing)
        if not isinstance(failure, RewindError):
            return failure
        # A coordinator that has just restarted may answer with a fatal error once (KAFKA-19690). One that keeps doing
        # so refuses the settings, for example a transaction timeout above the broker's limit.
        return BrokerAwayError(str(failure)) if self._refused_starts < REFUSED_STARTS else BrokerError(str(failure))

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
        self._clear()
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
                    raise self._judged(error, f"committing to topics {self._topics()}") from error
                if time.monotonic() > deadline:
                    raise RewindError("committing: no answer in time, its outcome is unknown", replace=True) from error

    def _judged(self, error: KafkaException, doing: str) -> Exception:
        """Distinguish fencing by another producer of the same id from a transaction that the broker timed out."""
        if error.args[0].code() == KafkaError._FATAL:  # noqa: SLF001
            error = self._fatal_error(error)
        elif error.args[0].code() == KafkaError._STATE and self._begun_at is not None:  # noqa: SLF001
            error, doing = self._abort_error(error), f"writing to topics {self._topics()}"
        failure = super()._judged(error, f"{doing} as {self._transactional_id}")
        if isinstance(failure, RewindError) and failure.fenced:
            age = 0.0 if self._begun_at is None else time.monotonic() - self._begun_at
            if age < self._transport.transaction_timeout_s * 0.8:
                return FencedError(
                    f"another process has started with transactional id {self._transactional_id}, so this one ends; "
                    "if both are meant to run, give each its own --instance"
                )
        return failure

    def _fatal_error(self, error: KafkaException) -> KafkaException:
        """Ask for the cause: produce() only says that there was one, transactional calls repeat it."""
        try:
            self.producer.abort_transaction(CALL_S)
        except KafkaException as cause:
            return cause
        return error

    def _topics(self) -> str:
        return ", ".join(sorted(map(self._topic, self.sent)))

    def _abort_error(self, error: KafkaException) -> KafkaException:
        """Return why the open transaction must be aborted: produce() reports only its state."""
        try:
            # Never succeeds, because a transaction is open. The error is that of the transaction.
            self.producer.begin_transaction()
        except KafkaException as cause:
            return cause
        return error

    def abort(self, *, replace: bool) -> None:
        """Abort the open transaction. Where this producer cannot, the broker does when the next one starts."""
        if not replace and self._begun_at is not None:
            try:
                replace = not returns_in_time(lambda: self.producer.abort_transaction(ABORT_S), ABORT_S + MARGIN_S)
            except KafkaException as error:
                log.warning("abort failed, a new producer is needed: %s", error.args[0].str())
                replace = True
        if replace:
            self.close()
        self._begun_at = None
        self._failed = None
        self._clear()
        self.outcomes["aborted"] += 1
