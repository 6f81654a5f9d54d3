"""At least once: outputs are written before the offsets they come from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from skewless.errors import UnreachableError
from skewless.transport.failures import RewindError, stop_or_rewind
from skewless.transport.outbox import Outbox


class FlushingOutbox(Outbox):
    """At least once: outputs are written before the offsets; a crash in between repeats them."""

    def _begin(self) -> None:
        """There is no transaction to begin."""

    def open(self, timeout_s: float) -> None:
        """Start a producer and wait for the broker."""
        self._start()
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
