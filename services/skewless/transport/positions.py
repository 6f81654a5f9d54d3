"""Where partitions begin and end, and how far consumer groups have come: what a bounded read has to know."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from skewless.errors import BrokerError, UnreachableError
from skewless.records import Headers
from skewless.shape import read_saved
from skewless.transport.clients import refused
from skewless.transport.failures import refusal
from skewless.transport.probe import QUIET, wait_until_reachable
from skewless.transport.reader import STALL_S, UNUSED_GROUP
from skewless.transport.settings import KafkaSettings

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings


class Committed(NamedTuple):
    """What a group has committed of a partition."""

    offset: int
    metadata: str | None
    """What the stage's step saved beside it."""


class Positions:
    """Asks the broker; raises UnreachableError when none answers within `kafka.timeout_s`."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        options = {name: str(value) for name, value in kafka.client_options().items()}
        try:
            wait_until_reachable(options, kafka.timeout_s)
            self._options = {**QUIET, **kafka.client_options()}
            self._client = AdminClient(self._options)
        except KafkaException as error:
            raise refused(error, options) from None

    def begin(self, topic: str) -> dict[int, int]:
        """First offset of every partition."""
        return self._offsets(topic, OffsetSpec.earliest())

    def end(self, topic: str) -> dict[int, int]:
        """Offset behind the last committed record of every partition."""
        return self._offsets(topic, OffsetSpec.latest())

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        """Offset of the first record with this Kafka timestamp or a later one; the end where there is none."""
        found, end = self._offsets(topic, OffsetSpec.for_timestamp(time_ms)), self.end(topic)
        return {partition: end[partition] if offset < 0 else offset for partition, offset in found.items()}

    def committed(self, group: str, topic: str) -> dict[int, Committed]:
        """Tell what the group has committed, of the partitions where it has."""
        # The admin client's list_consumer_group_offsets would be the call to make, but librdkafka 2.16 crashes the
        # process in it where a group has no coordinator yet. As read_uncommitted, or it would wait for transactions
        # that are under way: what was committed before them is meant.
        options = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
        wanted = [TopicPartition(topic, partition) for partition in self._known(topic)]
        if not wanted:
            return {}
        try:
            with contextlib.closing(Consumer({**self._options, **options})) as consumer:
                found = consumer.committed(wanted, timeout=self._kafka.timeout_s)
        except KafkaException as error:
            raise self._failure(f"reading the offsets of group {group}", error) from None
        return {
            at.partition: Committed(at.offset, read_saved(at.metadata).position)
            for at in found
            if at.offset >= 0 and at.error is None
        }

    def has_run(self, settings: PipelineSettings) -> bool:
        """Whether a pipeline has read anything of its source."""
        return bool(self.committed(f"{settings.name}-splitter", settings.source.topic))

    def holds_more(
        self, topic: str, offsets: Mapping[int, int], counts: Callable[[Headers], bool] = lambda _headers: True
    ) -> bool:
        """Return whether a partition has a committed record at or after its offset.

        Transaction markers are ignored. `counts` decides by the headers whether a record is considered.
        """
        ends = self.end(topic)
        asked = [TopicPartition(topic, at, offset) for at, offset in offsets.items() if offset < ends[at]]
        if not asked:
            return False
        options = {"group.id": UNUSED_GROUP, "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self._options, **options, "isolation.level": "read_committed"})
        with contextlib.closing(consumer):
            consumer.assign(asked)
            return self._any_record(consumer, len(asked), topic, counts)

    def _any_record(self, consumer: Consumer, partitions: int, topic: str, counts: Callable[[Headers], bool]) -> bool:
        ended: set[int | None] = set()
        deadline = time.monotonic() + STALL_S
        while len(ended) < partitions:
            for message in consumer.consume(100, 0.2):
                error = message.error()
                if error is None:
                    deadline = time.monotonic() + STALL_S
                    if counts(message.headers() or ()):
                        return True
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
                    ended.add(message.partition())
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise refusal(error, f"reading topic {topic}", "Read") or BrokerError(error.str())
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"no records of topic {topic} at {self._kafka.bootstrap_servers} came within {STALL_S:g} s, and "
                    "its end offset was not reached"
                )
        return False

    def written(self, topic: str) -> tuple[int, int] | None:
        """Kafka's timestamps (ms) of a topic's first record and of its last record or commit; None when it is empty."""
        first = [found.timestamp for found in self._listed(topic, OffsetSpec.for_timestamp(0)).values()]
        last = [found.timestamp for found in self._listed(topic, OffsetSpec.max_timestamp()).values()]
        known = [time for time in first if time >= 0]
        return (min(known), max(last)) if known else None

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        return {partition: int(found.offset) for partition, found in self._listed(topic, spec).items()}

    def _listed(self, topic: str, spec: OffsetSpec) -> dict[int, ListOffsetsResultInfo]:
        request = {TopicPartition(topic, partition): spec for partition in self._partitions(topic)}
        try:
            futures = self._client.list_offsets(
                request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._kafka.timeout_s
            )
            return {at.partition: future.result() for at, future in sorted(futures.items())}
        except KafkaException as error:
            raise self._failure(f"reading the offsets of topic {topic}", error) from None

    def _partitions(self, topic: str) -> list[int]:
        found = self._known(topic)
        if not found:
            raise BrokerError(f"topic {topic} does not exist at {self._kafka.bootstrap_servers}, or may not be seen")
        return found

    def _known(self, topic: str) -> list[int]:
        try:
            # Of all topics: asking for one by name may create it on brokers that make topics by themselves.
            found = self._client.list_topics(timeout=self._kafka.timeout_s).topics.get(topic)
        except KafkaException as error:
            raise self._failure(f"looking for topic {topic}", error) from None
        return [] if found is None or found.error else list(found.partitions)

    def _failure(self, doing: str, error: KafkaException) -> UnreachableError:
        return BrokerError(f"{doing} at {self._kafka.bootstrap_servers}: {error.args[0].str()}")
