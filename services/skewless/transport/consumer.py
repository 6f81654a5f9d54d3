"""The one thread that owns the consumer: poll, hand over, commit, rebalance, rewind.

librdkafka's consumer is not shared between threads (a call from another one waits, or hangs in a rebalance), so every
call on it is made here. The loop's side is reached by short calls that run between two batches (`Session`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from skewless.errors import FencedError, SkewlessError
from skewless.shape import Shape, read_saved, write_saved
from skewless.transport.batch import MessageBatch
from skewless.transport.clients import made
from skewless.transport.counts import timed
from skewless.transport.failures import BROKER_AWAY, RewindError, consumer_failure
from skewless.transport.flow import Flow
from skewless.transport.leaving import leave_group
from skewless.transport.outbox import Outbox
from skewless.transport.questions import Questions
from skewless.transport.resumption import check_shape, has_begun, positions_gone
from skewless.transport.session import Prepared, Restore, Session, State, Taken
from skewless.transport.settings import TransportSettings
from skewless.transport.topics import check_same

log = logging.getLogger(__name__)

Result = TypeVar("Result")

POLL_S = 0.02
"""Longest wait for records, so also the longest delay of a commit that is due."""
LEAVE_S = 3.0


class ConsumerThread(threading.Thread):
    """Feeds a session from a topic and commits what the session has done."""

    def __init__(  # noqa: PLR0913 - by name, and all in one place: the driver's `subscribe`
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        session: Session,
        outbox: Outbox,
        topic: str,
        options: Mapping[str, object],
        transport: TransportSettings,
        connect_timeout_s: float,
        deliver: Callable[[MessageBatch], None],
        assigned: Callable[[set[int]], None],
        stopped: Callable[[BaseException | None], None],
        restore: Restore,
        holds_results: Callable[[], str | None] = lambda: None,
        shape: Shape | None = None,
        partitions: int | None = None,
        patience_s: float = 1.0,
    ) -> None:
        super().__init__(name="consumer", daemon=True)
        self._loop = loop
        self._session = session
        self._outbox = outbox
        self._topic = topic
        self._options = dict(options)
        self._transport = transport
        self._connect_timeout_s = connect_timeout_s
        self._deliver = deliver
        self._assigned = assigned
        self._stopped = stopped
        self._restore = restore
        self._holds_results = holds_results
        self._shape = shape
        self._stop_event = threading.Event()
        self._wanted_partitions = partitions
        self._partitions = 0
        """Partitions of the topic, whoever owns them."""
        self._leaves = False
        self._owned: set[int] = set()
        self._read: dict[int, int] = {}
        """Next offset by partition of what was handed over."""
        self._flow = Flow(transport, lambda: session.acks, patience_s)
        self._callback_failure: BaseException | None = None
        self._session_lost = False
        self._due = 0.0
        self._consumer: Consumer = None  # made on the thread that owns it
        self._questions: Questions = None  # type: ignore[assignment] # likewise

    def stop(self, *, leave: bool = False) -> None:
        """Ask for a clean end: what is processed is committed, nothing new is begun.

        With `leave` others are given the partitions at once, if there are others.
        """
        self._leaves = leave
        self._stop_event.set()
        self._session.space.set()

    def run(self) -> None:
        """Work until stopped or failed; the outcome goes to `stopped` on the loop."""
        failure: BaseException | None = None
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - it is told to the loop, where the process ends with it
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
        self._consumer = made(Consumer, {**self._options, "error_cb": self._on_error})
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._questions = Questions(self._topic, self._consumer, self._outbox, self._transport)
        self._count_partitions()
        self._due = time.monotonic() + self._transport.commit_interval_s

    def _turn(self) -> None:
        """Poll once, and commit when it is due."""
        self._session.counts.beat = time.monotonic()
        try:
            self._poll()
            if self._session.failure is not None:
                raise self._session.failure
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + self._transport.commit_interval_s
                self._commit()
        except RewindError as failure:
            self._rewind(failure)

    def _close(self, *, clean: bool) -> None:
        owned, self._owned = self._owned, set()
        try:
            if clean and owned:
                # Given up with it, or the agent goes on and leaves a transaction open that holds up all readers.
                self._commit(given_up=owned)
            if clean and self._leaves and self._transport.leave_on_stop and len(owned) < self._partitions:
                self._leave()
        except RewindError as failure:
            self._drop(owned, failure)
            raise SkewlessError(
                f"stopped, but the last commit failed, so its records will be processed again: {failure}"
            ) from failure
        finally:
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
        if self._callback_failure is not None:
            failure, self._callback_failure = self._callback_failure, None
            raise failure
        if messages:
            self._hand_over(messages)

    def _hand_over(self, messages: Iterable[Message]) -> None:
        by_partition: defaultdict[int, list[Message]] = defaultdict(list)
        ended = []
        for message in messages:
            error = message.error()
            if error is None:
                by_partition[message.partition()].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
                ended.append(message.partition())
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

    def _judge(self, error: KafkaError) -> None:
        failure = self._failure_of(error)
        if failure is not None:
            raise failure
        log.warning("consumer: %s", error.str())

    def _make_room(self) -> bool:
        """Tell whether there is room for more; partitions that are slow for long are paused."""
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
        prepared: Prepared = self.on_loop(self._session.prepare)
        if prepared or self._outbox.dirty:
            offsets = [
                TopicPartition(self._topic, partition, offset, write_saved(position, self._shape))
                for partition, (offset, position) in prepared.items()
            ]
            self._outbox.commit(offsets, self._consumer)
            self._session_lost = self._session_lost and not offsets
        self.on_loop(self._session.committed, prepared, given_up)

    def _lag(self) -> Iterator[tuple[int, int]]:
        """Count what is left; behind the last record that was read, the markers of commits are no records."""
        positions = {at.partition: at.offset for at in self._consumer.position(self._parts(self._owned))}
        for partition, offset in self._session.next_offsets().items():
            begin, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
            reached = max(0, begin) if offset is None else offset
            if self._read.get(partition, offset) == offset:
                reached = max(reached, positions.get(partition, reached))
            if end >= 0:  # not known before the first fetch
                yield partition, max(0, end - reached)

    def _rewind(self, failure: RewindError) -> None:
        """Abort, forget what was not committed, and read it again. Position does not go back by itself."""
        log.warning("rewinding to what was committed: %s", failure, extra={"partitions": sorted(self._owned)})
        self._session.counts.rewinds += 1
        owned = set(self._owned)
        self._drop(owned, failure)
        self._take(owned)

    def _drop(self, partitions: Collection[int], failure: RewindError) -> None:
        self.on_loop(self._session.revoke, partitions)
        self._outbox.abort(replace=failure.replace)

    def _on_error(self, error: KafkaError) -> None:
        """Hear of what librdkafka cannot mend: it comes inside poll, and not as a record's error."""
        if error.fatal():
            self._callback_failure = self._failure_of(error)
        elif error.code() in BROKER_AWAY:
            self._session_lost = True

    def _failure_of(self, error: KafkaError) -> SkewlessError | None:
        failure = consumer_failure(error, f"reading topic {self._topic} as group {self._options['group.id']}")
        if self._session_lost and isinstance(failure, FencedError):
            # No twin: after a session that ended (a broker was away) the broker takes us for our own former self.
            return SkewlessError("the group session ended while no broker answered; this process must start again")
        return failure

    # Rebalances: these run inside poll, on this thread

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session_lost = False
        self._session.counts.rebalances["assigned"] += 1
        self._guarded(self._take, {partition.partition for partition in partitions})

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session.counts.rebalances["revoked"] += 1
        self._guarded(self._give_up, {partition.partition for partition in partitions}, True)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session_lost = True
        self._session.counts.rebalances["lost"] += 1
        self._guarded(self._give_up, {partition.partition for partition in partitions}, False)

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        """Keep an error for after the callback: librdkafka's frames are no place for it."""
        try:
            call(*args)
        except BaseException as error:  # noqa: BLE001 - raised by the poll that this callback is part of
            self._callback_failure = error

    def _give_up(self, partitions: set[int], commit: bool) -> None:  # noqa: FBT001 - called by the guard above
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

    def _take(self, partitions: set[int]) -> None:
        self._count_partitions()
        with self._session.counts.taking_over():
            committed = self._questions.committed(partitions)
            saved = {partition: read_saved(at.metadata) for partition, at in committed.items()}
            check_shape(saved, self._shape, str(self._options["group.id"]))
            positions = {partition: found.position for partition, found in saved.items()}
            states = self._restore(positions)
            if committed and not has_begun(committed) and self._transport.guarantee == "exactly_once":
                self._check_first_start(states)
        taken = {
            partition: Taken(at.offset if at.offset >= 0 else None, positions[partition], states.get(partition, ()))
            for partition, at in committed.items()
        }
        self._consumer.assign(
            [
                TopicPartition(self._topic, partition, OFFSET_BEGINNING if at.offset is None else at.offset)
                for partition, at in taken.items()
            ]
        )
        # librdkafka keeps a partition paused, also when it was given up in between; `own` below knows of none.
        self._consumer.resume(self._parts(taken))
        self._owned = set(partitions)
        self._read.clear()
        self._flow.own(frozenset(partitions))
        self.on_loop(self._session.assign, taken)
        offsets = {partition: at.offset for partition, at in taken.items()}
        log.info("works on %d partitions", len(taken), extra={"partitions": sorted(taken), "offsets": offsets})
        self._loop.call_soon_threadsafe(self._assigned, set(partitions))

    def _check_first_start(self, states: Mapping[int, State]) -> None:
        """Refuse to begin where the group has written: outputs and positions are committed together."""
        group_wide = range(self._partitions)
        if has_begun(self._questions.committed(group_wide)):
            return
        written = "its changelog" if any(states.values()) else self._holds_results()
        # Asked again: meanwhile another process of the group may have begun.
        if written and not has_begun(self._questions.committed(group_wide)):
            raise positions_gone(str(self._options["group.id"]), self._topic, written)

    def _count_partitions(self) -> None:
        """Compare: a static member that comes back is given what it had, and nobody hears of what has grown."""
        found = self._questions.partitions()
        if found is None:
            return  # what is wrong is told by the next poll
        self._partitions = found
        if self._wanted_partitions is not None:
            check_same(found, self._wanted_partitions, f"topic {self._topic}", "it when this process began")
