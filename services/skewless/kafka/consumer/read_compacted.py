"""Reads a partition of a compacted topic from its beginning to its end, to restore state from a changelog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.errors import authorization_error, is_transient
from skewless.kafka.reachability import QUIET, READY_S
from skewless.kafka.settings import KafkaSettings

READ_RECORDS = 10_000
STALL_TIMEOUT_S = 60.0
"""Maximum wait for records that exist: an open transaction hides them until the broker aborts it."""

UNUSED_GROUP = "unused"
"""librdkafka requires a group and looks up its coordinator, although partitions are assigned manually."""
MANUAL_ASSIGNMENT = {
    "group.id": UNUSED_GROUP,
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}
"""Options of a consumer that reads committed records and does not join a group."""

_IGNORED = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's local codes are named so; it reconnects by itself
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the unused group: no permission on it is needed
}


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
    keep_value: Callable[[bytes], bool],
    progress: ReadProgress | None = None,
) -> list[tuple[bytes, bytes]]:
    """Return the latest value of every key, without the keys that have a tombstone.

    The values of keys for which `keep_value` returns False are empty. The result includes all records that were written
    before the call. `progress` follows the read.
    """
    progress = progress or ReadProgress()
    # Up to the end of the log, not up to the last stable offset: the markers of a commit reach its partitions after the
    # commit has returned, so committed records may not be stable yet.
    options = {**QUIET, **kafka.client_options()}
    begin, end = offset_range(options, topic, partition)
    latest: dict[bytes, bytes] = {}
    if begin == end:
        return []
    consumer = Consumer({**options, **MANUAL_ASSIGNMENT, "fetch.wait.max.ms": 20})
    try:
        # Not OFFSET_BEGINNING: its lookup takes half a second if librdkafka has no metadata of the leader yet.
        consumer.assign([TopicPartition(topic, partition, begin)])
        progress.update(topic, partition, end - begin)
        for position in _read_to(
            consumer, topic, partition, end, lambda key, value: _collect(key, value, keep_value, latest)
        ):
            progress.update(topic, partition, max(0, end - position))
    finally:
        progress.update(topic, partition, 0)
        consumer.close()
    return list(latest.items())


def offset_range(options: dict[str, object], topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset, and the offset after the last record."""
    requested = TopicPartition(topic, partition)
    admin = AdminClient(options)  # must outlive its futures
    deadline = time.monotonic() + STALL_TIMEOUT_S
    while True:
        try:
            admin.list_topics(timeout=READY_S)
            futures = [
                admin.list_offsets(
                    {requested: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30
                )[requested]
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            ]
            begin, end = (int(future.result(timeout=60).offset) for future in futures)
        except KafkaException as error:
            # Just after a broker has come back, the client's metadata may name the wrong leaders.
            reason = error.args[0]
            operation = f"reading the end of topic {topic} partition {partition}"
            if not is_transient(reason):
                raise authorization_error(reason, operation, "Read") or BrokerError(
                    f"{operation}: {reason.str()}"
                ) from error
            if time.monotonic() > deadline:
                raise UnreachableError(f"{operation}: {reason.str()}") from error
            time.sleep(0.2)
        else:
            return begin, end


def _read_to(
    consumer: Consumer, topic: str, partition: int, end: int, collect: Callable[[bytes, bytes | None], None]
) -> Iterator[int]:
    """Read up to an offset, and yield the position whenever it has advanced."""
    advanced_at = time.monotonic()
    position = 0
    while position < end:
        for message in consumer.consume(READ_RECORDS, 0.05):
            error = message.error()
            if error is not None:
                if error.code() in _IGNORED:
                    continue
                operation = f"reading topic {topic} partition {partition}"
                raise authorization_error(error, operation, "Read") or BrokerError(f"{operation}: {error.str()}")
            collect(message.key(), message.value())
        offset = consumer.position([TopicPartition(topic, partition)])[0].offset
        if offset > position:
            position, advanced_at = offset, time.monotonic()
            yield position
        elif time.monotonic() - advanced_at > STALL_TIMEOUT_S:
            raise UnreachableError(
                f"no records from {topic} partition {partition} at or after offset {position}, its end offset is {end}"
            )


def _collect(key: bytes, value: bytes | None, keep_value: Callable[[bytes], bool], latest: dict[bytes, bytes]) -> None:
    if value is None:
        latest.pop(key, None)
    else:
        latest[key] = value if keep_value(key) else b""
