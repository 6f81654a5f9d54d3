"""A database in memory as a stage's output: rows and offsets become visible in one transaction, without Kafka."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from laws.model_broker import Written
from laws.model_clients import Link
from skewless.errors import FencedError, TransactionAbortedError, UnavailableError
from skewless.wire.record import OutputRecord, OutputStats
from skewless.wire.topic_partition import CommittedOffset, TopicPartition


@dataclass
class Store:
    """Committed data. Rows are in the broker's `written`, where the laws look for them."""

    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    epochs: Counter[str] = field(default_factory=Counter)
    """Number of connections of each identity. Only the newest connection may commit."""


class StoreOutput:
    """Collects rows, and commits them with the offsets in one transaction. Implements `Output`."""

    def __init__(self, store: Store, link: Link) -> None:
        self.ready = self.dirty = False
        self.not_ready_reason = "no connection"
        self.replaced = 0
        self.client = None
        self.waited_s = 0.0
        self.sent: defaultdict[str, OutputStats] = defaultdict(OutputStats)
        self.outcomes: Counter[str] = Counter({"committed": 0, "aborted": 0})
        self._store = store
        self._link = link
        self._epoch = 0
        self._rows: list[Written] = []
        self._known: dict[TopicPartition, CommittedOffset | None] = {}
        """Offsets that this process has last read or committed."""

    def collect_metrics(self) -> tuple[()]:
        return ()

    def attach(self, consumer: Consumer) -> None:
        """Do nothing, because the store contains the offsets."""

    def connect(self) -> None:
        if not self.ready:
            self._link.check()
            self._store.epochs[self._link.instance] += 1
            self._epoch = self._store.epochs[self._link.instance]
            self.ready = True

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        for output in outputs:
            self._link.check()
            self.dirty = True
            self._rows.append(Written(output.topic, output.partition or 0, output.value or b"", None))

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        assert offsets
        kind = self._link.enter("commit")
        if kind == "time out before":
            raise TransactionAbortedError("no answer", replace_output=True)
        if self._store.epochs[self._link.instance] != self._epoch:
            raise FencedError("another process has connected with this identity")
        if any(self._store.offsets.get(partition) != self._known.get(partition) for partition in offsets):
            raise TransactionAbortedError("another process has committed one of the partitions")
        self._store.offsets.update(offsets)
        self._link.broker.written += self._rows
        if kind == "time out after":
            raise TransactionAbortedError("no answer", replace_output=True)
        self._link.leave(kind)
        self._known.update(offsets)
        self._clear("committed")

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        kind = self._link.enter("committed")
        if kind == "time out before":
            raise UnavailableError("no answer")
        requested = {partition: self._store.offsets.get(partition) for partition in partitions}
        self._link.leave(kind)
        self._known.update(requested)
        return {partition: committed for partition, committed in requested.items() if committed is not None}

    def abort(self, *, replace: bool) -> None:
        self.ready = self.ready and not replace
        self._clear("aborted")

    def abort_open(self, identity: str) -> None:
        pass

    def close(self) -> None:
        self.ready = False
        self._rows.clear()

    def _clear(self, outcome: str) -> None:
        self._rows.clear()
        self.dirty = False
        self.outcomes[outcome] += 1
