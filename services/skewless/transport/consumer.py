"""The consumer thread: polls, delivers batches, commits, follows rebalances, and resets after an abort.

librdkafka's consumer is not shared between threads (a call from another one waits, or hangs in a rebalance), so every
call on it is made here. The loop's side is reached by short calls that run between two batches (`Session`).

An assignment passes two steps. The group's callback only notes it (`_pending`). The thread then takes it over between
two polls: confirm membership, get the producer ready, read committed offsets, restore state. Each attempt is bounded
and repeated while no broker answers, so a process waits for brokers as long as they need.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from skewless.errors import BrokerError, FencedError, SkewlessError, UnreachableError
from skewless.shape import write_saved
from skewless.transport.abort_streak import AbortStreak
from skewless.transport.batch import MessageBatch
from skewless.transport.bounded import while_serving
from skewless.transport.clients import made
from skewless.transport.counts import timed
from skewless.transport.failures import BROKER_AWAY, BrokerAwayError, RewindError, consumer_failure
from skewless.transport.flow import Flow
from skewless.transport.leaving import leave_group
from skewless.transport.membership import GroupMembership
from skewless.transport.outage import Outage
from skewless.transport.outbox import Outbox
from skewless.transport.questions import Questions
from skewless.transport.resumption import Input, OffsetsLostError, Written, checkpoints_of
from skewless.transport.session import CommitPoint, FetchPositions, Restore, Session, Taken
from skewless.transport.settings import TransportSettings
from skewless.transport.takeover import Takeover
from skewless.transport.topics import check_same
from skewless.transport.unreadable import UNREADABLE, RetriedRecords

log = logging.getLogger(__name__)

Result = TypeVar("Result")

POLL_S = 0.02
"""Longest wait for records, so also the longest delay of a commit that is due."""
LEAVE_S = 3.0


class AssignmentChangedError(Exception):
    """The group revoked or replaced the assignment while it was being taken over, or the process is to stop."""


class ConsumerThread(threading.Thread):
    """Feeds a session from a topic and commits what the session has done."""

    def __init__(  # noqa: PLR0913 - by name, and all in one place: the driver's `subscribe`
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        session: Session,
        outbox: Outbox,
        source: Input,
        options: Mapping[str, object],
        transport: TransportSettings,
        connect_timeout_s: float,
        deliver: Callable[[MessageBatch], None],
        assigned: Callable[[set[int]], None],
        stopped: Callable[[BaseException | None], None],
        restore: Restore,
        membership: GroupMembership,
        written: Written | None = None,
        partitions: int | None = None,
        skip_to: Mapping[int, int] | None = None,
        patience_s: float = 1.0,
    ) -> None:
        super().__init__(name="consumer", daemon=True)
        self._loop = loop
        self._session = session
        self._outbox = outbox
        self._source = source
        self._topic = source.topic
        self._group = source.group
        self._options = dict(options)
        self._transport = transport
        self._connect_timeout_s = connect_timeout_s
        self._deliver = deliver
        self._assigned = assigned
        self._stopped = stopped
        self._membership = membership
        self._takeover = Takeover(
            source=source,
            exactly_once=transport.guarantee == "exactly_once",
            restore=restore,
            written=written,
            skip_to=skip_to or {},
        )
        self._stop_event = threading.Event()
        self._wanted_partitions = partitions
        self._partitions = 0
        """Partitions of the topic, including those of other members."""
        self._leaves = False
        self._pending: set[int] | None = None
        """Partitions that the group has assigned and that are not taken over yet."""
        self._owned: set[int] = set()
        """Partitions that are taken over."""
        self._unconfirmed = False
        """Whether the coordinator must confirm this member before partitions are taken over again."""
        self._member_id = ""
        """Member id as of the last assignment."""
        self._read: dict[int, int] = {}
        """Next offset by partition of what was delivered."""
        self._flow = Flow(transport, lambda: session.acks, patience_s)
        self._callback_failure: BaseException | None = None
        self._session_lost = False
        """Whether the group session may have ended since the last assignment, because no broker was reached."""
        self._outage = Outage(log)
        self._streak = AbortStreak(transport.transaction_timeout_s)
        self._retried = RetriedRecords(self._topic, self._group, skippable=skip_to is not None)
        self._unreadable: dict[int, SkewlessError] = {}
        """Errors by partition of records that cannot be read, after one retry."""
        self._due = 0.0
        self._consumer: Consumer = None  # made on the thread that owns it
        self._questions: Questions = None  # type: ignore[assignment] # likewise

    def stop(self, *, leave: bool = False) -> None:
        """Ask for a clean end: what is processed is committed, nothing new is begun.

        With `leave` the other members are assigned the partitions at once, if there are others.
        """
        self._leaves = leave
        self._stop_event.set()
        self._session.space.set()

    def run(self) -> None:
        """Work until stopped or failed; the outcome goes to `stopped` on the loop."""
        failure: BaseException | None = None
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - reported to the loop, where the process ends with it
            failure = error
        try:
            self._close(clean=failure is None)
        except Exception as error:  # noqa: BLE001 - as above
            failure = failure or error
        self._loop.call_soon_threadsafe(self._stopped, failure)

    def _work(self) -> None:
        self._begin()
        while not self._stop_event.is_set():
            self._turn()

    def _begin(self) -> None:
        self._outbox.open(self._connect_timeout_s)
        self._session.send = self._outbox.send
        self._join()
        self._due = time.monotonic() + self._transport.commit_interval_s

    def _join(self) -> None:
        """Create the consumer and subscribe."""
        self._consumer = made(Consumer, {**self._options, "error_cb": self._on_error})
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._questions = Questions(self._topic, self._consumer, self._outbox)

    def _turn(self) -> None:
        """Poll once, and commit when it is due; or go on with taking over an assignment."""
        self._session.counts.beat = time.monotonic()
        try:
            if self._pending is not None:
                self._take_over()
                return
            if self._unreadable:
                self._finish_before_unreadable(next(iter(self._unreadable.values())))
            else:
                self._poll()
            self._raise_failure_of_session()
            if self._owned and (time.monotonic() >= self._due or self._session.commit_wanted):
                self._due = time.monotonic() + self._transport.commit_interval_s
                self._commit()
        except RewindError as failure:
            self._rewind(failure)

    def _raise_failure_of_session(self) -> None:
        failure = self._session.failure
        if isinstance(failure, UnreachableError) and not isinstance(failure, BrokerError):
            raise RewindError(str(failure)) from failure
        if failure is not None:
            raise failure

    def _close(self, *, clean: bool) -> None:
        owned = self._owned.copy()
        try:
            if clean and owned:
                # Revoke the partitions in the same call. Otherwise the agent keeps processing and opens a transaction
                # that blocks all read_committed consumers.
                self._commit(given_up=owned)
            self._owned.clear()
            held = owned | (self._pending or set())
            if clean and self._leaves and self._transport.leave_on_stop and len(held) < self._partitions:
                self._leave()
        except RewindError as failure:
            self._drop(owned, failure)
            raise UnreachableError(
                f"stopped, but the last commit failed, so its records will be processed again: {failure}"
            ) from failure
        finally:
            # The callbacks of `close` commit what is owned.
            self._owned.clear()
            if self._consumer is not None:
                self._consumer.close()
            self._outbox.close()

    def _leave(self) -> None:
        if not leave_group(self._consumer, LEAVE_S):
            log.warning(
                "could not leave the group: others take over when the session ends, after %g s",
                self._transport.session_timeout_s,
            )

    def on_loop(self, call: Callable[..., Result], *args: Any) -> Result:
        """Run a call on the loop, between two batches, and wait for it."""
        future: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(call(*args))
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result()

    # Records

    def _poll(self) -> None:
        if not self._make_room():
            self._session.space.wait(POLL_S)
            return
        messages: list[Message] = []
        try:
            first = self._consumer.poll(POLL_S)
            if first is not None:
                messages.append(first)  # kept, whatever the next call says
                messages += self._consumer.consume(self._transport.poll_records - 1, 0)
        except KafkaException as error:
            self._judge(error.args[0])
        self._raise_failure_of_callback()
        if messages:
            self._hand_over(messages)

    def _serve(self, wait_s: float) -> None:
        """Poll for callbacks while no partition is taken over."""
        self._session.counts.beat = time.monotonic()
        try:
            message = self._consumer.poll(wait_s)
        except KafkaException as error:
            self._judge(error.args[0])
        else:
            if message is not None and message.error() is not None:
                self._judge(message.error())
        self._raise_failure_of_callback()

    def _raise_failure_of_callback(self) -> None:
        if self._callback_failure is not None:
            failure, self._callback_failure = self._callback_failure, None
            raise failure

    def _hand_over(self, messages: Iterable[Message]) -> None:
        by_partition: defaultdict[int, list[Message]] = defaultdict(list)
        ended = []
        for message in messages:
            error = message.error()
            if error is None:
                partition = message.partition()
                if partition not in self._unreadable:
                    by_partition[partition].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
                ended.append(message.partition())
            elif error.code() in UNREADABLE:
                self._note_unreadable(message)
            else:
                self._judge(error)
        generation = self._session.generation
        for partition, records in by_partition.items():
            batch = MessageBatch(partition, generation, records)
            self._read[partition] = batch.next_offset
            self._flow.pushed(batch.size)
            self._loop.call_soon_threadsafe(self._deliver, batch)
        for partition in ended:
            self._loop.call_soon_threadsafe(self._session.end_of_partition, partition, generation)

    def _note_unreadable(self, message: Message) -> None:
        """Reset once for records that cannot be read; the second time the process ends after what precedes them.

        What librdkafka returns of the partition after the error is not usable: it may skip records, or read garbage.
        """
        if message.partition() not in self._unreadable:
            failure = self._retried.failure_of(message)
            if isinstance(failure, RewindError):
                raise failure
            self._unreadable[message.partition()] = failure

    def _finish_before_unreadable(self, failure: SkewlessError) -> None:
        """Commit everything that precedes unreadable records, then raise their error."""
        if self.on_loop(self._session.waiting):
            self._session.space.wait(POLL_S)
            return
        self._commit()
        raise failure

    def _judge(self, error: KafkaError) -> None:
        failure = self._failure_of(error)
        if failure is not None:
            raise failure
        self._outage.warn(f"consumer: {error.str()}")

    def _make_room(self) -> bool:
        """Apply back-pressure. Returns whether the consumer may poll; pauses partitions that were full for too long."""
        self._session.space.clear()
        decision = self._flow.decide(time.monotonic())
        if decision.resume:
            self._consumer.resume(self._parts(decision.resume))
        if decision.pause:
            self._consumer.pause(self._parts(decision.pause))
        return decision.read

    def _parts(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in partitions]

    # Commits

    def _commit(self, given_up: Collection[int] = ()) -> None:
        with timed(self._session.counts.commits):
            self._commit_now(given_up)
        self._session.lag = dict(self._lag())

    def _commit_now(self, given_up: Collection[int]) -> None:
        try:
            self._flush_and_commit(given_up)
        except RewindError as failure:
            size = self._outbox.uncommitted
            error = self._streak.aborted(wrote_s=size.seconds, records=size.records, written_bytes=size.bytes)
            if error is not None:
                raise error from failure
            raise

    def _flush_and_commit(self, given_up: Collection[int]) -> None:
        prepared = self.on_loop(self._session.prepare, self._fetched())
        points = dict(prepared)
        if not points and self._outbox.dirty:
            # The broker fences a transaction of a former member by the offsets in it, so none is without an offset.
            partition = min(self._owned)
            points[partition] = self.on_loop(self._session.commit_point, partition)
        if points:
            self._outbox.commit([self._to_commit(*point) for point in points.items()], self._consumer)
            self._session_lost = False
            self._outage.over()
            self._streak.committed()
        self.on_loop(self._session.committed, points, given_up)

    def _to_commit(self, partition: int, point: CommitPoint) -> TopicPartition:
        metadata = write_saved(point.position, self._source.shape)
        epoch = () if point.leader_epoch is None else (point.leader_epoch,)
        return TopicPartition(self._topic, partition, point.offset, metadata, *epoch)

    def _fetched(self) -> FetchPositions:
        """Return how far each partition is fetched; partitions without a fetched record are left out."""
        found = self._consumer.position(self._parts(self._owned)) if self._owned else []
        return {at.partition: (at.offset, at.leader_epoch) for at in found if at.offset >= 0}

    def _lag(self) -> Iterator[tuple[int, int]]:
        """Yield the lag of each partition. Transaction markers after the last record are not counted."""
        positions = {at.partition: at.offset for at in self._consumer.position(self._parts(self._owned))}
        for partition, offset in self._session.next_offsets().items():
            begin, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
            reached = max(offset, begin)
            if self._read.get(partition, offset) == offset:
                reached = max(reached, positions.get(partition, reached))
            if end >= 0:  # not known before the first fetch
                yield partition, max(0, end - reached)

    # Resets

    def _rewind(self, failure: RewindError) -> None:
        """Abort the transaction and read again from the committed offsets, once the group confirms this member."""
        log.warning("abort and reset to the committed offsets: %s", failure, extra={"partitions": sorted(self._owned)})
        self._session.counts.rewinds += 1
        owned, self._owned = self._owned, set()
        self._drop(owned, failure)
        self._flow.own(frozenset())
        self._unconfirmed = True
        if failure.rejoin:
            self._consumer.close()
            self._pending = self._callback_failure = None
            self._join()
            return
        if owned:
            self._pending = owned
        with suppress(KafkaException):  # of a consumer that failed for good; the next poll reports it
            # Fetch nothing meanwhile. The membership is not touched.
            self._consumer.assign([])

    def _drop(self, partitions: Collection[int], failure: RewindError) -> None:
        self.on_loop(self._session.revoke, partitions)
        self._outbox.abort(replace=failure.replace)

    def _on_error(self, error: KafkaError) -> None:
        """Handle an error event. librdkafka calls this from within poll() instead of returning a message."""
        if error.fatal():
            self._callback_failure = self._failure_of(error)
        elif error.code() in BROKER_AWAY:
            self._session_lost = True
            self._outage.warn(f"no broker is reached, waiting: {error.str()}", kind="no broker")

    def _failure_of(self, error: KafkaError) -> SkewlessError | RewindError | None:
        failure = consumer_failure(error, f"reading topic {self._topic} as group {self._group}")
        if self._session_lost and isinstance(failure, FencedError):
            # This is not a duplicate instance. The answer to a request to join was lost with the connection, so the
            # coordinator knows this process by a member id that the process does not know.
            self._session_lost = False
            return RewindError("the group session ended while no broker was reached; joining again", rejoin=True)
        return failure

    # Rebalances: these run inside poll, on this thread

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session_lost = False
        self._session.counts.rebalances["assigned"] += 1
        self._pending = {partition.partition for partition in partitions}
        self._member_id = consumer.memberid()
        # Without this call the client would fetch at once, from offsets of its own choice.
        consumer.assign([])

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session.counts.rebalances["revoked"] += 1
        self._guarded(self._give_up, {partition.partition for partition in partitions}, True)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session_lost = True
        self._session.counts.rebalances["lost"] += 1
        self._guarded(self._give_up, {partition.partition for partition in partitions}, False)
        self._guarded(self._check_not_replaced)

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        """Store an error and raise it after poll(): an exception must not propagate through librdkafka's callback."""
        try:
            call(*args)
        except BaseException as error:  # noqa: BLE001 - raised by the poll that this callback is part of
            self._callback_failure = error

    def _give_up(self, partitions: set[int], commit: bool) -> None:  # noqa: FBT001 - called by the guard above
        self._pending = None
        partitions &= self._owned
        if not partitions:
            return
        try:
            if commit:
                self._commit(given_up=partitions)
            else:
                raise RewindError("partitions were lost, their new owner reads on from what was committed")  # noqa: TRY301
        except RewindError as failure:
            log.warning("giving up partitions without a commit: %s", failure, extra={"partitions": sorted(partitions)})
            self._drop(partitions, failure)
        self._owned -= partitions
        self._flow.own(frozenset(self._owned))

    def _check_not_replaced(self) -> None:
        """Raise FencedError if another process has joined under this instance id after the session ended."""
        try:
            registered = self._membership.member_id()
        except BrokerAwayError:
            return
        if registered not in (None, self._member_id):
            # A client whose session timed out joins again without its member id. The coordinator would take it for
            # the newer process, and fence the process that replaced it.
            with suppress(KafkaException):  # of a consumer that is fenced already
                self._consumer.unsubscribe()
            raise FencedError(
                f"this process did not answer for longer than transport.session_timeout_s, and another process took "
                f"over as {self._options['group.instance.id']}; this one ends"
            )

    # Taking over

    def _take_over(self) -> None:
        """Make one attempt to take over the pending assignment."""
        pending = self._pending
        try:
            self._serve(POLL_S if self._outage.waiting else 0)
            if self._pending is None or self._pending is not pending:
                return
            self._confirm_membership()
            self._outbox.reopen()
            self._count_partitions()
            taken = self._restore(pending)
        except AssignmentChangedError:
            return
        except BrokerAwayError as error:
            self._outage.warn(f"waiting to take over partitions: {error}")
            return
        self._start(taken)

    def _confirm_membership(self) -> None:
        """Raise BrokerAwayError until the coordinator confirms that this consumer is the member of its instance id.

        A process that was suspended may have been replaced. Its new producer would fence the producer of its successor.
        If it was replaced, the consumer's next heartbeat fails for good, which ends this process.
        """
        if self._unconfirmed:
            if self._membership.member_id() != self._consumer.memberid():
                raise BrokerAwayError(f"group {self._group} has not confirmed this member")
            self._unconfirmed = False

    def _restore(self, pending: set[int]) -> Mapping[int, Taken]:
        """Read committed offsets and restore state, while the consumer is polled."""
        with self._session.counts.taking_over():
            committed = self._questions.committed(pending)
            ranges = self._questions.ranges(pending)
            begun = self._has_begun(committed)

            def serve() -> None:
                self._serve(POLL_S)
                if self._pending is not pending or self._stop_event.is_set():
                    raise AssignmentChangedError

            try:
                return while_serving(lambda: self._takeover.prepare(committed, ranges, begun=begun), serve)
            except OffsetsLostError as error:
                if not begun and self._has_begun(committed):
                    raise BrokerAwayError("another member of the group has committed its first offsets") from error
                raise
            except UnreachableError as error:
                if isinstance(error, BrokerError):
                    raise
                raise BrokerAwayError(str(error)) from error

    def _has_begun(self, committed: Mapping[int, TopicPartition]) -> bool:
        """Return whether the group has a checkpoint of any partition of the topic."""
        # Of all partitions only where it matters: the request waits for open transactions of other members.
        return bool(
            checkpoints_of(self._source, committed)
            or checkpoints_of(self._source, self._questions.committed(range(self._partitions)))
        )

    def _start(self, taken: Mapping[int, Taken]) -> None:
        """Assign the partitions to the consumer at their offsets, and to the session."""
        self._consumer.assign(
            [
                TopicPartition(
                    self._topic, partition, at.offset, "", *(() if at.leader_epoch is None else (at.leader_epoch,))
                )
                for partition, at in taken.items()
            ]
        )
        # librdkafka keeps a partition paused that was revoked and assigned again; `own` below assumes none is paused.
        self._consumer.resume(self._parts(taken))
        self._pending, self._owned = None, set(taken)
        self._read.clear()
        self._flow.own(frozenset(taken))
        self.on_loop(self._session.assign, taken)
        self._outage.over()
        offsets = {partition: at.offset for partition, at in taken.items()}
        log.info("assigned %d partitions", len(taken), extra={"partitions": sorted(taken), "offsets": offsets})
        self._loop.call_soon_threadsafe(self._assigned, set(taken))

    def _count_partitions(self) -> None:
        """Check that the partition count has not changed.

        A static member that joins again gets its previous assignment without a rebalance, so it would not notice new
        partitions.
        """
        found = self._questions.partition_count()
        if found is None:
            return  # the next poll() raises the error
        self._partitions = found
        if self._wanted_partitions is not None:
            check_same(found, self._wanted_partitions, f"topic {self._topic}", "it when this process began")
