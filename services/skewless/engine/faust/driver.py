"""Faust transport over confluent-kafka. One Faust message is the batch of one partition from one poll.

Registered as `skewless` under `faust.transports`. Faust runs agents and their lifecycle. `ConsumerThread` and
`StepExecutor` read, track, commit and rebalance. Faust never calls librdkafka's consumer: `stubs` lists the methods
that do nothing or refuse, and those here return the last state that the thread has reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from faust.transport import base
from faust.transport.consumer import Consumer as FaustConsumer
from faust.transport.consumer import TransactionManager
from faust.types import TP
from faust.types.tuples import Message
from mode import Service
from mode.utils.types.trees import NodeT

from skewless.engine.consumer_loop import ConsumerThread
from skewless.engine.faust.app import App, StageRuntime
from skewless.engine.faust.stubs import CONSUMER, PRODUCER, refuse, stubs
from skewless.engine.message_batch import MessageBatch
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.membership import GroupMembership
from skewless.kafka.consumer.options import consumer_options
from skewless.kafka.consumer.topic_ids import read_topic_ids
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class Consumer(stubs("consumer", CONSUMER), FaustConsumer):  # type: ignore[misc] # made from a table
    """Faust's consumer, which delegates to the consumer thread."""

    logger = log

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._assigned: set[TP] = set()
        self._items: asyncio.Queue[MessageBatch | set[TopicPartition]] = asyncio.Queue()
        self._thread: ConsumerThread | None = None
        self.stopped_thread: asyncio.Future[BaseException | None] | None = None

    @property
    def runtime(self) -> StageRuntime:
        """The components and settings of the stage."""
        return cast("App", self.app).runtime

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Start the consumer thread. Faust calls this when all agents have started."""
        runtime = self.runtime
        other_topics = sorted(set(topics) - set(runtime.topics))
        if other_topics:
            refuse(f"subscribing to {', '.join(other_topics)} in addition to {', '.join(runtime.topics)}")
        if self._thread is not None:
            return
        loop = asyncio.get_running_loop()
        self.stopped_thread = loop.create_future()
        self._thread = ConsumerThread(
            loop=loop,
            executor=runtime.executor,
            output=runtime.output,
            inputs=runtime.inputs,
            find_inputs=runtime.find_inputs,
            options=consumer_options(
                runtime.kafka,
                runtime.transport,
                runtime.group,
                runtime.group_instance_id,
                end_of_partition=runtime.end_of_partition,
            ),
            transport=runtime.transport,
            connect_timeout_s=runtime.kafka.connect_timeout_s,
            deliver=self._receive,
            assigned=self._items.put_nowait,
            stopped=self.stopped_thread.set_result,
            restore=runtime.restore,
            membership=GroupMembership(runtime.kafka.client_options(), runtime.group, runtime.group_instance_id),
            read_topic_ids=partial(read_topic_ids, runtime.kafka.client_options()),
            written=runtime.written,
            pause_after_s=runtime.pause_after_s,
        )
        self._thread.start()

    def _receive(self, batch: MessageBatch) -> None:
        if self.runtime.executor.deliver(batch):
            self._items.put_nowait(batch)

    @Service.task
    async def _forward(self) -> None:
        """Forward assignments and batches to Faust, in the order in which the thread reported them."""
        while not self.should_stop:
            item = await self._items.get()
            if isinstance(item, MessageBatch):
                await self.callback(self._to_faust_message(item))
            else:
                self._assigned = {self._to_faust(partition) for partition in item}
                self.app.on_rebalance_start()
                await self.on_partitions_assigned(set(self._assigned))

    def _to_faust_message(self, batch: MessageBatch) -> Message:
        return Message(
            topic=self._to_faust(batch.source).topic,
            partition=batch.partition,
            offset=batch.next_offset - 1,
            timestamp=0.0,
            timestamp_type=0,
            headers={},
            key=None,
            value=batch,
            checksum=None,
            # Faust's generation is not used: the executor recognizes stale batches by its own generation.
            generation_id=self.app.consumer_generation_id,
            tp=self._to_faust(batch.source),
        )

    def _to_faust(self, partition: TopicPartition) -> TP:
        # Faust's stream has the topics that the stage reads from its start.
        known = self.runtime.topics
        return TP(*(partition if partition.topic in known else partition._replace(topic=known[0])))

    async def stop_thread(self, *, leave: bool = False) -> BaseException | None:
        """Commit processed batches, end the thread, and return its error or None.

        With `leave`, the member leaves the group, so that its partitions are reassigned at once.
        """
        if self._thread is None or self.stopped_thread is None:
            return None
        self._thread.stop(leave=leave)
        return await asyncio.shield(self.stopped_thread)

    def assignment(self) -> set[TP]:
        """Return the last assignment."""
        return self._assigned

    @Service.task
    async def _commit_handler(self) -> None:
        """Replace Faust's timer."""

    @Service.task
    async def _commit_livelock_detector(self) -> None:
        """Replace Faust's detector of missing acknowledgements."""

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)


class Producer(stubs("producer", PRODUCER), base.Producer):  # type: ignore[misc] # made from a table
    """Refuses to send. The executor sends outputs, in the transaction of the batch from which they result."""


class Fetcher(Service):
    """Replaces Faust's fetcher and does nothing: the thread delivers batches without requests."""

    def __init__(self, app: Any, *, loop: asyncio.AbstractEventLoop | None = None, beacon: NodeT | None = None) -> None:
        super().__init__(loop=loop, beacon=beacon)
        self.app = app


class Transport(base.Transport):
    """The transport that the scheme `skewless` in a Faust app's `broker` names."""

    Consumer = Consumer
    Producer = Producer
    Fetcher = Fetcher
    TransactionManager = TransactionManager
    driver_version = "skewless over confluent-kafka"
    default_port = 9092

    def __init__(self, url: list[Any], app: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        if not isinstance(app, App):
            raise ConfigurationError("broker skewless:// needs a skewless.engine.faust.app.App instead of a faust.App")
        super().__init__(url, app, loop)
