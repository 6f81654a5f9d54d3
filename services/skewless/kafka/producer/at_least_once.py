"""AtLeastOnceProducer: writes outputs before it commits the offsets of their input."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import KafkaException

from skewless.errors import TransactionAbortedError, UnavailableError
from skewless.kafka.consumer.offsets import commit_offsets
from skewless.kafka.errors import authorization_error, classify_transaction_error
from skewless.kafka.producer.base import CALL_S, OutputProducer
from skewless.wire.topic_partition import CommittedOffset, TopicPartition


class AtLeastOnceProducer(OutputProducer):
    """Writes outputs, then commits the offsets. A crash in between repeats the outputs."""

    def _begin(self) -> None:
        """Do nothing: this producer has no transactions."""

    def _connect(self) -> None:
        if self._producer is None:
            self._start()
        try:
            self._await_broker()
        except KafkaException as error:
            raise UnavailableError(f"starting a producer: {error.args[0].str()}") from error
        self.ready = True

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Write everything, then commit the offsets."""
        self._flush()
        if self._failed is not None:
            raise self._classify(KafkaException(self._failed), f"writing to topic {self._failed_topic}")
        if offsets:
            try:
                commit_offsets(self.consumer, self._to_kafka(offsets))
            except KafkaException as error:
                refused = authorization_error(error.args[0], "committing", "Read")
                raise refused or classify_transaction_error(error, "committing") from error
        self._clear()
        self.outcomes["committed"] += 1

    def _flush(self) -> None:
        """Write everything. A slow broker has time, because a repetition would write the same records once more."""
        written_at, unwritten = time.monotonic(), len(self.producer)
        while remaining := self.producer.flush(CALL_S):
            now = time.monotonic()
            if remaining < unwritten:
                unwritten, written_at = remaining, now
            if now > written_at + self._transport.transaction_timeout_s:
                raise TransactionAbortedError("writing: no answer in time", replace_output=True)

    def abort(self, *, replace: bool) -> None:
        """Discard queued records. Records that were written remain and will be written again."""
        # An earlier abort may have discarded the producer, and no broker has answered since.
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.purge(in_queue=True, in_flight=True, blocking=True)
                self._producer.poll(0)
        if replace:
            self.close()
        self._failed = None
        self._clear()
        self.outcomes["aborted"] += 1

    def abort_open(self, identity: str) -> None:
        """Do nothing: without transactions, no consumer waits for a process that is gone."""
