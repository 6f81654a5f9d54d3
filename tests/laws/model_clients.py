"""librdkafka's consumer and producer over the model broker: their states, errors and callbacks, and injected faults.

Errors have the flags that librdkafka sets (rdkafka.h, "Transactional producer API"). Misuse is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from laws.model_broker import Broker, Membership, RefusedError
from skewless.errors import UnavailableError

Result = TypeVar("Result")

SESSION_S = 10.0
FENCING = {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED}


class KilledError(BaseException):
    """The process is killed. The product cannot catch this error, and later calls have no effect."""


class StuckError(Exception):
    """The call never returns."""


class TimedCalls:
    """Replaces the product's function: runs the call without a thread and without a timeout."""

    def call(self, call: Callable[[], None], _limit_s: float) -> bool:
        try:
            call()
        except StuckError:
            return False
        return True

    def close(self) -> None: ...


def while_serving(call: Callable[[], Result], serve: Callable[[], None]) -> Result:
    """Replace the product's function: poll the consumer once, then make the call."""
    serve()
    return call()


def in_background(call: Callable[[], Result]) -> Future[Result]:
    """Replace the product's function: make the call at once, in the thread of the caller."""
    outcome: Future[Result] = Future()
    try:
        outcome.set_result(call())
    except Exception as error:  # noqa: BLE001 - of the call
        outcome.set_exception(error)
    return outcome


class ModelMembership:
    """Reads the member of an instance id from the model broker."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.group_instance_id = link.instance

    def member_id(self) -> str | None:
        member = self._members().get(self._link.instance)
        return None if member is None else str(member)

    def instances(self) -> set[str]:
        return set(self._members())

    def _members(self) -> Mapping[str, int]:
        kind = self._link.enter("describe_group")
        if kind == "time out before":
            self._link.broker.clock.advance(2.0)
            raise UnavailableError("no answer")
        members = dict(self._link.broker.group.members)
        self._link.leave(kind)
        return members


@dataclass(frozen=True)
class Fault:
    """Fault of the next calls of one kind."""

    kind: str
    times: int = 1


@dataclass
class Link:
    """A process's connection to the broker: whether the process lives, and its pending faults."""

    broker: Broker
    instance: str
    alive: bool = True
    faults: dict[str, Fault] = field(default_factory=dict)
    interlude: Callable[[str], None] = lambda _kind: None
    """Action of other processes during a call."""
    fetch: int = 4
    """Maximum number of records of one `consume`."""
    unnoticed_polls: int = 0
    """Number of polls before the client has found the group coordinator."""
    suspended: bool = False
    """Whether the process was suspended since its last poll, so that it sent no heartbeats."""
    all_brokers_down: bool = False
    """Whether the next poll reports that no broker is reachable."""

    def enter(self, call: str) -> str:
        """Begin a call; returns its fault, or None."""
        self.check()
        fault = self.faults.pop(call, None)
        if fault is None:
            return ""
        if fault.times > 1:
            self.faults[call] = Fault(fault.kind, fault.times - 1)
        if fault.kind == "die before":
            self.alive = False
        elif fault.kind.startswith("meanwhile"):
            self.interlude(fault.kind)
        self.check()
        if fault.kind == "stuck before":
            raise StuckError
        return fault.kind

    def leave(self, kind: str, timeout: float = 0.0) -> None:
        """End a successful call."""
        if kind == "die after":
            self.alive = False
        self.check()
        if kind == "time out after":
            raise self.time_out(timeout)
        if kind == "stuck after":
            raise StuckError

    def check(self) -> None:
        if not self.alive:
            raise KilledError

    def time_out(self, seconds: float) -> KafkaException:
        self.broker.clock.advance(seconds)
        return _exception(KafkaError._TIMED_OUT, retriable=True)


def _exception(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, None, fatal, retriable, abort))


class ModelProducer:
    """One producer instance. It is transactional if its options contain a transactional id."""

    def __init__(self, link: Link, options: Mapping[str, Any]) -> None:
        self._link = link
        self._broker = link.broker
        self._name: str = options.get("transactional.id", "")
        self._timeout_s = options.get("transaction.timeout.ms", 0) / 1000
        self._report = options["on_delivery"]
        self._queue: list[tuple[str, int, bytes]] = []
        self._ripe = 0
        """Records that were queued at the last poll. They are sent at the next one, as `linger.ms` has passed."""
        self._queued_at = 0.0
        """Time at which the oldest record of the queue was added."""
        self._registered = False
        """Whether the coordinator knows the open transaction."""
        self._needs_epoch = False
        """Whether records have timed out, so that librdkafka asks for a new epoch to abort the transaction."""
        self._epoch = 0
        self._state = "new"
        self._error: KafkaException | None = None

    def __len__(self) -> int:
        return len(self._queue)

    # Transactions

    def init_transactions(self, timeout: float) -> None:
        kind = self._link.enter("init_transactions")
        assert self._state == "new"
        if kind == "time out before":
            raise self._link.time_out(timeout)
        if kind == "fatal":
            raise self._fail(_exception(KafkaError.INVALID_TXN_STATE, fatal=True))
        self._epoch = self._broker.init(self._name)
        self._link.leave(kind, timeout)
        self._state = "ready"

    def begin_transaction(self) -> None:
        self._link.check()
        self._raise_fatal()
        assert self._state == "ready", f"begin in state {self._state}"
        self._state = "open"

    def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], who: Membership, timeout: float) -> None:
        def add() -> None:
            self._registered = True
            self._broker.add_offsets(self._name, self._epoch, self._timeout_s, _by_partition(offsets), who)

        assert self._state in {"open", "failed", "fatal"}, f"offsets in state {self._state}"
        self._call("send_offsets", add, timeout)

    def commit_transaction(self, timeout: float) -> None:
        def commit() -> None:
            self._write()
            self._broker.end(self._name, self._epoch, "committed")

        assert self._state in {"open", "committing", "failed", "fatal"}, f"commit in state {self._state}"
        if self._state == "open":
            self._state = "committing"
        self._call("commit_transaction", commit, timeout)
        self._state, self._registered = "ready", False

    def abort_transaction(self, timeout: float) -> None:
        kind = self._link.enter("abort_transaction")
        self._raise_fatal()
        if self._state == "committing":
            raise _exception(KafkaError._CONFLICT)
        assert self._state in {"open", "failed"}, f"abort in state {self._state}"
        if kind == "time out before":
            raise self._link.time_out(timeout)
        self._time_out_records()
        self._queue.clear()
        try:
            if self._registered or not self._needs_epoch:
                self._broker.end(self._name, self._epoch, "aborted")
            if self._needs_epoch:
                self._epoch = self._broker.renew_epoch(self._name, self._epoch)
        except RefusedError as error:
            raise self._refused(error) from error
        self._link.leave(kind, timeout)
        self._state, self._error = "ready", None
        self._registered = self._needs_epoch = False

    def _call(self, name: str, call: Callable[[], None], timeout: float) -> None:
        """Make a transactional call that may be repeated."""
        kind = self._link.enter(name)
        if self._error is not None:
            raise self._error
        if kind == "delay":
            self._write()
            self._broker.delayed.append((self._name, self._epoch))
        if kind in {"time out before", "delay"}:
            raise self._link.time_out(timeout)
        if kind == "abortable":
            raise self._fail(_exception(KafkaError._INCONSISTENT, abort=True))
        if kind == "fatal":
            raise self._fail(_exception(KafkaError.INVALID_TXN_STATE, fatal=True))
        try:
            call()
        except RefusedError as error:
            raise self._refused(error) from error
        self._link.leave(kind, timeout)

    def _refused(self, error: RefusedError) -> KafkaException:
        fencing = error.code in FENCING
        return self._fail(_exception(KafkaError._FENCED if fencing else error.code, fatal=fencing, abort=not fencing))

    def _fail(self, error: KafkaException) -> KafkaException:
        self._error = error
        self._state = "fatal" if error.args[0].fatal() else "failed"
        return error

    def _raise_fatal(self) -> None:
        if self._state == "fatal" and self._error is not None:
            raise self._error

    # Records

    def produce(
        self,
        topic: str,
        value: bytes,
        _key: bytes | None,
        partition: int,
        _callback: None,
        _on_delivery: None,
        _timestamp: int,
        _headers: object,
    ) -> None:
        kind = self._link.enter("produce")
        if self._state == "fatal":
            raise _exception(KafkaError._FATAL, fatal=True)
        if kind == "full":
            raise BufferError
        if kind == "unknown":
            raise _exception(KafkaError._UNKNOWN_PARTITION)
        assert not self._name or self._state in {"open", "failed"}, f"produce in state {self._state}"
        if kind == "undelivered":
            self._undelivered(topic)
            return
        if not self._queue:
            self._queued_at = self._broker.clock.now
        self._queue.append((topic, partition, value))
        self._link.leave(kind)

    def _time_out_records(self) -> None:
        """Fail the transaction if its records could not be sent in time, as after a suspension of the process."""
        if self._name and self._queue and self._broker.clock.now - self._queued_at > self._timeout_s:
            topic, self._needs_epoch = self._queue[0][0], True
            self._queue.clear()
            self._undelivered(topic)

    def _undelivered(self, topic: str) -> None:
        error = KafkaError(KafkaError._MSG_TIMED_OUT)
        if self._name:
            self._fail(_exception(KafkaError._INCONSISTENT, abort=True))
        self._report(error, Message(topic))

    def poll(self, timeout: float) -> int:
        self._link.check()
        self._broker.clock.advance(timeout)
        self._time_out_records()
        if self._state == "open" or not self._name:
            try:
                self._write(self._ripe)
            except RefusedError as error:
                self._refused(error)
        self._ripe = len(self._queue)
        self._raise_fatal()
        return 0

    def _write(self, records: int | None = None) -> None:
        sent = self._queue[:records]
        del self._queue[:records]
        if sent:
            self._registered = True
            self._broker.write(self._name, self._epoch, self._timeout_s, sent)

    def flush(self, timeout: float) -> int:
        kind = self._link.enter("flush")
        if kind == "time out before":
            self._broker.clock.advance(10 * timeout)  # as in an outage in which several calls get no answer
            return len(self._queue)
        self._write()
        self._link.leave(kind)
        return 0

    def purge(self, **_what: bool) -> None:
        self._queue.clear()

    def cluster_id(self, _timeout: float) -> str:
        self._link.check()
        return "model"

    def list_topics(self, *, timeout: float) -> SimpleNamespace:
        return _topics(self._link)


def _topics(link: Link) -> SimpleNamespace:
    link.check()
    found = SimpleNamespace(error=None, partitions=dict(enumerate(link.broker.inputs)))
    return SimpleNamespace(topics={"in": found})


class ModelConsumer:
    """A static member with eager rebalances. All callbacks run inside `poll` and `consume`."""

    def __init__(self, link: Link, options: Mapping[str, Any]) -> None:
        self._link = link
        self._broker = link.broker
        self._group = link.broker.group
        self._instance: str = options["group.instance.id"]
        self._on_error: Callable[[KafkaError], None] = options["error_cb"]
        self.membership: Membership | None = None
        self._assigned: set[int] | None = None
        """Partitions that the group has assigned; None before an assignment, and after its end."""
        self._lost = False
        """Whether the assignment is lost. A call of `assign` clears this mark before the callback runs (librdkafka)."""
        self._polled_at = link.broker.clock.now
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        """Does not change when partitions are revoked and assigned again, as in librdkafka 2.16."""
        self._reported_end: set[int] = set()
        self._turn = 0
        self._closed = False
        self._subscribed = False
        self._fenced = False

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[TopicPartition]], None]) -> None:
        (self._topic,) = topics
        self._callbacks = callbacks
        self._subscribed = True

    def unsubscribe(self) -> None:
        self._link.check()
        self._subscribed = False

    def memberid(self) -> str | None:
        self._notice_suspension()
        return None if self.membership is None else str(self.membership.member)

    def poll(self, timeout: float) -> Message | None:
        assert not self._closed
        kind = self._link.enter("poll")
        if self._link.all_brokers_down:
            self._link.all_brokers_down = False
            self._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all brokers down"))
        if self._link.unnoticed_polls:
            self._link.unnoticed_polls -= 1
        else:
            self._receive_from_group()
        self._link.check()
        message = self._next()
        if message is None:
            self._broker.clock.advance(timeout)
        self._link.leave(kind)
        return message

    def _receive_from_group(self) -> None:
        self._notice_suspension()
        if self._subscribed:
            self._follow_group()
        elif self.membership is not None:
            self._leave_group()

    def consume(self, most: int, _timeout: float) -> list[Message]:
        """Return more records. Runs callbacks first, so they see a position after the record that `poll` returned."""
        kind = self._link.enter("consume")
        if not self._link.unnoticed_polls:
            self._receive_from_group()
        self._link.check()
        found = (self._next() for _ in range(min(most, self._link.fetch)))
        messages = [message for message in found if message is not None]
        self._link.leave(kind)
        return messages

    # Group

    def _notice_suspension(self) -> None:
        """End the session as librdkafka does after a suspension: it drops its member id, and joins again."""
        suspended_s, self._polled_at = self._broker.clock.now - self._polled_at, self._broker.clock.now
        if self._link.suspended:
            self._link.suspended = False
            if suspended_s > SESSION_S and self.membership is not None:
                self.membership, self._lost = None, True

    def _follow_group(self) -> None:
        own = self.membership
        known = self._group.members.get(self._instance)
        if own is not None and known is not None and known != own.member:
            if not self._fenced:  # librdkafka reports a fatal error once
                self._fenced = True
                self._on_error(KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced by another", fatal=True))
            return
        if own is not None and known is None:
            own = self.membership = None
            self._lost = True
        if own is None:
            self._end_assignment("on_lost" if self._lost else "on_revoke")
            if not self._subscribed:  # by the callback
                return
            own = self.membership = Membership(self._instance, self._group.join(self._instance), -1)
        if self._group.waits_for(self._instance):
            self._end_assignment("on_revoke")
            self._link.check()
            if self._group.members.get(self._instance) == own.member:
                self._group.ready(self._instance)
        stale = self._group.members.get(self._instance) != own.member
        if not (stale or self._group.rebalancing) and self._group.generation != own.generation:
            self.membership = Membership(self._instance, own.member, self._group.generation)
            self._begin_assignment(self._group.owned[self._instance])

    def _leave_group(self) -> None:
        self._end_assignment("on_revoke")
        self._link.check()
        own, self.membership = self.membership, None
        if own is not None and self._group.members.get(self._instance) == own.member:
            self._group.leave(self._instance)

    def _begin_assignment(self, partitions: set[int]) -> None:
        self._assigned = partitions
        self._callback_assigned = False
        self._callbacks["on_assign"](self, self._parts(partitions))
        if not self._callback_assigned:  # as librdkafka's binding does if the callback did not
            self.assign(self._parts(partitions))

    def _end_assignment(self, callback: str) -> None:
        if self._assigned is not None:
            self._callbacks[callback](self, self._parts(self._assigned))
            self._assigned = None
            self._positions.clear()

    def _parts(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in sorted(partitions)]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._link.check()
        # librdkafka notices the end of the session in a thread of its own.
        self._notice_suspension()
        self._lost = False
        self._callback_assigned = True
        assert all(at.offset >= self._broker.begins[at.partition] for at in partitions), "offset out of range"
        self._positions = {at.partition: at.offset for at in partitions}
        self._reported_end.clear()

    def consumer_group_metadata(self) -> Membership:
        self._link.check()
        return self.membership or Membership(self._instance, 0, -1)

    # Records

    def _next(self) -> Message | None:
        """Poll the partitions in turn. The end of a partition is reported once, until it has new records."""
        order = sorted(self._positions.keys() - self._paused)
        for at in range(len(order)):
            partition = order[(self._turn + at) % len(order)]
            message = self._next_of(partition)
            if message is not None:
                self._turn += at + 1
                return message
        return None

    def _next_of(self, partition: int) -> Message | None:
        log = self._broker.inputs[partition]
        while (offset := self._positions[partition]) < len(log):
            self._positions[partition] = offset + 1
            if (value := log[offset]) is not None:
                self._reported_end.discard(partition)
                return Message(self._topic, partition, offset, value=value)
        if partition in self._reported_end:
            return None
        self._reported_end.add(partition)
        return Message(self._topic, partition, len(log), error=KafkaError(KafkaError._PARTITION_EOF))

    def pause(self, partitions: list[TopicPartition]) -> None:
        chosen = {at.partition for at in partitions}
        assert chosen <= self._positions.keys()
        assert chosen.isdisjoint(self._paused)
        self._paused |= chosen

    def resume(self, partitions: list[TopicPartition]) -> None:
        chosen = {at.partition for at in partitions}
        assert chosen <= self._positions.keys()
        self._paused -= chosen

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, at.partition, self._positions[at.partition]) for at in partitions]

    def get_watermark_offsets(self, at: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        return self._broker.begins[at.partition], len(self._broker.inputs[at.partition])

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        kind = self._link.enter("offsets_for_times")
        if kind == "time out before":
            raise self._link.time_out(timeout)
        ends = {at.partition: len(self._broker.inputs[at.partition]) for at in partitions}
        found = {OFFSET_BEGINNING: dict(enumerate(self._broker.begins)), OFFSET_END: ends}
        return [TopicPartition(self._topic, at.partition, found[at.offset][at.partition]) for at in partitions]

    def list_topics(self, *, timeout: float) -> SimpleNamespace:
        return _topics(self._link)

    # Offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return committed offsets. Offsets of an open transaction block the caller (KIP-447)."""
        kind = self._link.enter("committed")
        expected = [at.partition for at in partitions]
        if kind == "time out before" or self._broker.unstable(expected):
            raise self._link.time_out(timeout)
        found = [
            TopicPartition(self._topic, partition, *self._broker.committed.get(partition, (OFFSET_INVALID, "")))
            for partition in expected
        ]
        self._link.leave(kind)
        return found

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        kind = self._link.enter("commit")
        if kind == "time out before":
            raise self._link.time_out(60.0)
        try:
            self._broker.commit_plainly(_by_partition(offsets), self.consumer_group_metadata())
        except RefusedError as error:
            raise _exception(error.code) from error
        self._link.leave(kind, 60.0)
        return offsets

    def close(self) -> None:
        """Close without LeaveGroup, because a static member is expected to rejoin."""
        kind = self._link.enter("close")
        assert not self._closed
        self._end_assignment("on_revoke")
        self._link.leave(kind)
        self._closed = True


def _by_partition(offsets: Iterable[TopicPartition]) -> dict[int, tuple[int, str]]:
    return {at.partition: (at.offset, at.metadata or "") for at in offsets}
