"""TransactionalProducer: commits outputs and the offsets of their input in one transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, LimitError, TransactionAbortedError, UnavailableError, UnreachableError
from skewless.kafka.call_with_timeout import TimedCalls
from skewless.kafka.errors import classify_transaction_error, is_transient
from skewless.kafka.producer.base import CALL_S, STALLED_S, OutputProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

ABORT_TIMEOUT_S = 5.0
"""Timeout of an abort. After it the producer is replaced: the start of the next one aborts the transaction."""
FIRST_START_S = 0.15
"""Timeout of the first request of a producer. If the last transaction with its id is open, the coordinator begins to
abort it, and the producer has to ask again. librdkafka does so after 0.5 s, another producer at once."""
HANG_MARGIN_S = 2.0
"""A call that takes this much longer than its timeout will not return. One cause, in librdkafka 2.16, is a coordinator
that its brokers did not list for a moment (https://github.com/confluentinc/librdkafka/issues/5511)."""
MORE_TIME = 4
"""A transaction that took longer than its timeout is repeated with this many times the time that it took. The broker
may have refused its records before all were written."""
MAX_TIMEOUT_S = 180.0
"""The longest timeout that a transaction gets if the setting is shorter. A stage that writes for longer than
`metrics.liveness_timeout_s`, this time by default, counts as hung: it does not poll meanwhile."""
MAX_FAILED_STARTS = 5
"""Attempts to start a producer that may fail with errors that are not retriable before the process ends."""


class TransactionalProducer(OutputProducer):
    """Exactly once: outputs and offsets are in one transaction."""

    def __init__(
        self,
        kafka: KafkaSettings,
        transport: TransportSettings,
        topic: Callable[[str], str],
        transactional_id: str,
    ) -> None:
        super().__init__(kafka, transport, topic)
        self._transactional_id = transactional_id
        self._timeout_s = transport.transaction_timeout_s
        """Time after which the broker aborts a transaction of the next producer."""
        self._max_timeout_s = max(MAX_TIMEOUT_S, self._timeout_s)
        """The longest timeout that a transaction gets."""
        self._calls = TimedCalls()
        self._begun_at: float | None = None
        self._written_at: float | None = None
        """Time at which the commit of the open transaction began, or last found that records were written."""
        self._failed_starts = 0
        """Attempts to start that failed with an error that is not retriable, since the last successful one."""

    def options(self) -> dict[str, object]:
        """Return librdkafka's options, including those of transactions."""
        return super().options() | {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": round(self._timeout_s * 1000),
        }

    def open(self, timeout_s: float) -> None:
        """Repeat `connect` until the producer is ready, for a process that is not a member of a group.

        The broker aborts an open transaction of the previous producer with the same id. Raises UnreachableError if the
        producer is not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.ready:
            try:
                self.connect()
            except UnavailableError as error:
                if time.monotonic() > deadline:
                    address = self._kafka.bootstrap_servers
                    raise UnreachableError(f"no answer from Kafka at {address} within {timeout_s:g} s") from error

    def _connect(self) -> None:
        is_new = self._producer is None
        if is_new:
            self._start()
        unavailable = self._init_transactions(FIRST_START_S if is_new else CALL_S)
        if unavailable is not None and is_new:
            self.close()
            self._start()
            unavailable = self._init_transactions(CALL_S)
        if unavailable is not None:
            raise unavailable
        self.ready = True
        self._failed_starts = 0

    def _start(self) -> None:
        super()._start()
        self._clear()
        with suppress(KafkaException):  # the next call raises it again
            self._await_broker()

    def _init_transactions(self, timeout_s: float) -> UnavailableError | None:
        """Start transactions. Returns an error if that has to be repeated, and raises any other error."""
        operation = f"starting transactions as {self._transactional_id}"
        try:
            self.producer.init_transactions(timeout_s)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise self._start_failed(error, operation) from error
            return UnavailableError(f"{operation}: {error.args[0].str()}")
        return None

    def _start_failed(self, error: KafkaException, operation: str) -> Exception:
        """Discard the producer, for which a repeated call would fail again, and return the error to raise."""
        self.close()
        if is_transient(error.args[0]):
            return UnavailableError(f"{operation}: {error.args[0].str()}")
        if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return self._timeout_refused()
        self._failed_starts += 1
        failure = classify_transaction_error(error, operation)
        if not isinstance(failure, TransactionAbortedError):
            return failure
        # A coordinator that has just restarted may answer with a fatal error once (KAFKA-19690). If it does so
        # repeatedly, it refuses the settings.
        return UnavailableError(str(failure)) if self._failed_starts < MAX_FAILED_STARTS else BrokerError(str(failure))

    def _timeout_refused(self) -> Exception:
        """Halve a timeout above that of the settings, which the brokers do not allow, and return the error to raise."""
        refused_s, setting_s = self._timeout_s, self._transport.transaction_timeout_s
        if refused_s > setting_s:
            self._timeout_s = self._max_timeout_s = max(setting_s, refused_s / 2)
            return UnavailableError(f"the brokers do not allow a transaction of {refused_s:.0f} s")
        return BrokerError(
            f"transport.transaction_timeout_s: the brokers do not allow {setting_s:g} s: lower it, or raise the "
            "brokers' transaction.max.timeout.ms"
        )

    def _begin(self) -> None:
        if self._begun_at is None:
            try:
                self.producer.begin_transaction()
            except KafkaException as error:
                raise self._classify(error, "beginning a transaction") from error
            self._begun_at = time.monotonic()

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit outputs and offsets in one transaction."""
        self._begin()
        self._written_at = time.monotonic()
        if offsets:
            to_send, group_metadata = self._to_kafka(offsets), self.consumer.consumer_group_metadata()
            self._repeat(lambda: self.producer.send_offsets_to_transaction(to_send, group_metadata, CALL_S))
        self._repeat(lambda: self.producer.commit_transaction(CALL_S))
        self._clear()
        # This producer keeps the time that it has: each of its transactions may be as large as the longest.
        self._timeout_s = self._transport.transaction_timeout_s
        self.outcomes["committed"] += 1

    def _repeat(self, call: Callable[[], None]) -> None:
        """Repeat a call of a commit until it succeeds, or for `transaction_timeout_s` in which no record is written."""
        repeated_for_cause, unwritten = False, len(self.producer)
        while True:
            try:
                if self._calls.call(call, CALL_S + HANG_MARGIN_S):
                    return
                raise TransactionAbortedError(
                    "committing: librdkafka does not return, its outcome is unknown", replace_output=True
                )
            except KafkaException as error:
                if error.args[0].code() == KafkaError._STATE and not repeated_for_cause:  # noqa: SLF001
                    # The transaction failed during the call. A second call returns the cause.
                    repeated_for_cause = True
                    continue
                now = time.monotonic()
                written_at = self._written_at or now
                if not error.args[0].retriable():
                    if now < written_at + STALLED_S:  # the broker was still writing
                        self._written_at = now
                    raise self._classify(error, f"committing to topics {self._topics()}") from error
                if len(self.producer) < unwritten:
                    unwritten, self._written_at = len(self.producer), now
                elif now > written_at + self._transport.transaction_timeout_s:
                    raise TransactionAbortedError(
                        "committing: no answer in time, its outcome is unknown", replace_output=True
                    ) from error

    def _classify(self, error: KafkaException, operation: str) -> Exception:
        """Return the error to raise, with the cause instead of the producer's state."""
        # A fenced producer does not end the process. The broker fences a producer whose transaction has timed out, and
        # a process that was suspended in `init_transactions` fences its successor on waking. Only the group knows
        # which process is the member, and it is asked before the next producer starts.
        if error.args[0].code() == KafkaError._FATAL:  # noqa: SLF001
            error = self._fatal_error(error)
        elif error.args[0].code() == KafkaError._STATE and self._begun_at is not None:  # noqa: SLF001
            error, operation = self._abort_error(error), f"writing to topics {self._topics()}"
        return super()._classify(error, f"{operation} as {self._transactional_id}")

    def _fatal_error(self, error: KafkaException) -> KafkaException:
        """Return the cause of a fatal error.

        produce() reports only that a fatal error has occurred. A transactional call reports the cause.
        """
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
        """Abort the open transaction. If this producer fails to, the broker aborts it when the next producer starts.

        If writing took longer than the timeout, the next transaction has more time, since it will write as much. Raises
        LimitError if it has the longest one already.
        """
        replace = self._gives_more_time() or replace
        if not replace and self._begun_at is not None:
            try:
                replace = not self._calls.call(
                    lambda: self.producer.abort_transaction(ABORT_TIMEOUT_S), ABORT_TIMEOUT_S + HANG_MARGIN_S
                )
            except KafkaException as error:
                log.warning("abort failed, a new producer is needed: %s", error.args[0].str())
                replace = True
        if replace:
            self.close()
        self._failed = None
        self._clear()
        self.outcomes["aborted"] += 1

    def _gives_more_time(self) -> bool:
        """Return whether the next producer has more time, because writing the open transaction took too long."""
        if self._begun_at is None:
            return False
        # Without the time for which the broker accepted or committed nothing: an outage makes no transaction large.
        wrote_s = (self._written_at or time.monotonic()) - self._begun_at - self.stalled_s
        if wrote_s <= self._timeout_s:
            return False
        if self._timeout_s >= self._max_timeout_s:
            raise LimitError(
                f"writing a transaction to topics {self._topics()} took {wrote_s:.0f} s, and the longest one is "
                f"{self._timeout_s:g} s: share the work among more processes; or raise transport.transaction_timeout_s "
                "(at most the brokers' transaction.max.timeout.ms), metrics.liveness_timeout_s and, in kafka.options, "
                "max.poll.interval.ms (300,000 by default)"
            )
        self._timeout_s = min(MORE_TIME * wrote_s, self._max_timeout_s)
        log.warning("a transaction was open for %.1f s: the next one may take %.0f s", wrote_s, self._timeout_s)
        return True

    def _clear(self) -> None:
        self._begun_at = self._written_at = None
        super()._clear()

    def abort_open(self, identity: str) -> None:
        """Abort the transaction that the producer with this transactional id has left open, if there is one.

        Consumers wait for the end of an open transaction. The broker would abort it after
        `transport.transaction_timeout_s`.
        """
        former = TransactionalProducer(self._kafka, self._transport, self._topic, identity)
        former._start()
        former._init_transactions(CALL_S)
        former.close()

    def close(self) -> None:
        """Discard the producer and its queued records."""
        self._begun_at = None
        self._calls.close()
        super().close()
