"""Reads the first and last offsets of topics and the committed offsets of groups, for bounded reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from math import ceil
from types import MappingProxyType

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from skewless.errors import BrokerError
from skewless.kafka.admin.client import Admin
from skewless.kafka.clients import connect_admin, create_client
from skewless.kafka.consumer.options import NOT_A_MEMBER
from skewless.kafka.errors import is_transient
from skewless.kafka.reachability import QUIET
from skewless.kafka.repeat import repeat_while_transient, request_error
from skewless.kafka.settings import KafkaSettings
from skewless.wire.topic_partition import CommittedOffset
from skewless.wire.topic_partition import TopicPartition as SourcePartition

OffsetRanges = dict[int, tuple[int, int]]
"""First offset and end offset (exclusive) by partition."""


def offset_count(ranges: OffsetRanges) -> int:
    """Return the number of offsets of all ranges. Transaction markers and compacted records are among them."""
    return sum(end - begin for begin, end in ranges.values())


def uncommitted_records(offsets: int) -> str:
    """Return the text for a number of offsets of `OffsetReader.uncommitted`."""
    return f"{offsets:,} record{'s' if offsets > 1 else ''} in or after open transactions of producers"


def newest_offsets(ranges: OffsetRanges, offsets: int) -> OffsetRanges:
    """Return the last offsets of each range, at most this number of each."""
    return {partition: (max(begin, end - offsets), end) for partition, (begin, end) in ranges.items()}


def newest_fraction(ranges: OffsetRanges, offsets: int) -> OffsetRanges:
    """Return the last offsets of each range: the same fraction of each, about this number in all."""
    fraction = min(1.0, offsets / max(1, offset_count(ranges)))
    return {partition: (end - ceil((end - begin) * fraction), end) for partition, (begin, end) in ranges.items()}


_HAS_MEMBERS = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
}
"""Errors of a commit without a membership, if the group has members."""
DESCRIBE_S = 2.0
"""Timeout of one request for the partitions of a topic."""
_INVISIBLE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
"""Errors of a topic that does not exist, or that the user may not see, or whose name is invalid."""


def offset_consumer(kafka: KafkaSettings, group: str, isolation_level: str = "read_committed") -> Consumer:
    """Return a consumer that reads and commits offsets of a group in transactions, and never becomes its member."""
    own = {**NOT_A_MEMBER, "group.id": group, "isolation.level": isolation_level}
    return create_client(Consumer, {**QUIET, **kafka.client_options(), **own})


class OffsetReader:
    """Reads offsets from the broker. Raises UnreachableError if no broker answers within `kafka.connect_timeout_s`.

    With `is_quiet`, no warning is logged while it waits for one.
    """

    def __init__(self, kafka: KafkaSettings, *, is_quiet: bool = False) -> None:
        self.kafka = kafka
        self._client = connect_admin(kafka, is_quiet=is_quiet)

    def ranges(self, topic: str) -> OffsetRanges:
        """Return the first offset of every partition, and the offset after its last committed record."""
        begin, end = self.begin(topic), self.end(topic)
        return {partition: (first, end[partition]) for partition, first in begin.items()}

    def ranges_since(self, topic: str, time_ms: int) -> OffsetRanges:
        """Return the offsets from a Kafka timestamp on, without the partitions that have none; see `at_time`."""
        starts, end = self.at_time(topic, time_ms), self.end(topic)
        return {partition: (start, end[partition]) for partition, start in starts.items() if start < end[partition]}

    def uncommitted(self, topic: str) -> OffsetRanges:
        """Return the offsets from the first open transaction of a partition to its end, of partitions with any."""
        # The committed ends are read first, because both grow.
        committed = self.end(topic)
        results = self._list_offsets(topic, OffsetSpec.latest(), committed, IsolationLevel.READ_UNCOMMITTED)
        ends = {partition: int(result.offset) for partition, result in results.items()}
        return {partition: (end, ends[partition]) for partition, end in committed.items() if end < ends[partition]}

    def log_range(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset after its last record, whether committed or not."""
        begin, end = (
            self._list_offsets(topic, spec, [partition], IsolationLevel.READ_UNCOMMITTED)[partition].offset
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return int(begin), int(end)

    def begin(self, topic: str) -> dict[int, int]:
        """Return the first offset of every partition."""
        return self._offsets(topic, OffsetSpec.earliest())

    def end(self, topic: str) -> dict[int, int]:
        """Return the offset after the last committed record of every partition."""
        return self._offsets(topic, OffsetSpec.latest())

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        """Return the offset of the first record with this Kafka timestamp or a later one; the end if there is none."""
        # To the broker, a negative time is the name of a position, such as -1 for the end, or an error.
        offsets, end = self._offsets(topic, OffsetSpec.for_timestamp(max(0, time_ms))), self.end(topic)
        return {partition: end[partition] if offset < 0 else offset for partition, offset in offsets.items()}

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        """Return the group's committed offsets, without the partitions that have none."""
        requested = [TopicPartition(topic, partition) for partition in self._existing_partitions(topic)]
        return {
            answer.partition: CommittedOffset(answer.offset, answer.metadata or "", answer.leader_epoch)
            for answer in (self._committed(group, requested) if requested else ())
            if answer.offset >= 0 and answer.error is None
        }

    def check_group_visible(self, group: str) -> None:
        """Raise UnreachableError for a group that may not be described: otherwise it looks as if it did not exist."""
        self._committed(group, [TopicPartition(group, 0)])  # the answer does not depend on the topic

    def _committed(self, group: str, requested: list[TopicPartition]) -> list[TopicPartition]:
        # Not by the admin client's list_consumer_group_offsets: librdkafka 2.16 crashes the process if the group has
        # no coordinator yet. As read_uncommitted: a read_committed request would wait for open transactions, but the
        # offsets before them are needed.
        with contextlib.closing(offset_consumer(self.kafka, group, "read_uncommitted")) as consumer:
            return repeat_while_transient(
                self.kafka,
                lambda: consumer.committed(requested, timeout=self.kafka.connect_timeout_s),
                f"reading the offsets of group {group}",
                "Describe",
                # To a user that may not describe the group, librdkafka 2.16 answers that its request timed out.
                hint="; grant Describe on the group, if this user does not have it",
            )

    def at_start(
        self, topic: str, start: str | int, skip_to: Mapping[int, int] = MappingProxyType({})
    ) -> dict[int, int]:
        """Return the offset of every partition for `earliest`, `latest`, or a Kafka timestamp in ms.

        `skip_to` has lower bounds of some partitions.
        """
        if isinstance(start, int):
            offsets = self.at_time(topic, start)
        else:
            offsets = self.end(topic) if start == "latest" else self.begin(topic)
        return {partition: max(offset, skip_to.get(partition, 0)) for partition, offset in offsets.items()}

    def commit_first(self, group: str, offsets: Mapping[SourcePartition, tuple[int, str]]) -> bool:
        """Commit offsets with their metadata for a group without members; return whether the broker confirmed it.

        It does not if the group has members. All partitions are committed by one request.
        """
        committed = [TopicPartition(*partition, offset, metadata) for partition, (offset, metadata) in offsets.items()]
        with contextlib.closing(offset_consumer(self.kafka, group)) as consumer:
            try:
                commit_offsets(consumer, committed)
            except KafkaException as error:
                # Not repeated: meanwhile, another process may have committed and read on.
                if error.args[0].code() in _HAS_MEMBERS or is_transient(error.args[0]):
                    return False
                operation = f"committing the first offsets of group {group}"
                raise request_error(self.kafka, error.args[0], operation, "Read") from None
        return True

    def written(self, topic: str) -> tuple[int, int] | None:
        """Return Kafka's timestamps (ms) of a topic's first record and of its last record or commit; None if empty."""
        first = [result.timestamp for result in self._list_offsets(topic, OffsetSpec.for_timestamp(0)).values()]
        last = [result.timestamp for result in self._list_offsets(topic, OffsetSpec.max_timestamp()).values()]
        timestamps = [timestamp for timestamp in first if timestamp >= 0]
        return (min(timestamps), max(last)) if timestamps else None

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        return {partition: int(result.offset) for partition, result in self._list_offsets(topic, spec).items()}

    def _list_offsets(
        self,
        topic: str,
        spec: OffsetSpec,
        partitions: Iterable[int] = (),
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, ListOffsetsResultInfo]:
        request = {TopicPartition(topic, partition): spec for partition in partitions or self._partitions(topic)}

        def list_offsets() -> dict[int, ListOffsetsResultInfo]:
            futures = self._client.list_offsets(
                request, isolation_level=isolation_level, request_timeout=self.kafka.connect_timeout_s
            )
            return {requested.partition: future.result() for requested, future in sorted(futures.items())}

        return repeat_while_transient(self.kafka, list_offsets, f"reading the offsets of topic {topic}", "Describe")

    def _partitions(self, topic: str) -> list[int]:
        partitions = self._existing_partitions(topic)
        if not partitions:
            Admin(self.kafka).check_visible([topic])
            raise BrokerError(f"topic {topic} does not exist at {self.kafka.bootstrap_servers}")
        return partitions

    def _existing_partitions(self, topic: str) -> list[int]:
        # A list of all topics is large on a cluster with thousands. Unlike a metadata request by name, this request
        # never creates a topic.
        def describe() -> list[int]:
            answers = self._client.describe_topics(TopicCollection([topic]), request_timeout=DESCRIBE_S)
            try:
                return sorted(partition.id for partition in answers[topic].result().partitions)
            except KafkaException as error:
                if error.args[0].code() in _INVISIBLE:
                    return []
                # The request waits for the controller that librdkafka knows, also if that broker has failed since.
                self._client.list_topics(timeout=self.kafka.connect_timeout_s)
                raise

        return repeat_while_transient(self.kafka, describe, f"looking for topic {topic}", "Describe")


def commit_offsets(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit offsets and wait for the answer; raises KafkaException, also if only some of them are refused."""
    for result in consumer.commit(offsets=offsets, asynchronous=False):
        if result.error is not None:
            raise KafkaException(result.error)
