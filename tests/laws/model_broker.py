"""A broker in memory: logs, transactions and one consumer group, as KIP-98, KIP-345 and KIP-447 describe them.

Time is a number that tests advance. Nothing fails by chance: the caller decides what is lost or late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from confluent_kafka import KafkaError

STATE_TOPIC = "state"


class Clock:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.moved: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.moved()


class RefusedError(Exception):
    """The broker responds with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(KafkaError(code).str())
        self.code = code


@dataclass
class Transaction:
    """Outputs and offsets that become visible together, or never."""

    begun_at: float
    timeout_s: float
    offsets: dict[int, tuple[int, str]] = field(default_factory=dict)
    records: int = 0
    state: str = "open"


@dataclass(frozen=True)
class Written:
    """One record of an output topic. Without a transaction it is visible at once."""

    topic: str
    partition: int
    value: bytes
    transaction: Transaction | None

    @property
    def committed(self) -> bool:
        return self.transaction is None or self.transaction.state == "committed"


@dataclass(frozen=True)
class Membership:
    """Group metadata of a consumer, which a producer sends with offsets."""

    instance: str
    member: int
    generation: int


class Group:
    """Eager rebalances with static members: a generation begins when all members have revoked their partitions."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._numbers = count(1)
        self._joined: set[str] = set()
        self.members: dict[str, int] = {}
        self.generation = 0
        self.rebalancing = False
        self.owned: dict[str, set[int]] = {}

    def join(self, instance: str) -> int:
        """Add a member. A static member that rejoins a stable group gets its previous assignment."""
        known = instance in self.members
        self.members[instance] = next(self._numbers)
        self._joined.discard(instance)
        if not known:
            self.rebalance()
        return self.members[instance]

    def leave(self, instance: str) -> None:
        """End a session."""
        if self.members.pop(instance, None) is not None:
            self.rebalance()
            self._complete()

    def rebalance(self) -> None:
        if not self.rebalancing:
            self.rebalancing = True
            self._joined.clear()

    def ready(self, instance: str) -> None:
        """Confirm that a member has revoked its partitions."""
        self._joined.add(instance)
        self._complete()

    def waits_for(self, instance: str) -> bool:
        return self.rebalancing and instance not in self._joined

    def _complete(self) -> None:
        if self.rebalancing and self.members and self._joined >= self.members.keys():
            self.rebalancing = False
            self.generation += 1
            order = sorted(self.members)
            cuts = [self._partitions * at // len(order) for at in range(len(order) + 1)]
            self.owned = {name: set(range(cuts[at], cuts[at + 1])) for at, name in enumerate(order)}

    def check(self, who: Membership) -> None:
        """Refuse an unknown member. The assignment of its partitions is not checked (KIP-447)."""
        if who.instance not in self.members:
            raise RefusedError(KafkaError.UNKNOWN_MEMBER_ID)
        if self.members[who.instance] != who.member:
            raise RefusedError(KafkaError.FENCED_INSTANCE_ID)
        if self.generation != who.generation:
            raise RefusedError(KafkaError.ILLEGAL_GENERATION)


class Broker:
    """One input topic, its group, and the records of other topics."""

    def __init__(self, clock: Clock, partitions: int) -> None:
        self.clock = clock
        clock.moved = self._time_out
        self.inputs: list[list[bytes | None]] = [[] for _ in range(partitions)]
        """Records by partition; None at the offset of a transaction marker."""
        self.begins: list[int] = [0] * partitions
        """First offset by partition. Retention has deleted the records before it."""
        self.written: list[Written] = []
        self.committed: dict[int, tuple[int, str]] = {}
        self.group = Group(partitions)
        self.open: dict[str, Transaction] = {}
        self.epochs: Counter[str] = Counter()
        self.delayed: list[tuple[str, int]] = []
        """Commit requests that have not arrived yet: transactional id and epoch."""

    def init(self, name: str) -> int:
        """Begin a new epoch: the producer with the previous epoch is fenced, and its open transaction is aborted."""
        self._end(name, "aborted")
        self.epochs[name] += 1
        return self.epochs[name]

    def renew_epoch(self, name: str, epoch: int) -> int:
        """Give a producer the epoch after its own (KIP-360).

        An open transaction is aborted, and its producer is fenced, before the epoch of the request is checked.
        """
        if name in self.open:
            self._end(name, "aborted")
            self.epochs[name] += 1
            if self.epochs[name] == epoch + 1:
                return self.epochs[name]
        self._check_epoch(name, epoch)
        return self.init(name)

    def write(self, name: str, epoch: int, timeout_s: float, records: Iterable[tuple[str, int, bytes]]) -> None:
        transaction = self._transaction(name, epoch, timeout_s) if name else None
        written = [Written(*record, transaction) for record in records]
        if transaction is not None:
            transaction.records += len(written)
        self.written += written

    def add_offsets(
        self, name: str, epoch: int, timeout_s: float, offsets: Mapping[int, tuple[int, str]], who: Membership
    ) -> None:
        self._check_epoch(name, epoch)
        self.group.check(who)
        self._transaction(name, epoch, timeout_s).offsets.update(offsets)

    def commit_plainly(self, offsets: Mapping[int, tuple[int, str]], who: Membership) -> None:
        self.group.check(who)
        self.committed.update(offsets)

    def end(self, name: str, epoch: int, state: str) -> None:
        self._check_epoch(name, epoch)
        self.delayed = [request for request in self.delayed if request != (name, epoch)]
        self._end(name, state)

    def deliver_delayed(self) -> None:
        """Deliver late requests. Those of an earlier epoch are refused."""
        while self.delayed:
            name, epoch = self.delayed.pop()
            if self.epochs[name] == epoch:
                self._end(name, "committed")

    def unstable(self, partitions: Iterable[int]) -> bool:
        """Return whether an open transaction has offsets of one of these partitions."""
        pending = {partition for transaction in self.open.values() for partition in transaction.offsets}
        return not pending.isdisjoint(partitions)

    def visible(self, topic: str, partition: int) -> list[bytes]:
        """Return the records of committed transactions."""
        return [at.value for at in self._in(topic, partition) if at.committed]

    def restore(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Read a changelog to its end, and wait for open transactions as a reader does."""
        while any(at.transaction and at.transaction.state == "open" for at in self._in(STATE_TOPIC, partition)):
            self.clock.advance(1.0)
        return [(b"count", value) for value in self.visible(STATE_TOPIC, partition)[-1:]]

    def _in(self, topic: str, partition: int) -> list[Written]:
        return [at for at in self.written if (at.topic, at.partition) == (topic, partition)]

    def _check_epoch(self, name: str, epoch: int) -> None:
        if self.epochs[name] != epoch:
            raise RefusedError(KafkaError.INVALID_PRODUCER_EPOCH)

    def _transaction(self, name: str, epoch: int, timeout_s: float) -> Transaction:
        self._check_epoch(name, epoch)
        return self.open.setdefault(name, Transaction(self.clock.now, timeout_s))

    def _end(self, name: str, state: str) -> None:
        transaction = self.open.pop(name, None)
        if transaction is not None:
            transaction.state = state
            if state == "committed":
                assert transaction.offsets or not transaction.records, "records without an offset: no group fences them"
                self.committed.update(transaction.offsets)

    def _time_out(self) -> None:
        for name, transaction in list(self.open.items()):
            if self.clock.now - transaction.begun_at > transaction.timeout_s:
                self.init(name)
