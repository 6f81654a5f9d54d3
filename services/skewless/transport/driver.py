"""Faust transport over confluent-kafka: one message per poll and partition, its value the batch of records.

Registered as `skewless` under `faust.transports`. Faust keeps what it is good at, agents and their lifecycle; reading,
acknowledging, committing and rebalancing are `ConsumerThread`'s and `Session`'s. Faust never calls the consumer itself:
what it asks for is answered from what the thread last said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

from faust.transport import base
from faust.transport.consumer import Consumer as FaustConsumer
from faust.transport.consumer import TransactionManager
from faust.types import TP
from faust.types.tuples import Message
from mode import Service
from mode.utils.types.trees import NodeT

from skewless.errors import ConfigurationError
from skewless.transport.app import App, Wiring
from skewless.transport.batch import MessageBatch
from skewless.transport.consumer import ConsumerThread
from skewless.transport.consumer_options import consumer_options
from skewless.transport.membership import GroupMembership
from skewless.transport.resumption import Input

log = logging.getLogger(__name__)

STOCK_CONSUMER = "the consumer belongs to its thread; agents process batches through app.session"


def _refuse(what: str) -> NoReturn:
    raise ConfigurationError(f"{what} does not work over this transport: {STOCK_CONSUMER}")


class Consumer(FaustConsumer):
    """Faust's view of the consumer thread."""

    logger = log

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._assigned: set[TP] = set()
        self._items: asyncio.Queue[MessageBatch | set[int]] = asyncio.Queue()
        self._thread: ConsumerThread | None = None
        self.stopped_thread: asyncio.Future[BaseException | None] | None = None

    @property
    def wiring(self) -> Wiring:
        """The stage's own part."""
        return cast("App", self.app).wiring

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Start reading; called once, when all agents are up."""
        wiring = self.wiring
        unknown = sorted(set(topics) - {wiring.topic})
        if unknown:
            _refuse(f"subscribing to {', '.join(unknown)} beside {wiring.topic}")
        if self._thread is not None:
            return
        loop = asyncio.get_running_loop()
        self.stopped_thread = loop.create_future()
        self._thread = ConsumerThread(
            loop=loop,
            session=wiring.session,
            outbox=wiring.outbox,
            source=Input(wiring.group, wiring.topic, wiring.internal, wiring.shape),
            options=consumer_options(
                wiring.kafka,
                wiring.transport,
                wiring.group,
                wiring.member,
                end_of_partition=wiring.end_of_partition,
            ),
            transport=wiring.transport,
            connect_timeout_s=wiring.kafka.timeout_s,
            deliver=self._hand,
            assigned=self._items.put_nowait,
            stopped=self.stopped_thread.set_result,
            restore=wiring.restore,
            membership=GroupMembership(wiring.kafka.client_options(), wiring.group, wiring.member),
            written=wiring.written,
            partitions=wiring.partitions,
            skip_to=wiring.skip_to,
            patience_s=wiring.patience_s,
        )
        self._thread.start()

    def _hand(self, batch: MessageBatch) -> None:
        if self.wiring.session.hand(batch):
            self._items.put_nowait(batch)

    @Service.task
    async def _deliver(self) -> None:
        """Pass on assignments and batches in the order in which the thread made them."""
        while not self.should_stop:
            item = await self._items.get()
            if isinstance(item, MessageBatch):
                await self.callback(self._message(item))
            else:
                self._assigned = {TP(self.wiring.topic, partition) for partition in item}
                self.app.on_rebalance_start()
                await self.on_partitions_assigned(set(self._assigned))

    def _message(self, batch: MessageBatch) -> Message:
        return Message(
            topic=self.wiring.topic,
            partition=batch.partition,
            offset=batch.next_offset - 1,
            timestamp=0.0,
            timestamp_type=0,
            headers={},
            key=None,
            value=batch,
            checksum=None,
            # Faust's generation stays what it is: stale batches are told by the session's own.
            generation_id=self.app.consumer_generation_id,
            tp=TP(self.wiring.topic, batch.partition),
        )

    async def stop_thread(self, *, leave: bool = False) -> BaseException | None:
        """Commit what is processed, end, and return what the thread failed of, if it did.

        With `leave` the group is told at once that others have to take over.
        """
        if self._thread is None or self.stopped_thread is None:
            return None
        self._thread.stop(leave=leave)
        return await asyncio.shield(self.stopped_thread)

    def assignment(self) -> set[TP]:
        """Partitions as last assigned."""
        return self._assigned

    def ack(self, message: Message) -> bool:  # noqa: ARG002 - Faust's interface
        """Do nothing: a batch is done when the session has processed it, not when an agent moved on or crashed."""
        return False

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Do nothing: the thread commits."""
        return False

    async def perform_seek(self) -> None:
        """Do nothing: the thread starts each partition where it was committed."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Do nothing, as `perform_seek`."""
        return {}

    async def wait_empty(self) -> None:
        """Do nothing: the session knows what is in flight."""

    @Service.task
    async def _commit_handler(self) -> None:
        """Replace Faust's timer."""

    @Service.task
    async def _commit_livelock_detector(self) -> None:
        """Replace Faust's watch over its own acknowledgements."""

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        """Do nothing: the thread controls the flow."""

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Do nothing: the thread controls the flow."""

    def on_buffer_full(self, tp: TP) -> None:
        """Do nothing: the thread hands over no more than fits."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Do nothing, as `on_buffer_full`."""

    def close(self) -> None:
        """Do nothing: the thread closes its consumer."""

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    async def create_topic(self, topic: str, *_args: Any, **_options: Any) -> None:
        """Refuse: topics are made by `skewless topics apply`."""
        _refuse(f"creating topic {topic}")

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:  # noqa: ARG002 - Faust's interface
        _refuse("committing from an agent")

    async def _seek(self, partition: TP, offset: int) -> None:
        _refuse(f"seeking {partition} to {offset}")

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Refuse: the thread alone moves positions."""
        _refuse(f"seeking {sorted(partitions)}")

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:  # noqa: ARG002, ASYNC109
        _refuse("fetching records one by one")

    def _to_message(self, tp: TP, record: Any) -> Any:  # noqa: ARG002 - Faust's interface
        _refuse("fetching records one by one")

    async def position(self, tp: TP) -> int | None:
        """Refuse: the position is the thread's."""
        _refuse(f"asking for the position of {tp}")

    def highwater(self, tp: TP) -> int:
        """Refuse: only tables need it."""
        _refuse(f"asking for the high watermark of {tp}")

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Refuse: only tables need it."""
        _refuse(f"asking for the high watermarks of {partitions}")

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Refuse: only tables need it."""
        _refuse(f"asking for the earliest offsets of {partitions}")

    def topic_partitions(self, topic: str) -> int | None:  # noqa: ARG002 - Faust's interface
        """Tell nothing: the number of partitions is the admin's to know."""
        return None

    def key_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> int | None:  # noqa: ARG002
        """Refuse: outputs choose their partition themselves."""
        _refuse("choosing a partition by Faust")


class Producer(base.Producer):
    """Refuses to send: outputs leave through the session, in the transaction of the batch that made them."""

    async def on_start(self) -> None:
        """Start no producer: the outbox has it."""

    async def send(self, topic: str, *_args: Any, **_options: Any) -> Any:
        """Refuse."""
        _refuse(f"sending to {topic} by Faust")

    async def send_and_wait(self, topic: str, *_args: Any, **_options: Any) -> Any:
        """Refuse."""
        _refuse(f"sending to {topic} by Faust")

    def send_soon(self, fut: Any) -> None:  # noqa: ARG002 - Faust's interface
        """Refuse."""
        _refuse("sending by Faust")

    async def flush(self) -> None:
        """Do nothing: a commit flushes."""


class Fetcher(Service):
    """Stands where Faust's fetcher was: the thread's batches come by themselves."""

    def __init__(self, app: Any, *, loop: asyncio.AbstractEventLoop | None = None, beacon: NodeT | None = None) -> None:
        super().__init__(loop=loop, beacon=beacon)
        self.app = app


class Transport(base.Transport):
    """What the scheme `skewless` names in a Faust app's `broker`."""

    Consumer = Consumer
    Producer = Producer
    Fetcher = Fetcher
    TransactionManager = TransactionManager
    driver_version = "skewless over confluent-kafka"
    default_port = 9092

    def __init__(self, url: list[Any], app: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        if not isinstance(app, App):
            raise ConfigurationError("broker skewless:// needs a skewless.transport.app.App instead of a faust.App")
        super().__init__(url, app, loop)
