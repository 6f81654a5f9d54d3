"""One process of a stage that a test drives step by step: real executor, producer and consumer code, no threads."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from helpers.engine import TOPIC, EagerLoop, at
from laws.model_broker import STATE_TOPIC, Broker, Clock, Membership
from laws.model_clients import Fault, KilledError, Link, ModelConsumer, ModelMembership
from skewless.engine.consumer_loop import ConsumerThread
from skewless.engine.executor import State, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.output import Output
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import Input, PriorOutput
from skewless.engine.step import Step
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.state_schema import StateSchema
from skewless.wire.topic_partition import TopicPartition

SHAPE = StateSchema(
    window=60_000,
    tick_ms=60_000,
    columns="count",
    decimals=0,
    max_workers=4,
    aggregator_partitions=4,
    emit="updates",
    lateness_ms=0,
)
WATERMARK_INTERVAL_MS = 1000
WATERMARK_MS = 5000
"""Time in ms between the periodic watermarks of the owner of a partition, which it also writes without records."""


@dataclass
class Share:
    """State of the ledger for one partition."""

    count: int = 0
    watermarks: int = 0
    ended: bool = False


class Ledger(Step):
    """Writes every record once, those with odd values at the flush. Changelog and checkpoint contain a count each.

    The checkpoint also changes without records: by periodic watermarks as time passes, and at the end.
    """

    def __init__(self, *, drain: bool) -> None:
        self._drain = drain
        self._shares: dict[int, Share] = {}
        self._held: dict[int, list[bytes]] = {}
        self._restored: dict[int, int] = {}
        """Count in the changelog minus count in the checkpoint. It is 0 unless the owner was fenced."""
        self._written: dict[int, int] = {}
        self._marked_at: dict[int, int] = {}
        self._reported_end: set[int] = set()
        self._beats: dict[int, int] = {}

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        share = self._shares[partition] = Share(**json.loads(checkpoint)) if checkpoint else Share()
        self._restored[partition] = int(dict(state).get(b"count", b"0")) - share.count
        self._held[partition] = []
        self._written[partition] = share.count
        if share.ended:
            self._reported_end.add(partition)

    def revoke(self, partition: int) -> None:
        for of_partition in (self._shares, self._held, self._restored, self._written, self._marked_at):
            of_partition.pop(partition, None)
        self._reported_end.discard(partition)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        share = self._shares[batch.partition]
        assert not share.ended, "a record after the end"
        for value in batch.values:
            assert value is not None
            share.count += 1
            if share.count % 2:
                self._held[batch.partition].append(value)
            else:
                yield OutputRecord("out", value, partition=batch.partition)

    def flush(self, now: int) -> Iterator[OutputRecord]:
        for partition, share in self._shares.items():
            for value in self._held[partition]:
                yield OutputRecord("out", value, partition=partition)
            self._held[partition].clear()
            if share.count and now >= self._marked_at.get(partition, 0) + WATERMARK_MS:
                self._marked_at[partition] = now
                share.watermarks += 1
                yield OutputRecord("watermarks", b"%d" % share.watermarks, partition=partition)
            yield from self._beat(partition, now)
            if share.ended and partition not in self._reported_end:
                self._reported_end.add(partition)
                yield OutputRecord("end", b"end", partition=partition)
            if share.count != self._written[partition]:
                self._written[partition] = share.count
                total = self._restored[partition] + share.count
                yield OutputRecord(STATE_TOPIC, b"%d" % total, key=b"count", partition=partition)

    def _beat(self, partition: int, now: int) -> Iterator[OutputRecord]:
        """Write a record that is in no checkpoint, as a splitter does for a partition that becomes idle."""
        if now // WATERMARK_INTERVAL_MS != self._beats.get(partition, 0):
            self._beats[partition] = now // WATERMARK_INTERVAL_MS
            yield OutputRecord("beats", b"beat", partition=partition)

    def checkpoint(self, partition: int) -> str:
        return json.dumps(asdict(self._shares[partition]))

    def watermark(self, partition: int) -> int | None:
        return self._shares[partition].count

    def finished(self, partition: int) -> bool:
        return partition in self._reported_end

    def end_of_partition(self, partition: int, now: int) -> None:
        if self._drain:
            self._shares[partition].ended = True


class Results(PriorOutput):
    """Looks for results of the group in its output topic."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def of_group(self) -> str | None:
        return next(filter(None, map(self.of_partition, map(at, range(len(self._broker.inputs))))), None)

    def of_partition(self, partition: TopicPartition) -> str | None:
        return "topic out" if self._broker.visible("out", partition.partition) else None


class VirtualEvent:
    """Replaces the executor's event, for which the consumer thread waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> None:
        if not self._set:
            self._clock.advance(timeout)


class Process:
    """A process, from its start until it is stopped, killed or has failed."""

    def __init__(  # noqa: PLR0913 - by name; each parameter is independent
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        links: dict[str, Link],
        *,
        instance: str,
        number: int,
        transport: TransportSettings,
        pause_after_s: float,
        drain: bool,
        output: Callable[[Link], Output] | None = None,
    ) -> None:
        self.instance = instance
        self.over = False
        self.disturbed = False
        """Whether a fault occurred that may end the process."""
        self.duplicated = False
        """Whether a duplicate instance ran meanwhile, which may have left a transaction open."""
        self.killed = False
        self.failure: BaseException | None = None
        self._loop = loop
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._parts: defaultdict[int, deque[MessageBatch]] = defaultdict(deque)
        self._let_on: asyncio.Event | None = None
        address = f"{instance}-{number}:9092"
        self.link = links[address] = Link(broker, instance)
        kafka = KafkaSettings(bootstrap_servers=address)
        exact = transport.guarantee == "exactly_once"
        step = Ledger(drain=drain)
        self.executor = StepExecutor(step, drain=drain, clock=lambda: int(broker.clock.now * 1000))
        self.executor.room_available = cast("Any", VirtualEvent(broker.clock))
        self.producer: Output
        if output is not None:
            self.producer = output(self.link)
        elif exact:
            self.producer = TransactionalProducer(kafka, transport, str, instance)
        else:
            self.producer = AtLeastOnceProducer(kafka, transport, str)
        runtime = StageRuntime(
            kafka=kafka,
            transport=transport,
            executor=self.executor,
            output=self.producer,
            inputs=(Input("group", TOPIC, kind="internal", state_schema=SHAPE),),
            group_instance_id=instance,
            restore=self._restore,
            prior_output=Results(broker) if exact else None,
            end_of_partition=True,
            pause_after_s=pause_after_s,
        )
        self.thread = ConsumerThread(
            runtime,
            loop=cast("Any", EagerLoop()),
            deliver=self._deliver,
            stopped=lambda _failure: None,
            membership=cast("Any", ModelMembership(self.link)),
            read_topic_ids=lambda _topics: {},
        )
        self._run(self.thread._open)

    # Consumer thread

    def turn(self) -> None:
        """Run one iteration of the thread's loop."""

        def turn() -> None:
            self.thread._run_once()
            if self.executor.failure is not None and not self.link.alive:
                raise KilledError

        self._run(turn)

    def stop(self, *, leave: bool) -> None:
        """Stop as after SIGTERM, with or without leaving the group."""
        self.thread._leaves = leave
        self._run(lambda: self.thread._close(clean=True), closed=True)
        self._end()

    def kill(self) -> None:
        self.killed = True
        self._end()

    def plan(self, call: str, fault: Fault) -> None:
        self.disturbed = True
        self.link.faults[call] = fault

    def _run(self, call: Callable[[], None], *, closed: bool = False) -> None:
        if self.over:
            return
        try:
            call()
        except KilledError:
            self.kill()
        except Exception as error:  # noqa: BLE001 - the machine judges it
            self.failure = error
            if not closed:
                self._close_after_failure()
            self._end()

    def _close_after_failure(self) -> None:
        try:
            self.thread._close(clean=False)
        except KilledError:
            return

    def _end(self) -> None:
        self.over = True
        self.link.alive = False
        for task in self._tasks.values():
            task.cancel()

    def _restore(self, positions: Mapping[int, str | None]) -> Mapping[int, State]:
        kind = self.link.enter("restore")
        states = {partition: self.link.broker.restore(partition) for partition in positions}
        self.link.leave(kind)
        return states

    # Event loop

    def _deliver(self, batch: MessageBatch) -> None:
        if self.executor.deliver(batch):
            self._parts[batch.partition].extend([batch])

    def work(self, partition: int, records: int) -> None:
        """Let the agent process records of a partition, in parts, as far as possible."""
        queue = self._parts[partition]
        while records > 0 and not self.over:
            if partition in self._tasks:
                self._settle(partition)
                if partition in self._tasks:
                    return
            if not queue:
                return
            batch = queue.popleft()
            if len(batch.messages) > 1:
                queue.extendleft(reversed(batch.parts()))
                continue
            records -= 1
            self._tasks[partition] = self._loop.create_task(self.executor.process(batch, self._before))
            self._settle(partition)

    def work_off(self) -> None:
        """Let the agent process all delivered records."""
        for partition in list(self._parts):
            self.work(partition, 10_000)

    def hold(self, *, on: bool) -> None:
        """Pause the agent before each step, or resume it."""
        if on:
            self._let_on = self._let_on or asyncio.Event()
        elif self._let_on is not None:
            self._let_on.set()
            self._let_on = None

    def _before(self, _batch: MessageBatch) -> Awaitable[None] | None:
        return None if self._let_on is None else self._wait(self._let_on)

    @staticmethod
    async def _wait(event: asyncio.Event) -> None:
        await event.wait()

    def _settle(self, partition: int) -> None:
        self._loop.run_until_complete(_pause())
        task = self._tasks[partition]
        if task.done():
            del self._tasks[partition]
            self._run(task.result)

    @property
    def batches(self) -> int:
        """Return the batches that were delivered and are neither processed nor dropped."""
        return self.thread._back_pressure.in_flight_batches

    @property
    def membership(self) -> Membership | None:
        """Return the consumer's view of the group."""
        return cast("ModelConsumer", self.thread._session._consumer).membership


async def _pause() -> None:
    for _ in range(4):
        await asyncio.sleep(0)
