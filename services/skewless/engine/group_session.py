"""GroupSession: the consumer and its membership in the consumer group, and what its errors mean.

Only the consumer thread uses this module. A member of a group can lose its membership in ways that look alike:

- Another process has joined with the same `group.instance.id`: this process ends (FencedError).
- A join request was answered, and the answer was lost. The coordinator then has a member that no process uses, and
  fences this process for it: its consumer, or first its commit. This process joins again once that member has expired.
- No broker was reachable for longer than the session timeout. librdkafka would join again, with a new member id. This
  process first asks the coordinator, because another one may have replaced it before or during the outage. A commit
  that still has the previous member id is fenced.
- librdkafka has removed all brokers from the client and does not connect again: the consumer is replaced.

So before anything that would fence another process, the group coordinator is asked which member it knows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from skewless.engine.assignment import IllegalEventError
from skewless.engine.stage_runtime import StageRuntime
from skewless.errors import FencedError, SkewlessError, TransactionAbortedError, UnavailableError
from skewless.kafka.clients import create_client
from skewless.kafka.consumer.leave_group import leave_group
from skewless.kafka.consumer.membership import GroupMembership
from skewless.kafka.errors import ErrorClass, class_of, classify_consumer_error, is_refused_login
from skewless.kafka.outage_log import Outage
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

LEAVE_TIMEOUT_S = 3.0
MEMBERSHIP_POLL_S = 0.2
MEMBERSHIP_MARGIN_S = 2.0
"""Time after the session timeout within which the coordinator has removed a member that sends no heartbeats."""
UNUSABLE_CONSUMER_S = 15.0
"""A consumer is replaced if the coordinator does not know its instance id after this time without an assignment."""


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Functions that follow a rebalance. They run within `poll`, on the consumer thread."""

    assign: Callable[[set[TopicPartition]], None]
    revoke: Callable[[set[TopicPartition]], None]
    lose: Callable[[set[TopicPartition]], None]


class GroupSession:
    """The consumer of this process, from its first join to its end."""

    def __init__(
        self,
        runtime: StageRuntime,
        options: Mapping[str, object],
        membership: GroupMembership,
        stopping: threading.Event,
    ) -> None:
        self.group = runtime.group
        self.outage = Outage(log)
        self._topics = list(runtime.topics)
        self._callbacks: Callbacks
        self._options = options
        self._transport = runtime.transport
        self._membership = membership
        self._statistics = runtime.executor.statistics
        self._stopping = stopping
        self._thread: int | None = None
        """The thread that created the consumer."""
        self._consumer: Consumer = None
        self._member_id = ""
        """Member id as of the last assignment."""
        self._callback_failure: BaseException | None = None
        """Error of a callback, which is raised after poll()."""
        self._refused = False
        """Whether a broker has refused the login of this consumer, and none has accepted one since."""
        self._unconfirmed = False
        """Whether the coordinator must confirm this member before partitions are restored again."""
        self._lost_in_outage = False
        """Whether this consumer was not fenced, but its session expired while no broker answered."""
        self._unassigned_since: float | None = None
        """Time of the first poll without an assignment."""
        self._closing = False
        """Whether the consumer is being closed. Its partitions are already committed or revoked."""

    @property
    def consumer(self) -> Consumer:
        """The consumer. Raises IllegalEventError in another thread than the one that created it."""
        if threading.get_ident() != self._thread:
            raise IllegalEventError("the consumer belongs to the consumer thread")
        return self._consumer

    def join(self, callbacks: Callbacks) -> None:
        """Create a consumer and subscribe. Drops the state of the previous consumer."""
        self._callback_failure = None
        self._callbacks = callbacks
        self._closing = self._lost_in_outage = False
        self._thread = threading.get_ident()
        self._consumer = create_client(
            Consumer, {**self._options, **self._statistics.consumer.options(), "error_cb": self._on_error}
        )
        self._subscribe()

    def add_topics(self, topics: Iterable[str]) -> None:
        """Read further topics. The group assigns all partitions again."""
        self._topics += topics
        self._subscribe()

    def _subscribe(self) -> None:
        callbacks = self._callbacks

        def on_assign(consumer: Consumer, partitions: list[KafkaPartition]) -> None:
            self._member_id = consumer.memberid() or ""
            self._statistics.rebalances["assigned"] += 1
            self._defer_error(callbacks.assign, partitions)
            # Without this call the client would fetch at once, from offsets that it chooses.
            consumer.assign([])

        def on_revoke(consumer: Consumer, partitions: list[KafkaPartition]) -> None:
            # librdkafka marks partitions as lost when the session expires, but each call of assign() clears the mark.
            # A consumer whose session has expired has no member id.
            if not consumer.memberid():
                on_lost(consumer, partitions)
                return
            self._statistics.rebalances["revoked"] += 1
            self._defer_error(callbacks.revoke, partitions)
            if not consumer.memberid():  # the coordinator has removed this member meanwhile
                self._defer_error(self._check_not_replaced, partitions)

        def on_lost(_consumer: Consumer, partitions: list[KafkaPartition]) -> None:
            self._statistics.rebalances["lost"] += 1
            self._defer_error(callbacks.lose, partitions)
            self._defer_error(self._check_not_replaced, partitions)

        self._consumer.subscribe(self._topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def _defer_error(
        self, callback: Callable[[set[TopicPartition]], None], partitions: Collection[KafkaPartition]
    ) -> None:
        """Make a call and store its error, which is raised after poll()."""
        if self._closing:
            return
        # An exception must not propagate through librdkafka's C callback.
        try:
            callback({TopicPartition(partition.topic, partition.partition) for partition in partitions})
        except BaseException as error:  # noqa: BLE001 - raised after the poll() that runs this callback
            self._callback_failure = error

    def poll(self, max_records: int, wait_s: float, gather_s: float) -> list[Message]:
        """Return the next messages, which may be errors of partitions. Raises errors of the callbacks.

        Waits `wait_s` for the first message, and from then on `gather_s` for up to `max_records` messages.
        """
        messages: list[Message] = []
        try:
            first = self.consumer.poll(wait_s)
            if first is not None:
                messages.append(first)  # kept even if the next call raises an error
                messages += self.consumer.consume(max_records - 1, gather_s)
        except KafkaException as error:
            self.raise_if_fatal(error.args[0])
        self._raise_failure_of_callback()
        self._check_login()
        return messages

    def serve(self, wait_s: float) -> None:
        """Poll for callbacks while nothing is fetched."""
        self._statistics.last_poll_at = time.monotonic()
        try:
            message = self.consumer.poll(wait_s)
        except KafkaException as error:
            self.raise_if_fatal(error.args[0])
        else:
            if message is not None and message.error() is not None:
                self.raise_if_fatal(message.error())
        self._raise_failure_of_callback()
        self._check_login()

    def _raise_failure_of_callback(self) -> None:
        if self._callback_failure is not None:
            failure, self._callback_failure = self._callback_failure, None
            raise failure

    # Errors

    def _on_error(self, error: KafkaError) -> None:
        """Handle an error event. librdkafka calls this from within poll() instead of returning a message."""
        if error.fatal():
            self._callback_failure = self._failure_of(error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's local codes are named so
            self.outage.warn(f"no broker is reachable, waiting: {error.str()}", kind="no broker")
        elif class_of(error) is ErrorClass.UNREACHABLE:
            self.outage.warn(f"a broker is not reachable: {error.str()}", kind="a broker")
        elif is_refused_login(error, self._options):
            self.outage.warn(f"a broker refuses this client: {error.str()}", kind="refused")
            self._refused = True

    def _check_login(self) -> None:
        """After a refused login of this consumer, raise BrokerError if brokers refuse those of new clients too."""
        # The session need not expire meanwhile: the connection to the coordinator may be an older one.
        if self._refused:
            with suppress(UnavailableError):
                self._membership.member_id()
                self._refused = False

    def raise_if_fatal(self, error: KafkaError) -> None:
        """Raise the error, unless librdkafka recovers from it by itself."""
        failure = self._failure_of(error)
        if failure is not None:
            raise failure
        self.outage.warn(f"consumer: {error.str()}")

    def _failure_of(self, error: KafkaError) -> SkewlessError | None:
        if class_of(error) is ErrorClass.UNAUTHENTICATED and not is_refused_login(error, self._options):
            return None
        operation = f"reading topic {', '.join(self._topics)} as group {self.group}"
        return classify_consumer_error(error, operation)

    # Membership

    def require_confirmation(self) -> None:
        """Make the next `confirm` ask the coordinator."""
        self._unconfirmed = True

    def is_confirmed(self) -> bool:
        """Return whether the coordinator confirms now that this consumer is the member of its instance."""
        with suppress(UnavailableError):
            return self._is_member(self._membership.member_id())
        return False

    def _is_member(self, registered: str | None) -> bool:
        """Return whether this consumer is the member that the coordinator knows, if it knows one."""
        return registered is not None and registered == self.consumer.memberid()  # both are None without a member

    def confirm(self) -> None:
        """Raise UnavailableError until the coordinator confirms this consumer as the member of its instance."""
        # A process that was suspended may have been replaced. Its new producer would fence the producer of its
        # successor. If it was replaced, the consumer's next heartbeat fails permanently, which ends this process.
        if self._unconfirmed:
            if not self._is_member(self._membership.member_id()):
                raise UnavailableError(f"group {self.group} has not confirmed this member")
            self._unconfirmed = False

    def check_joined(self, *, assigned: bool) -> None:
        """Raise TransactionAbortedError for a new consumer if this one cannot join the group.

        A consumer that joins gets an assignment, even if it contains no partitions.
        """
        if assigned:
            self._unassigned_since = None
            return
        now = time.monotonic()
        if self._unassigned_since is None:
            self._unassigned_since = now
        elif now - self._unassigned_since >= UNUSABLE_CONSUMER_S:
            self._unassigned_since = now
            # librdkafka may remove all brokers from a client and not connect again. The coordinator then knows no
            # member of this instance id. If it knows one, this consumer waits for a rebalance, or another process has
            # replaced this one and must not be fenced.
            with suppress(UnavailableError):
                if self._membership.member_id() is None:
                    raise TransactionAbortedError(
                        f"no assignment for {UNUSABLE_CONSUMER_S:g} s, and group {self.group} does not know this "
                        "member; joining again",
                        rejoin=True,
                    )

    def is_replaced(self) -> bool:
        """Return whether another process is the member of this instance id. Returns False if this process stops."""
        # The coordinator may have registered a member for a join request of this process whose response was lost. That
        # member sends no heartbeats, so the coordinator removes it when its session expires. The member of another
        # process remains.
        expiry_s = self._transport.session_timeout_s + MEMBERSHIP_MARGIN_S
        # Without a member, there may be another process whose session expired in an outage. It joins again when it has
        # connected. Only a member that vanishes while the coordinator answers every request has had no process.
        vacancy_s = MEMBERSHIP_MARGIN_S if self._lost_in_outage else expiry_s
        known: str | None = ""
        since = time.monotonic()
        answered_always = True
        while not self._stopping.is_set():
            self._statistics.last_poll_at = time.monotonic()
            try:
                registered = self._membership.member_id()
            except UnavailableError as error:
                self.outage.warn(f"waiting for the group to confirm this process: {error}")
                known, answered_always = "", False
            else:
                vanished = bool(known) and registered is None
                is_own = self._is_member(registered) or registered == self._member_id
                if is_own or (vanished and answered_always):
                    return False
                if registered != known:
                    known, since = registered, time.monotonic()
                elif time.monotonic() - since >= (vacancy_s if registered is None else expiry_s):
                    return registered is not None
            time.sleep(MEMBERSHIP_POLL_S)
        return False

    def _check_not_replaced(self, _partitions: Collection[TopicPartition]) -> None:
        """Raise FencedError if another process may have joined under this instance id after the session expired."""
        try:
            if self._membership.member_id() in {None, self._member_id}:
                return
        except UnavailableError:
            self._lost_in_outage = True
        # A client whose session expired joins again without its member id. The coordinator would treat it as the newer
        # process and fence the process that replaced it.
        with suppress(KafkaException):  # of a consumer that is fenced already
            self.consumer.unsubscribe()
        raise FencedError(
            "this process sent no heartbeat for longer than transport.session_timeout_s, and another process joined as "
            f"{self._options['group.instance.id']}; this one ends"
        )

    # The end

    def leave(self) -> None:
        """Leave the group, so that the partitions are reassigned at once."""
        if not leave_group(self.consumer, LEAVE_TIMEOUT_S):
            log.warning(
                "could not leave the group: its partitions are reassigned when the session expires, after %g s",
                self._transport.session_timeout_s,
            )

    def close(self) -> None:
        """Close the consumer, if there is one. The member stays in the group until its session expires."""
        self._closing = True
        if self._consumer is not None:
            self.consumer.close()
