"""AssignmentRestorer: reads and checks the committed offsets of an assignment, and restores its state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from skewless.engine.executor import RestoredPartition, State
from skewless.engine.group_session import GroupSession
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import (
    Checkpoint,
    Input,
    OffsetsLostError,
    check_changelog_id,
    check_first_start,
    check_log_ranges,
    check_skip_to,
    check_topic_id,
    checkpoints_of,
    created_again,
)
from skewless.errors import (
    BrokerError,
    ConfigurationError,
    TransactionAbortedError,
    UnavailableError,
    UnreachableError,
)
from skewless.kafka.admin.topics import require_equal_partitions
from skewless.kafka.call_with_timeout import in_background, while_serving
from skewless.kafka.consumer.broker_queries import BrokerQueries, LogRange
from skewless.kafka.consumer.topic_ids import ReadTopicIds
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

UNUSABLE_OUTPUT_S = 10.0
"""The connection of an output is replaced if an assignment could not be restored for this time."""


class AssignmentChangedError(Exception):
    """The group revoked or replaced the assignment while it was being restored, or the process is to stop."""


class AssignmentRestorer:
    """Restores assigned partitions. One object serves all assignments of a process. For the consumer thread."""

    def __init__(self, runtime: StageRuntime, session: GroupSession, read_topic_ids: ReadTopicIds) -> None:
        self._inputs = {source.topic: source for source in runtime.inputs}
        self._session = session
        self._output = runtime.output
        self._statistics = runtime.executor.statistics
        self._key_of = runtime.executor.step.key_of
        self._restore = runtime.restore
        self._prior_output = runtime.prior_output
        self._exactly_once = runtime.transport.guarantee == "exactly_once"
        self._changelog = runtime.changelog
        self._read_topic_ids = read_topic_ids
        self.topic_ids: Mapping[str, int] = {}
        """Ids of the input topics and of the changelog as of the last attempt that knew them."""
        self._reported_topics: set[str] = set()
        """Topics without an id that were logged."""
        self.ends: dict[TopicPartition, int] = {}
        """End of each partition of a bounded input, as of the last attempt. No record from there on is read."""
        self.partition_counts: dict[str, int] = {}
        """Number of partitions of each input topic as of the last attempt, including those of other members."""
        self._with_offset: set[TopicPartition] = set()
        """Partitions of which the group is known to have a committed offset."""
        self._waiting_since: float | None = None
        """Time of the first failed attempt with the current connection of the output."""

    @property
    def changelog_id(self) -> int | None:
        """Id of the changelog with the state of results; None if it is unknown, or there is none."""
        return self.topic_ids.get(self._changelog or "")

    @property
    def partition_count(self) -> int:
        """Number of partitions of all input topics."""
        return sum(self.partition_counts.values())

    def reads(self, topic: str) -> bool:
        """Return whether a topic is an input."""
        return topic in self._inputs

    def add_inputs(self, inputs: Iterable[Input]) -> list[str]:
        """Add input topics, and return the names of those that are new."""
        new = {source.topic: source for source in inputs if source.topic not in self._inputs}
        self._inputs |= new
        return list(new)

    def without_offset(self, partition_counts: Mapping[str, int]) -> set[TopicPartition]:
        """Return the partitions of which the group has no committed offset.

        A static member that joins again gets its previous assignment. So the group may not have noticed new partitions.
        """
        existing = {
            TopicPartition(topic, number) for topic in self._inputs for number in range(partition_counts.get(topic, 0))
        }
        unknown = existing - self._with_offset
        if unknown:
            self._with_offset |= self._output.committed_offsets(unknown).keys()
        return existing - self._with_offset

    def attempt(
        self, partitions: Collection[TopicPartition], serve: Callable[[], None]
    ) -> dict[TopicPartition, RestoredPartition] | None:
        """Make one attempt, and return the restored partitions; None if the attempt has to be repeated.

        `serve` polls the consumer while the state is read. It raises AssignmentChangedError if the
        assignment has changed.
        """
        try:
            self._session.confirm()
            # Before the request for ids, which needs a new client: while a database is down, `connect` raises at once.
            self._output.connect()
            topic_ids = in_background(self._read_ids)
            self._check_partition_counts(partitions)
            self._note_topic_ids(topic_ids.result())
            restored = self._read(partitions, serve)
        except UnavailableError as error:
            self._session.outage.warn(f"waiting to restore the assigned partitions: {error}")
            self._discard_unusable_output()
            return None
        self._waiting_since = None
        return restored

    def _discard_unusable_output(self) -> None:
        """Discard the output's connection after a long wait; the next attempt creates another one."""
        # While no broker answers, librdkafka may remove all brokers from a client. The client then does not connect
        # again for minutes, although brokers are back. No error would replace the producer, because it writes nothing.
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since >= UNUSABLE_OUTPUT_S:
            self._output.close()
            self._waiting_since = None
            # If this process was replaced, a new producer would fence that of its successor.
            self._session.require_confirmation()

    def _check_partition_counts(self, assigned: Collection[TopicPartition]) -> None:
        """Check that the partition counts have not changed, and that the assigned partitions exist."""
        # A static member that joins again gets its previous assignment without a rebalance, so it would not notice new
        # partitions, or that a topic was created again with fewer.
        partition_counts = BrokerQueries(self._session.consumer).partition_counts()
        for source in self._inputs.values():
            partition_count = partition_counts.get(source.topic)
            if partition_count is None:
                continue  # the next poll() raises the error
            self.partition_counts[source.topic] = partition_count
            if source.partitions is not None:
                place = f"topic {source.topic}"
                require_equal_partitions(partition_count, source.partitions, place, "at the start of this process")
        # Not at the first attempt: the broker that answers may not know new partitions yet.
        if self._waiting_since is not None and any(
            number >= partition_counts.get(topic, number + 1) for topic, number in assigned
        ):
            self._waiting_since = None
            self._session.leave()
            raise TransactionAbortedError("assigned partitions do not exist, joining again", rejoin=True)

    def _read_ids(self) -> Mapping[str, int]:
        """Return the ids of the input topics and of the changelog."""
        return self._read_topic_ids([*self._inputs, *filter(None, [self._changelog])])

    def _note_topic_ids(self, topic_ids: Mapping[str, int]) -> None:
        """Keep the ids of the topics, with which the checkpoints are compared."""
        self._compare(topic_ids)
        self.topic_ids = {**self.topic_ids, **topic_ids}
        if unknown := self.partition_counts.keys() - self.topic_ids.keys() - self._reported_topics:
            self._reported_topics |= unknown
            log.info(
                "the brokers report no id of topics %s, so it is not checked whether they were created again",
                ", ".join(sorted(unknown)),
            )

    def check_topics(self) -> None:
        """Raise BrokerError if an input topic was created again since the first attempt."""
        self._compare(self._read_topic_ids(self._inputs))

    def _compare(self, topic_ids: Mapping[str, int]) -> None:
        """Raise BrokerError if an input topic has another id than before."""
        # No checkpoint shows this: Kafka deletes the offsets of a topic with it.
        for topic in self._inputs.keys() & topic_ids.keys() & self.topic_ids.keys():
            if topic_ids[topic] != self.topic_ids[topic]:
                raise created_again(topic, f"while group {self._inputs[topic].group} was reading it")

    def _read(
        self, partitions: Collection[TopicPartition], serve: Callable[[], None]
    ) -> dict[TopicPartition, RestoredPartition]:
        """Read committed offsets, and restore state while the consumer is polled."""
        with self._statistics.restoring_partitions():
            committed = self._output.committed_offsets(partitions)
            ranges = BrokerQueries(self._session.consumer).ranges(partitions)
            begun = self._has_begun(partitions, committed)
            try:
                return while_serving(lambda: self._prepare(committed, ranges, begun=begun), serve)
            except OffsetsLostError as error:
                if not begun and self._has_begun(partitions, committed):
                    raise UnavailableError("another member of the group has committed its first offsets") from error
                raise
            except UnreachableError as error:
                raise UnavailableError(str(error)) from error

    def _has_begun(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> bool:
        """Return whether the group has a checkpoint of any partition of its topics."""
        # The others are queried only if necessary: the request waits for open transactions of other members.
        return self._has_checkpoint(committed) or self._has_checkpoint(
            self._output.committed_offsets(
                [partition for partition in self._all_partitions() if partition not in partitions]
            )
        )

    def _all_partitions(self) -> Iterator[TopicPartition]:
        for topic, count in self.partition_counts.items():
            yield from (TopicPartition(topic, number) for number in range(count))

    def _has_checkpoint(self, committed: Mapping[TopicPartition, CommittedOffset]) -> bool:
        return any(checkpoints_of(source, _values_of_topic(source, committed)) for source in self._inputs.values())

    def _prepare(
        self,
        committed: Mapping[TopicPartition, CommittedOffset],
        ranges: Mapping[TopicPartition, LogRange],
        *,
        begun: bool,
    ) -> dict[TopicPartition, RestoredPartition]:
        """Check and restore partitions. Raises BrokerError or ConfigurationError if results would be wrong.

        `begun` is whether the group has a checkpoint of any partition. Runs in a thread of its own.
        """
        try:
            starts, missing = self._starts(committed, ranges)
        except (BrokerError, ConfigurationError) as error:
            if self._prior_output is None or self._prior_output.remedy is None:
                raise
            # What the error says is the pipeline's remedy. It does not change the offsets in other places.
            raise type(error)(f"{error}. {self._prior_output.remedy}") from None
        keys = {partition: self._key_of(partition) for partition in starts}
        states = self._restore({keys[partition]: start.step_checkpoint for partition, start in starts.items()})
        if self._prior_output is not None:
            # At least once, a process that was killed leaves state without a checkpoint.
            restored = {partition for partition, key in keys.items() if states.get(key) and self._exactly_once}
            for source in self._inputs.values():
                lost, with_state = _numbers(source, missing), _numbers(source, restored)
                check_first_start(source, lost, with_state, self._prior_output, begun=begun)
        return {
            partition: _restored_partition(start, states.get(keys[partition], ()), committed.get(partition))
            for partition, start in starts.items()
        }

    def _starts(
        self, committed: Mapping[TopicPartition, CommittedOffset], ranges: Mapping[TopicPartition, LogRange]
    ) -> tuple[dict[TopicPartition, Checkpoint], set[TopicPartition]]:
        """Return where each partition starts, and the partitions that have no checkpoint."""
        starts: dict[TopicPartition, Checkpoint] = {}
        missing: set[TopicPartition] = set()
        for source in self._inputs.values():
            skip_to, logs = source.skip_to or {}, _values_of_topic(source, ranges)
            checkpoints = {
                number: checkpoint._replace(offset=max(checkpoint.offset, skip_to.get(number, 0)))
                for number, checkpoint in checkpoints_of(source, _values_of_topic(source, committed)).items()
            }
            check_topic_id(source, _values_of_topic(source, committed), self.topic_ids.get(source.topic))
            check_skip_to(source, skip_to, {number: log.end for number, log in logs.items()})
            if self._changelog is not None:
                of_topic = _values_of_topic(source, committed)
                check_changelog_id(source, of_topic, self._changelog, self.changelog_id)
            check_log_ranges(source, checkpoints, logs)
            for number, log in logs.items():
                partition = TopicPartition(source.topic, number)
                # Without a checkpoint it gets one with the first commit, whether it has records or not.
                first = Checkpoint(max(log.begin, skip_to.get(number, 0)), None)
                starts[partition] = checkpoints.get(number, first)
                if number not in checkpoints:
                    missing.add(partition)
                if source.bounded:
                    self.ends[partition] = log.end
        return starts, missing


def _restored_partition(start: Checkpoint, state: State, committed: CommittedOffset | None) -> RestoredPartition:
    leader_epoch = committed.leader_epoch if committed is not None and committed.offset == start.offset else None
    return RestoredPartition(start.offset, start.step_checkpoint, state, leader_epoch)


def _values_of_topic(source: Input, values: Mapping[TopicPartition, Any]) -> dict[int, Any]:
    return {partition.partition: value for partition, value in values.items() if partition.topic == source.topic}


def _numbers(source: Input, partitions: Collection[TopicPartition]) -> set[int]:
    return {partition.partition for partition in partitions if partition.topic == source.topic}
