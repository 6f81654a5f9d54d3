"""The consumer thread, and the loop that it runs: poll, back-pressure, deliver, commit.

A record's way through the engine:

    poll            ConsumerThread._poll            consumer thread
    deliver         ConsumerThread._deliver         consumer thread -> event loop
    step            StepExecutor.process            event loop
    produce         StepExecutor.process            event loop
    commit          ConsumerThread._commit          consumer thread, with StepExecutor.begin_commit and end_commit

`assignment` says which thread may do what. Not here: `group_session` has the consumer, its membership and its errors;
`rebalance` revokes, restores and resets partitions.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.engine.assignment import CommitPoint
from skewless.engine.back_pressure import BackPressure
from skewless.engine.commit_policy import IDLE_POLL_S, POLL_S, CommitPolicy
from skewless.engine.executor import FetchPositions, LogRanges
from skewless.engine.group_session import GroupSession
from skewless.engine.loop_calls import LoopCalls
from skewless.engine.message_batch import MessageBatch
from skewless.engine.open_transactions import OpenTransactions
from skewless.engine.rebalance import Rebalance
from skewless.engine.restore import AssignmentRestorer
from skewless.engine.stage_runtime import FindInputs, StageRuntime
from skewless.engine.start_checks import Input
from skewless.engine.statistics import observe_duration
from skewless.errors import (
    BrokerError,
    FencedError,
    SkewlessError,
    TransactionAbortedError,
    UnavailableError,
    UnreachableError,
)
from skewless.kafka.consumer.broker_queries import BrokerQueries
from skewless.kafka.consumer.membership import GroupMembership
from skewless.kafka.consumer.options import CO_PARTITIONED, consumer_options
from skewless.kafka.consumer.topic_ids import ReadTopicIds
from skewless.kafka.consumer.unreadable_records import RetriedRecords, is_unreadable
from skewless.kafka.settings import METADATA_INTERVAL_MS
from skewless.wire.offset_metadata import encode_offset_metadata
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

PAUSED_RANGES_S = 10.0
"""Interval at which the log ranges of paused partitions are asked for."""
CHECK_TOPICS_S = 60.0
"""Interval at which a running process checks whether an input topic was created again."""


class ConsumerThread(threading.Thread):
    """Delivers the batches of the input topics to the executor and commits what the executor has processed."""

    def __init__(  # noqa: PLR0913 - only the app passes them
        self,
        runtime: StageRuntime,
        *,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[MessageBatch], None],
        stopped: Callable[[BaseException | None], None],
        membership: GroupMembership,
        read_topic_ids: ReadTopicIds,
    ) -> None:
        super().__init__(name="consumer", daemon=True)
        # A thread does not inherit context variables, such as that of the log.
        self._creator_context = contextvars.copy_context()
        self._on_loop = LoopCalls(loop)
        self._executor, self._output = runtime.executor, runtime.output
        self._assignment = self._executor.assignment
        inputs, transport = runtime.inputs, runtime.transport
        self._state_schema = inputs[0].state_schema
        self._transport = transport
        self._deliver_on_loop = deliver
        self._notify_stopped = stopped
        self._stop_event = threading.Event()
        self._leaves = False
        """Whether to leave the group at the end, so that the partitions are reassigned at once."""
        self._at_rest = False
        """Whether nothing is in flight and the last poll returned no records."""
        # With one input, the number of a partition identifies it. It costs less per record than topic and number.
        self._partition_of: Callable[[Message], object] = Message.partition if len(inputs) == 1 else _source
        self._unreadable: dict[TopicPartition, SkewlessError] = {}
        """Errors by partition of records that cannot be read, after one retry."""
        self._skippable = _skippable(inputs)
        self._retried = RetriedRecords(inputs[0].group, self._skippable)
        self._find_inputs = runtime.find_inputs
        options = consumer_options(
            runtime.kafka,
            transport,
            runtime.group,
            runtime.group_instance_id,
            end_of_partition=runtime.end_of_partition,
        ) | (CO_PARTITIONED if runtime.co_partitioned else {})
        # At the interval at which the consumer looks for new partitions.
        look_interval_ms = float(str(options[METADATA_INTERVAL_MS]))
        self._look_interval_s = look_interval_ms / 1000 if look_interval_ms > 0 else math.inf
        self._last_look = time.monotonic()
        self._unread: Collection[TopicPartition] = ()
        """Partitions of which no process had committed an offset at the last look."""
        self._topics_checked_at = time.monotonic()
        self._paused_ranges: LogRanges = {}
        """Log ranges of paused partitions as of the last request."""
        self._paused_due_at = -math.inf
        self._back_pressure = BackPressure(transport, self._assignment, runtime.pause_after_s)
        self._policy = CommitPolicy(transport.commit_interval_s, bursts=all(source.kind != "user" for source in inputs))
        self._session = GroupSession(runtime, options, membership, self._stop_event)
        self._restorer = AssignmentRestorer(runtime, self._session, read_topic_ids)
        self._rebalance = Rebalance(
            runtime,
            session=self._session,
            open_transactions=OpenTransactions(runtime.output, membership),
            restorer=self._restorer,
            on_loop=self._on_loop,
            commit=partial(self._commit, within_poll=True),
            stopping=self._stop_event.is_set,
        )

    def stop(self, *, leave: bool = False) -> None:
        """Request a clean end: processed batches are committed, and no more are processed.

        With `leave`, this member leaves the group, so that its partitions are reassigned to other members at once.
        """
        self._leaves = leave
        self._stop_event.set()
        self._executor.room_available.set()

    def run(self) -> None:
        """Run until stopped or failed, then call `stopped` on the loop with the error or None."""
        self._creator_context.run(self._run)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._open()
            while not self._stop_event.is_set():
                self._run_once()
        except BaseException as error:  # noqa: BLE001 - reported to the loop, which ends the process with it
            failure = error
        try:
            self._close(clean=failure is None)
        except Exception as error:  # noqa: BLE001 - as above
            failure = failure or error
        with suppress(RuntimeError):  # the process has not waited for this thread: its loop is closed
            self._on_loop.post(self._notify_stopped, failure)

    def _open(self) -> None:
        # The output connects when the group has assigned partitions to this process. Before, a process with the same
        # number would go on: each of the two would fence the producer of the other one again and again.
        self._executor.send = self._output.send
        self._rebalance.join()
        self._policy.begin(time.monotonic())

    def _run_once(self) -> None:
        """Poll once and commit if a commit is due; or make an attempt to restore an assignment."""
        assignment = self._assignment
        self._executor.statistics.last_poll_at = time.monotonic()
        try:
            if assignment.awaits_restore:
                self._rebalance.restore()
                return
            if self._unreadable:
                self._finish_before_unreadable()
            elif self._has_room():
                self._deliver(self._poll())
            self._executor.check_failure()
            self._session.check_joined(assigned=assignment.awaits_restore or assignment.established)
            if assignment.partitions and self._commit_is_due():
                self._commit()
            if (
                self._find_inputs is not None
                and assignment.established
                and time.monotonic() - self._last_look > self._look_interval_s
            ):
                self._look_for_partitions(self._find_inputs)
            if assignment.established and time.monotonic() - self._topics_checked_at > CHECK_TOPICS_S:
                self._check_topics()
        except (TransactionAbortedError, FencedError) as failure:
            self._recover(failure)

    def _recover(self, failure: TransactionAbortedError | FencedError) -> None:
        """Reset the partitions or join the group again. Raises UnreachableError if nothing follows, as at a stop."""
        owned = self._assignment.partitions
        self._unreadable.clear()  # what precedes these records is read again, and then they are
        if isinstance(failure, FencedError):
            self._rebalance.join_again_unless_replaced(failure)
        else:
            self._rebalance.reset(failure)
        if owned and self._stop_event.is_set():
            raise _last_commit_failed(failure) from failure

    def _check_topics(self) -> None:
        """End if an input topic was created again: the records before the present offsets would be skipped."""
        with suppress(UnavailableError):
            try:
                self._restorer.check_topics()
            except BrokerError:
                self._commit_former_offsets()
                raise
            self._session.outage.over()  # a stage without records commits nothing, which would end it
        self._topics_checked_at = time.monotonic()

    def _commit_former_offsets(self) -> None:
        """Commit all offsets with the former ids of their topics, so that a restart is refused, too."""
        # Kafka has deleted those of the topic with it. Without them, the next start would be one from the beginning.
        if owned := self._assignment.partitions:
            self._on_loop.wait(self._assignment.forget_commits)
            self._commit(revoked=owned, within_poll=True)

    def _look_for_partitions(self, find_inputs: FindInputs) -> None:
        """Add input topics that exist now and did not before, and partitions that no process reads."""
        self._last_look = time.monotonic()
        with suppress(UnavailableError):
            partition_counts = BrokerQueries(self._session.consumer).partition_counts()
            found = find_inputs(partition_counts)
            if new := self._restorer.add_inputs(found):
                log.info("reading further topics: %s", ", ".join(new))
                self._skippable |= _skippable(found)
                self._partition_of = _source
                self._session.add_topics(new)
                return
            unread = self._restorer.without_offset(partition_counts) - self._assignment.partitions
            # A member that has just got a partition commits its offset before the next look.
            if unread and unread == self._unread:
                self._commit()
                self._session.leave()
                raise TransactionAbortedError(f"no process reads {len(unread)} partitions, joining again", rejoin=True)
            self._unread = unread

    # Back-pressure

    def _has_room(self) -> bool:
        """Pause partitions that were full for too long, resume others, and return whether the consumer may poll."""
        self._at_rest = False
        self._executor.room_available.clear()
        decision = self._back_pressure.decide(time.monotonic())
        if decision.pause or decision.resume or decision.block:
            changes = self._on_loop.wait(self._back_pressure.change, decision)
            if changes.resume:
                self._session.consumer.resume(_to_kafka(changes.resume))
            if changes.pause:
                self._session.consumer.pause(_to_kafka(changes.pause))
        if not decision.read:
            self._executor.room_available.wait(POLL_S)
        return decision.read

    # Poll and deliver

    def _poll(self) -> list[Message]:
        busy = bool(self._back_pressure.in_flight_batches) or self._executor.progressed
        now = time.monotonic()
        # Without partitions there are no commits: the next one would be overdue, and each wait would end at once.
        wait_s = self._policy.wait_s(now, busy=busy) if self._assignment.partitions else IDLE_POLL_S
        gather_s = self._policy.gather_s(now)
        messages = self._session.poll(self._back_pressure.poll_records, wait_s, gather_s)
        self._at_rest = not messages and not self._back_pressure.in_flight_batches
        return messages

    def _deliver(self, messages: Sequence[Message]) -> None:
        generation = self._assignment.generation
        by_partition, ended_partitions = self._by_partition(messages)
        for records in by_partition:
            batch = MessageBatch(_source(records[0]), generation, records)
            self._back_pressure.batch_delivered(batch.size)
            self._on_loop.post(self._deliver_on_loop, batch)
        for partition in ended_partitions:
            self._on_loop.post(self._executor.end_of_partition, partition, generation)

    def _by_partition(self, messages: Sequence[Message]) -> tuple[Collection[list[Message]], Sequence[TopicPartition]]:
        """Return the records of each partition, and the partitions that were read to their end."""
        by_partition: defaultdict[object, list[Message]] = defaultdict(list)
        ended_partitions: list[TopicPartition] = []
        if any(map(Message.error, messages)) or self._unreadable:
            messages = self._readable(messages, ended_partitions)
        # The records of a partition follow each other, so there are few groups.
        for partition, records in groupby(messages, self._partition_of):
            by_partition[partition].extend(records)
        if self._restorer.ends:
            ended_partitions += self._end_bounded(by_partition.values())
        return [records for records in by_partition.values() if records], ended_partitions

    def _end_bounded(self, by_partition: Iterable[list[Message]]) -> list[TopicPartition]:
        """Drop the records after the end of a bounded input. Return the partitions of which some were fetched."""
        beyond = []
        for records in by_partition:
            partition = _source(records[0])
            end = self._restorer.ends.get(partition)
            if end is not None and records[-1].offset() >= end:
                del records[bisect_left(records, end, key=Message.offset) :]
                beyond.append(partition)
        if fetched := self._assignment.partitions.intersection(beyond):
            self._session.consumer.pause(_to_kafka(fetched))
        return beyond

    def _readable(self, messages: Sequence[Message], ended_partitions: list[TopicPartition]) -> list[Message]:
        """Return the records to deliver, and add the partitions that were read to their end to `ended_partitions`."""
        readable, unreadable = [], self._unreadable
        for message in messages:
            error = message.error()
            if error is None:
                if not unreadable or _source(message) not in unreadable:
                    readable.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
                ended_partitions.append(_source(message))
            elif is_unreadable(error):
                self._note_unreadable(message)
            else:
                self._session.raise_if_fatal(error)
        return readable

    # Records that cannot be read

    def _note_unreadable(self, message: Message) -> None:
        """Reset once for unreadable records. The second time the process ends, after a commit of what precedes them."""
        # Records that librdkafka returns from the partition after the error are not usable: it may skip some, or read
        # garbage.
        partition = _source(message)
        if partition not in self._unreadable:
            failure = self._retried.failure_of(message)
            if isinstance(failure, TransactionAbortedError):
                self._check_topics()  # a topic that was created again may end before this offset
                raise failure
            self._unreadable[partition] = failure

    def _finish_before_unreadable(self) -> None:
        """Commit everything that precedes unreadable records, then raise their error."""
        # Batches of other partitions may wait for a server without a time limit, and nothing is polled meanwhile.
        if self._on_loop.wait(self._assignment.any_in_flight_of, self._unreadable.keys()):
            self._executor.room_available.wait(POLL_S)
            return
        # Revokes all partitions, as `_close` does: those batches must not begin another transaction.
        self._commit(revoked=self._assignment.partitions)
        raise next(iter(self._unreadable.values()))

    # Commit

    def _commit_is_due(self) -> bool:
        executor = self._executor
        return executor.commit_wanted or self._policy.due(
            time.monotonic(), progressed=executor.progressed, at_rest=self._at_rest
        )

    def _commit(self, revoked: Collection[TopicPartition] = (), *, within_poll: bool = False) -> None:
        """Flush the step, and commit its outputs with the offsets. Then revokes partitions.

        `within_poll`: the caller is a callback of the consumer, or the records of the last poll are not delivered.
        """
        self._policy.begin(time.monotonic())
        with observe_duration(self._executor.statistics.commits):
            # Offsets advance without records up to the position. Within a poll, it may already be after a record that
            # an earlier call has returned and that is not delivered yet: the commit would skip that record.
            self._flush_and_commit(revoked, {} if within_poll else self._fetch_positions())
        log_ranges = self._log_ranges()
        if not within_poll:
            for partition, (begin, end) in self._ranges_of_paused().items():
                log_ranges[partition] = begin, max(end, log_ranges.get(partition, (0, 0))[1])
        self._on_loop.post(self._executor.update_lag, log_ranges, self._fetch_positions())

    def _flush_and_commit(self, revoked: Collection[TopicPartition], positions: FetchPositions) -> None:
        changed_points = self._on_loop.wait(self._executor.begin_commit, positions)
        points = dict(changed_points)
        wrote = self._output.dirty
        if not points and wrote:
            # The broker fences a transaction of a former member by the offsets in it, so each transaction needs one.
            partition = min(self._assignment.partitions)
            points[partition] = self._on_loop.wait(self._executor.commit_point, partition)
        if points:
            with self._executor.statistics.committing.running():
                self._output.commit(
                    {partition: self._to_commit(partition.topic, point) for partition, point in points.items()}
                )
            self._session.outage.over()
        if wrote:
            self._policy.wrote()
        self._on_loop.wait(self._executor.end_commit, points, revoked)

    def _to_commit(self, topic: str, point: CommitPoint) -> CommittedOffset:
        topic_ids = self._restorer.topic_ids.get(topic), self._restorer.changelog_id
        metadata = encode_offset_metadata(point.checkpoint, self._state_schema, *topic_ids)
        return CommittedOffset(point.offset, metadata, point.leader_epoch)

    def _fetch_positions(self) -> FetchPositions:
        """Return the fetch position of each partition, without the partitions of which no record was fetched.

        That of a partition with unreadable records is behind them, and behind what was dropped after them.
        """
        partitions = self._assignment.partitions - self._unreadable.keys()
        positions = self._session.consumer.position(_to_kafka(partitions)) if partitions else []
        fetched = {
            TopicPartition(position.topic, position.partition): (position.offset, position.leader_epoch)
            for position in positions
            if position.offset >= 0
        }
        for partition in fetched.keys() & self._restorer.ends:
            offset, leader_epoch = fetched[partition]
            fetched[partition] = min(offset, self._restorer.ends[partition]), leader_epoch
        return fetched

    def _ranges_of_paused(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return first and last offsets of paused partitions, asked for every few seconds: a fetch would give them.

        Not within a call of the consumer, as `BrokerQueries` says.
        """
        paused = self._assignment.paused
        if paused and time.monotonic() >= self._paused_due_at:
            pause_s = PAUSED_RANGES_S
            try:
                self._paused_ranges = BrokerQueries(self._session.consumer).ranges(paused)
            except (UnavailableError, BrokerError):
                pause_s *= 6  # the request has waited for an answer, and so have the other partitions
            self._paused_due_at = time.monotonic() + pause_s
        return {partition: self._paused_ranges[partition] for partition in paused & self._paused_ranges.keys()}

    def _log_ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return first and last offsets as of the last fetch, without the partitions that were not fetched."""
        ranges = {
            partition: self._session.consumer.get_watermark_offsets(KafkaPartition(*partition), cached=True)
            for partition in self._assignment.partitions
        }
        return {partition: (begin, end) for partition, (begin, end) in ranges.items() if end >= 0}

    # The end

    def _close(self, *, clean: bool) -> None:
        owned = self._assignment.partitions
        assigned = owned | self._assignment.restoring
        has_finished = self._executor.finished
        try:
            if clean and owned:
                # Revoke the partitions in the same call. Otherwise the agent keeps processing and opens a transaction
                # that blocks all read_committed consumers.
                self._commit(revoked=owned)
            # A member with all partitions stays: no other member could be assigned its partitions at once. After a
            # bounded run it leaves: as a static member it would get the same partitions in the next run, without those
            # that are new by then.
            total = self._restorer.partition_count  # 0 before the first attempt to restore partitions
            others = not total or len(assigned) < total
            leaves = self._leaves if others else has_finished
            if clean and leaves and self._transport.leave_group_on_close:
                self._session.leave()
        except TransactionAbortedError as failure:
            self._rebalance.discard(owned, failure)
            raise _last_commit_failed(failure) from failure
        finally:
            self._session.close()
            self._output.close()


def _last_commit_failed(failure: SkewlessError) -> UnreachableError:
    return UnreachableError(f"stopped, but the last commit failed, so its records will be processed again: {failure}")


def _skippable(inputs: Iterable[Input]) -> dict[str, str]:
    return {source.topic: source.skip_to_prefix for source in inputs if source.skip_to is not None}


def _source(message: Message) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def _to_kafka(partitions: Collection[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(*partition) for partition in partitions]
