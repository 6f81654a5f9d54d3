"""TopicReader: reads the committed records of a topic. Does not join a consumer group and commits no offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.clients import create_client
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.options import NOT_A_MEMBER
from skewless.kafka.errors import authorization_error
from skewless.kafka.reachability import QUIET
from skewless.kafka.settings import KafkaSettings
from skewless.wire.record import Headers

POLL_S = 0.01
STALL_TIMEOUT_S = 60.0
"""Maximum wait for records that exist: an open transaction hides them until the broker aborts it."""
Records = list[Message]
PartitionRecords = tuple[int, Records]
"""A partition and records of it, in the order of their offsets."""
_OPTIONS = {
    "group.id": "unused",  # librdkafka requires a group and looks up its coordinator, although it assigns no partitions
    **NOT_A_MEMBER,
    "isolation.level": "read_committed",
    "check.crcs": True,
    "fetch.wait.max.ms": 20,
    "fetch.queue.backoff.ms": 20,
}
_IGNORED = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's local codes are named so; it reconnects by itself
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the unused group: no permission on it is needed
}


class ReadAhead(NamedTuple):
    """Limits of what is read before it is needed. They bound the memory for any number of partitions.

    In memory, small records take about ten times their size.
    """

    batch_records: int = 10_000
    """Largest number of records of a batch."""
    fetch_bytes: int = 2**20
    """Largest response of a broker for one partition, unless a record is larger."""
    queue_bytes: int = 2**23
    """Size of the records in librdkafka's queue above which it fetches no more."""
    queued_records: int = 10_000
    """Number of records of a partition in the queue from which on librdkafka fetches no more of this partition."""

    def client_options(self) -> dict[str, int]:
        """Return librdkafka's options."""
        return {
            "fetch.message.max.bytes": self.fetch_bytes,
            "queued.max.messages.kbytes": self.queue_bytes // 1024,
            "queued.min.messages": self.queued_records,
        }


DEFAULT_READ_AHEAD = ReadAhead()
FIRST_RECORDS = ReadAhead(fetch_bytes=2**16, queued_records=1)
"""For reads of a few records of each partition."""
FIRST_BYTES = 2**20
"""Size of the first records of a partition above which no more are read."""
WHOLE_PARTITION = ReadAhead(queue_bytes=2**26, queued_records=100_000)
"""For reads of one partition at a time, as fast as possible."""


class TopicReader:
    """Reads committed records from given offsets by partition on; `OffsetReader` has offsets to start from.

    A context manager, for one thread. Its methods raise BrokerError if the broker refuses the reads.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        starts: Mapping[int, int],
        read_ahead: ReadAhead = DEFAULT_READ_AHEAD,
        *,
        skip_deleted: bool = True,
    ) -> None:
        """`skip_deleted`: retention may delete records before they are read. Otherwise this is an error."""
        self._topic = topic
        self._servers = kafka.bootstrap_servers
        self._batch_records = read_ahead.batch_records
        self._starts = dict(starts)
        self._unread: dict[int, int] = {}
        """Ends of the partitions that `read_to` has still to read."""
        self._consumer: Consumer = create_client(
            Consumer,
            {
                **QUIET,
                **read_ahead.client_options(),
                **kafka.client_options(),
                **_OPTIONS,
                "auto.offset.reset": "earliest" if skip_deleted else "error",
            },
        )
        self._consumer.assign([TopicPartition(topic, partition, start) for partition, start in starts.items()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    def poll(self, wait_s: float) -> list[PartitionRecords]:
        """Return the next records; waits for them at most `wait_s`."""
        batches: dict[int, list[Message]] = {}
        for message in self._consumer.consume(self._batch_records, wait_s):
            error = message.error()
            if error is None:
                batches.setdefault(message.partition(), []).append(message)
            elif error.code() not in _IGNORED:
                operation = f"reading topic {self._topic}"
                raise authorization_error(error, operation, "Read") or BrokerError(f"{operation}: {error.str()}")
        return list(batches.items())

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Return whether everything before these offsets by partition was read. Other partitions are ignored."""
        return all(position >= ends.get(partition, 0) for partition, position in self._positions(self._starts).items())

    def read_to(self, ends: Mapping[int, int]) -> Iterator[PartitionRecords]:
        """Yield the records before these offsets in batches of one partition.

        Batches of a partition are in the order of their offsets. Their sizes, and their order among those of other
        partitions, depend on the broker's responses. Raises UnreachableError if the read does not advance for a minute
        although an end is not reached.
        """
        self._unread, advanced_at = dict(ends), time.monotonic()
        positions: dict[int, int] = {}
        while self._unread:
            for partition, messages in self.poll(POLL_S):
                if records := [message for message in messages if message.offset() < self._unread.get(partition, 0)]:
                    yield partition, records
            # A position passes transaction markers and aborted records, for which there are no messages.
            previous, positions = positions, self._positions(self._unread)
            for partition, position in positions.items():
                if position >= self._unread[partition]:
                    self.leave(partition)
            if positions != previous:
                advanced_at = time.monotonic()
            elif time.monotonic() > advanced_at + STALL_TIMEOUT_S:
                partition, end = next(iter(self._unread.items()))
                raise UnreachableError(
                    f"no records from topic {self._topic} at {self._servers} within {STALL_TIMEOUT_S:g} s: partition "
                    f"{partition} was read to offset {positions[partition]}, and its end offset is {end}"
                )

    def leave(self, partition: int) -> None:
        """Read no more of a partition."""
        del self._unread[partition]
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def _positions(self, partitions: Iterable[int]) -> dict[int, int]:
        asked = [TopicPartition(self._topic, partition) for partition in partitions]
        # A partition of which nothing was read has no position.
        return {
            position.partition: max(position.offset, self._starts[position.partition])
            for position in self._consumer.position(asked)
        }


def read_ranges(
    kafka: KafkaSettings,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
    read_ahead: ReadAhead = DEFAULT_READ_AHEAD,
    *,
    skip_deleted: bool = True,
) -> Iterator[PartitionRecords]:
    """Yield the committed records of each range (first offset, end offset exclusive), as `TopicReader.read_to`."""
    if unread := {partition: (begin, end) for partition, (begin, end) in ranges.items() if begin < end}:
        starts = {partition: begin for partition, (begin, _) in unread.items()}
        with TopicReader(kafka, topic, starts, read_ahead, skip_deleted=skip_deleted) as reader:
            yield from reader.read_to({partition: end for partition, (_, end) in unread.items()})


def first_records(kafka: KafkaSettings, topic: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, Message]:
    """Return the first committed record of each range, without the ranges that contain none."""
    return {partition: messages[0] for partition, messages in first_batches(kafka, topic, ranges, 1)}


def first_batches(
    kafka: KafkaSettings, topic: str, ranges: Mapping[int, tuple[int, int]], records: int
) -> Iterator[PartitionRecords]:
    """Yield the first committed records of each range, up to so many, as `TopicReader.read_to`.

    They are fewer if they are larger than FIRST_BYTES together.
    """
    ends = {partition: end for partition, (begin, end) in ranges.items() if begin < end}
    if not ends:
        return
    starts = {partition: ranges[partition][0] for partition in ends}
    missing, sizes = dict.fromkeys(ends, records), dict.fromkeys(ends, 0)
    with TopicReader(kafka, topic, starts, FIRST_RECORDS) as reader:
        for partition, messages in reader.read_to(ends):
            first = messages[: missing[partition]]
            missing[partition] -= len(first)
            sizes[partition] += sum(len(message.value() or b"") for message in first)
            if not missing[partition] or sizes[partition] > FIRST_BYTES:
                reader.leave(partition)
            yield partition, first


def has_records_after(
    offset_reader: OffsetReader,
    topic: str,
    offsets: Mapping[int, int],
    is_relevant: Callable[[Headers], bool] = lambda _headers: True,
) -> bool:
    """Return whether any partition has a committed record at or after its offset.

    `is_relevant` decides from the headers whether a record is considered.
    """
    end = offset_reader.end(topic)
    ranges = {partition: (offset, end[partition]) for partition, offset in offsets.items()}
    return any(
        is_relevant(message.headers() or ())
        for _, messages in read_ranges(offset_reader.kafka, topic, ranges)
        for message in messages
    )


class ReadProgress:
    """Offsets that reads in several threads have still to read."""

    def __init__(self) -> None:
        self._remaining: dict[tuple[str, int], int] = {}

    @property
    def remaining(self) -> int:
        """Number of offsets of all reads."""
        return sum(self._remaining.copy().values())

    def update(self, topic: str, partition: int, remaining: int) -> None:
        """Note what remains of one read; 0 at its end."""
        if remaining:
            self._remaining[topic, partition] = remaining
        else:
            self._remaining.pop((topic, partition), None)


def read_compacted(
    kafka: KafkaSettings,
    topic: str,
    partition: int,
    keep_value: Callable[[bytes], bool] = lambda _key: True,
    progress: ReadProgress | None = None,
) -> list[tuple[bytes, bytes]]:
    """Return the latest value of every key of a compacted partition, without the keys that have a tombstone.

    The values of keys for which `keep_value` returns False are empty. The result includes all records that were written
    before the call. `progress` follows the read.
    """
    progress = progress or ReadProgress()
    # Up to the end of the log, not up to the last stable offset: the markers of a commit reach its partitions after the
    # commit has returned, so committed records may not be stable yet.
    begin, end = OffsetReader(kafka).log_range(topic, partition)
    latest: dict[bytes, bytes] = {}
    try:
        progress.update(topic, partition, end - begin)
        for _, messages in read_ranges(kafka, topic, {partition: (begin, end)}, WHOLE_PARTITION):
            for message in messages:
                key, value = message.key() or b"", message.value()
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = value if keep_value(key) else b""
            progress.update(topic, partition, end - 1 - messages[-1].offset())
    finally:
        progress.update(topic, partition, 0)
    return list(latest.items())
