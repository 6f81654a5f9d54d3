"""The Faust app of a stage: it runs the agent, and the consumer thread that feeds it.

Faust has no connection to Kafka. `ConsumerThread` and `StepExecutor` read, track, commit and rebalance.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import faust
from faust.app import BootStrategy
from mode import Service

from skewless.engine.consumer_loop import ConsumerThread
from skewless.engine.executor import StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.stage_runtime import StageRuntime
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.membership import GroupMembership
from skewless.kafka.consumer.topic_ids import read_topic_ids


class NoBroker(BootStrategy):
    """Starts what Faust needs to run agents, without its own consumer, producer and tables."""

    enable_kafka = False


class NoKafka(Service):
    """Stands for Faust's consumer, topics and tables: nothing is assigned, acknowledged or recovered."""

    def __init__(self, executor: StepExecutor, **options: Any) -> None:
        super().__init__(**options)
        self._executor = executor
        # The names with an underscore are for Faust's compiled streams.
        self.unacked = self._unacked_messages = set[Any]()
        self.acking_topics = self._acking_topics = set[Any]()

    def acks_enabled_for(self, _topic: str) -> bool:
        """Return False: Faust does not track what is processed."""
        return False

    def assignment(self) -> frozenset[Any]:
        """Return the partitions of Faust."""
        return frozenset()

    async def wait_until_recovery_completed(self) -> bool:
        """Return False, the app continues: there are no tables."""
        return False

    async def on_task_error(self, error: Exception) -> None:
        """End the stage with the error of an agent, as with one of the step: Faust's new agent would skip the batch."""
        self._executor.fail(error)


NOT_USED = (
    *("Table", "SetTable", "GlobalTable", "SetGlobalTable", "TableManager", "Topic", "HttpClient", "Router", "Worker"),
    *("LeaderAssignor", "PartitionAssignor"),
)
"""Settings of classes that Faust imports with its settings, and this app does not use. aiokafka comes with them."""


class App(faust.App):
    """A Faust app that runs the agent of a stage. The agent reads the batches of the consumer thread from a channel."""

    BootStrategy = NoBroker

    def __init__(self, runtime: StageRuntime) -> None:
        self.runtime = runtime
        super().__init__(
            runtime.group,
            loop=asyncio.get_running_loop(),
            web_enabled=False,
            **dict.fromkeys(NOT_USED, NoKafka),
        )
        self.consumer, self.topics, self.tables = (NoKafka(self.executor, loop=self.loop) for _ in range(3))
        self.batches = self.channel(maxsize=0)
        """Channel of the batches to process. Unbounded: the consumer thread limits what is in flight."""
        self.stopped_thread: asyncio.Future[BaseException | None]
        """The error that has ended the consumer thread, or None after a clean end. Exists while the app runs."""
        self._thread: ConsumerThread
        self._received: asyncio.Queue[MessageBatch] = asyncio.Queue()

    @property
    def executor(self) -> StepExecutor:
        """Processes the batches of the agent."""
        return self.runtime.executor

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the agent and the consumer thread until the end of the block."""
        try:
            await self.start()
            # A channel has no reader and loses what is put into it until the agents are started.
            self.flow_control.resume()
            self._start_thread()
            yield
        finally:
            await self.stop()

    async def on_first_start(self) -> None:
        """Create no folders. Faust's are for its tables."""

    def _start_thread(self) -> None:
        runtime, loop = self.runtime, asyncio.get_running_loop()
        client_options = runtime.kafka.client_options()
        self.stopped_thread = loop.create_future()
        self._thread = ConsumerThread(
            runtime,
            loop=loop,
            deliver=self.receive,
            stopped=self.stopped_thread.set_result,
            membership=GroupMembership(
                client_options, runtime.group, runtime.group_instance_id, runtime.inputs[0].topic
            ),
            read_topic_ids=partial(read_topic_ids, client_options),
        )
        self._thread.start()

    async def stop_thread(self, *, leave: bool = False) -> BaseException | None:
        """Commit processed batches, end the thread, and return its error or None.

        With `leave`, the member leaves the group, so that its partitions are reassigned at once.
        """
        self._thread.stop(leave=leave)
        return await asyncio.shield(self.stopped_thread)

    def receive(self, batch: MessageBatch) -> None:
        """Take a batch from the consumer thread."""
        if self.executor.deliver(batch):
            self._received.put_nowait(batch)

    @Service.task
    async def _feed(self) -> None:
        """Pass the batches on to the agent, in the order in which the thread delivered them."""
        while True:
            await self.batches.put(await self._received.get())

    def topic(self, *_args: Any, **_options: Any) -> Any:
        """Refuse topics of Faust: they would be read and written outside of the transaction."""
        raise ConfigurationError("faust topics do not work here: an agent reads app.batches, its step returns outputs")

    def Table(self, *_args: Any, **_options: Any) -> Any:  # noqa: N802 - Faust's name
        """Refuse tables: their changelogs would be written outside of the transaction."""
        raise ConfigurationError("faust tables do not work here: keep state in the stage's step")

    GlobalTable = Table
    SetTable = Table
    SetGlobalTable = Table
