"""At least once: outputs are written before the offsets they come from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from skewless.errors import UnreachableError
from skewless.transport.failures import BrokerAwayError, RewindError, stop_or_rewind
from skewless.transport.outbox import CALL_S, Outbox


class FlushingOutbox(Outbox):
    """At least once: outputs are written before the offsets; a crash in between repeats them."""

    def _begin(self) -> None:
        """There is no transaction to begin."""

    def open(self, timeout_s: float) -> None:
        """Create the producer and wait for the broker."""
        try:
            self._connect(timeout_s)
        except BrokerAwayError as error:
            address = self._kafka.bootstrap_servers
            raise UnreachableError(f"no answer from Kafka at {address} within {timeout_s:g} s") from error

    def _connect(self, timeout_s: float = CALL_S) -> None:
        if self._producer is None:
            self._start()
        try:
            self.producer.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise BrokerAwayError(f"starting a producer: {error.args[0].str()}") from error
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
        self._clear()
        self.outcomes["committed"] += 1

    def abort(self, *, replace: bool) -> None:
        """Drop what is still queued. What was written stays, and will be written again."""
        # There is no producer where an earlier abort dropped it and no broker has answered since.
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.purge(in_queue=True, in_flight=True, blocking=True)
                self._producer.poll(0)
        if replace:
            self.close()
        self._failed = None
        self._clear()
        self.outcomes["aborted"] += 1
