"""A minimal stage that copies records. A test drives its app inside the test's own process."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.kafka import create_topics
from helpers.waiting import WAIT_S, until_in_thread
from skewless.engine.app import App
from skewless.engine.executor import StepExecutor
from skewless.engine.output import Output
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import Input
from skewless.engine.step import InputStep, Step
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings
from skewless.stages.agent import declare_agent
from skewless.wire.record import Batch, OutputRecord

DEADLINE_S = 120.0


class Copy(Step):
    """Copies every record to topic `out`. Its checkpoint is the number of records that it copied of a partition."""

    def __init__(self, before: Callable[[Batch], None] = lambda _batch: None) -> None:
        self.copied: dict[int, int] = {}
        self.before = before
        self.threads: set[int] = set()
        self.assigned: list[tuple[int, str | None]] = []

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        self.assigned.append((partition, checkpoint))
        self.copied[partition] = int(checkpoint or 0)

    def revoke(self, partition: int) -> None:
        del self.copied[partition]

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        self.threads.add(threading.get_ident())
        for value in batch.values:
            yield OutputRecord("out", value, partition=batch.partition)
        self.before(batch)
        self.copied[batch.partition] += len(batch.values)

    def flush(self, now: int) -> Iterable[OutputRecord]:
        return ()

    def checkpoint(self, partition: int) -> str:
        return str(self.copied[partition])

    def finished(self, partition: int) -> bool:
        return False

    def watermark(self, partition: int) -> int | None:
        return None


@dataclass
class Harness:
    """Two topics of a test, and the settings of a stage between them."""

    bootstrap: str
    partitions: int = 4
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")
    kafka: KafkaSettings = field(init=False)
    transport: TransportSettings = field(
        default_factory=lambda: TransportSettings(commit_interval_s=0.1, session_timeout_s=6, transaction_timeout_s=10)
    )

    def __post_init__(self) -> None:
        self.kafka = KafkaSettings(bootstrap_servers=self.bootstrap, connect_timeout_s=WAIT_S)
        create_topics(self.bootstrap, {self.topic(name): self.partitions for name in ("in", "out")})

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def fill(self, records: int, start: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        for number in range(start, start + records):
            producer.produce(self.topic("in"), str(number).encode(), partition=number % self.partitions)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        """Delete records as retention does: the log then starts at a later offset."""
        admin, place = AdminClient({"bootstrap.servers": self.bootstrap}), self.topic(name)
        (future,) = admin.delete_records([TopicPartition(place, partition, before)]).values()
        assert future.result(WAIT_S).low_watermark == before

    def read(self, name: str = "out", isolation: str = "read_committed") -> dict[int, list[bytes]]:
        """Return all values of a topic by partition, up to the last stable offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "reconnect.backoff.ms": 20,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        consumer.list_topics(self.topic(name), timeout=DEADLINE_S)  # any other first request waits for half a second
        consumer.assign([TopicPartition(self.topic(name), p, OFFSET_BEGINNING) for p in range(self.partitions)])
        values: dict[int, list[bytes]] = {partition: [] for partition in range(self.partitions)}
        ended: set[int] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(ended) < self.partitions:
            assert time.monotonic() < deadline, f"{self.topic(name)} cannot be read to its end"
            for message in consumer.consume(1000, 0.02):
                if message.error() is None:
                    values[message.partition()].append(message.value() or b"")
                else:
                    ended.add(message.partition())
        consumer.close()
        return values

    def count(self) -> int:
        return sum(map(len, self.read().values()))

    def expected(self, records: int) -> dict[int, list[bytes]]:
        return {p: [str(n).encode() for n in range(p, records, self.partitions)] for p in range(self.partitions)}

    def committed(self) -> dict[int, tuple[int, str]]:
        client = {"bootstrap.servers": self.bootstrap, "reconnect.backoff.ms": 20}
        consumer = Consumer({**client, "group.id": f"{self.prefix}-copy"})
        consumer.list_topics(self.topic("in"), timeout=DEADLINE_S)  # as in `read`
        partitions = [TopicPartition(self.topic("in"), p) for p in range(self.partitions)]
        found = consumer.committed(partitions, timeout=WAIT_S)
        consumer.close()
        return {at.partition: (at.offset, at.metadata) for at in found}

    def members(self) -> list[str]:
        """Group instance ids."""
        group = f"{self.prefix}-copy"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found = admin.describe_consumer_groups([group])[group].result(WAIT_S).members
        return sorted(member.group_instance_id for member in found)

    def wiring(self, step: InputStep[Any], member: int = 0, **changes: Any) -> StageRuntime:
        """Build a stage; `changes` are fields of `StageRuntime`, or of its input."""
        name = f"{self.prefix}-copy-{member}"
        producer: Output
        if self.transport.guarantee == "exactly_once":
            producer = TransactionalProducer(self.kafka, self.transport, self.topic, name)
        else:
            producer = AtLeastOnceProducer(self.kafka, self.transport, self.topic)
        source = Input(f"{self.prefix}-copy", self.topic("in"), kind="user", state_schema=None)
        of_input = {name: changes.pop(name) for name in [field.name for field in fields(Input)] if name in changes}
        wiring = StageRuntime(
            kafka=self.kafka,
            transport=self.transport,
            executor=StepExecutor(step),
            output=producer,
            inputs=(replace(source, **of_input),),
            group_instance_id=name,
        )
        return replace(wiring, **changes)


def build(wiring: StageRuntime) -> App:
    app = App(wiring)
    declare_agent(app)
    return app


@asynccontextmanager
async def started(wiring: StageRuntime) -> AsyncIterator[App]:
    """Run an app that may fail. It is stopped in any case."""
    app = build(wiring)
    async with app.running():
        try:
            yield app
        finally:
            await asyncio.wait_for(app.stop_thread(), DEADLINE_S)


@asynccontextmanager
async def running(wiring: StageRuntime) -> AsyncIterator[App]:
    """Run an app that must not fail."""
    async with started(wiring) as app:
        yield app
    assert await app.stop_thread() is None


async def failure_of(app: App) -> BaseException | None:
    """Wait until the consumer's thread has ended by itself, and return its error."""
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.shield(app.stopped_thread)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that is evaluated outside the event loop."""
    await until_in_thread(condition, limit_s=DEADLINE_S)
