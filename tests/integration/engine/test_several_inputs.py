"""A stage that reads two topics: partitions with the same number are separate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from helpers.kafka import create_topics
from helpers.waiting import WAIT_S
from integration.engine.harness import Harness, running, until
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.start_checks import Input
from skewless.engine.step import MultiInputStep
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.topic_partition import TopicPartition

INPUTS = ("in", "right")
RECORDS = 400


class Merge(MultiInputStep):
    """Copies the records of all inputs to topic `out`. Its checkpoint is the number of records of a partition."""

    def __init__(self) -> None:
        self.counts: Counter[TopicPartition] = Counter()
        self.owned: set[TopicPartition] = set()

    def assign(self, partition: TopicPartition, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        self.owned.add(partition)
        self.counts[partition] = int(checkpoint or 0)

    def revoke(self, partition: TopicPartition) -> None:
        self.owned.remove(partition)
        del self.counts[partition]

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        partition = TopicPartition(batch.topic, batch.partition)
        for value in batch.values:
            self.counts[partition] += 1
            yield OutputRecord("out", value, partition=batch.partition)

    def flush(self, now: int) -> Iterable[OutputRecord]:
        return ()

    def checkpoint(self, partition: TopicPartition) -> str:
        return str(self.counts[partition])

    def watermark(self, partition: TopicPartition) -> int | None:
        return self.counts[partition]

    def finished(self, partition: TopicPartition) -> bool:
        return False


@pytest.fixture
def harness(broker: str) -> Harness:
    harness = Harness(broker)
    create_topics(broker, {harness.topic("right"): harness.partitions})
    return harness


def fill(harness: Harness, start: int) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "enable.idempotence": True})
    for topic in INPUTS:
        for number in range(start, start + RECORDS):
            producer.produce(harness.topic(topic), f"{topic} {number}".encode(), partition=number % harness.partitions)
    assert producer.flush(WAIT_S) == 0


def expected(harness: Harness, records: int) -> dict[int, list[bytes]]:
    return {
        partition: sorted(f"{topic} {n}".encode() for topic in INPUTS for n in range(partition, records, 4))
        for partition in range(harness.partitions)
    }


def wiring(harness: Harness, step: Merge, member: int = 0) -> StageRuntime:
    group = f"{harness.prefix}-copy"
    inputs = tuple(
        Input(group, harness.topic(topic), kind="internal", state_schema=None, partitions=4) for topic in INPUTS
    )
    return harness.wiring(step, member, inputs=inputs, co_partitioned=True)


async def copied(harness: Harness, records: int) -> None:
    await until(lambda: harness.count() >= records * len(INPUTS))
    assert {partition: sorted(values) for partition, values in harness.read().items()} == expected(harness, records)


def committed(harness: Harness, topic: str) -> list[tuple[int, str]]:
    consumer = Consumer({"bootstrap.servers": harness.bootstrap, "group.id": f"{harness.prefix}-copy"})
    partitions = [KafkaPartition(harness.topic(topic), number) for number in range(harness.partitions)]
    found = consumer.committed(partitions, timeout=WAIT_S)
    consumer.close()
    return [(at.offset, at.metadata) for at in found]


async def test_stage_with_two_inputs_commits_offset_and_checkpoint_of_each_and_continues(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fill(harness, 0)
    async with running(wiring(harness, Merge())):
        await copied(harness, RECORDS)
    assert [committed(harness, topic) for topic in INPUTS] == [[(100, "100")] * 4] * 2
    fill(harness, RECORDS)
    async with running(wiring(harness, Merge())):
        await copied(harness, 2 * RECORDS)
    assert [committed(harness, topic) for topic in INPUTS] == [[(200, "200")] * 4] * 2
    offsets = [record.__dict__["offsets"] for record in caplog.records if hasattr(record, "offsets")]
    labels = [f"{harness.topic(topic)}/{number}" for topic in INPUTS for number in range(4)]
    assert offsets == [dict.fromkeys(labels, 0), dict.fromkeys(labels, 100)], "the log names each partition"


async def test_stage_with_two_inputs_is_rebalanced_by_partition_number(harness: Harness) -> None:
    """A join relies on this: the range assignor gives a process the same partition numbers of both topics."""
    first, second = Merge(), Merge()
    fill(harness, 0)
    async with running(wiring(harness, first)):
        await until(lambda: harness.count() > 0)
        async with running(wiring(harness, second, member=1)):
            await until(lambda: len(first.owned) == len(second.owned) == 4)
            for step in (first, second):
                numbers = [{at.partition for at in step.owned if at.topic == harness.topic(topic)} for topic in INPUTS]
                assert numbers[0] == numbers[1]
            fill(harness, RECORDS)
            await copied(harness, 2 * RECORDS)
