"""A stage that reads two topics: their partitions have the same numbers, and are kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration.engine.harness import Stand, running, until
from skewless.engine.faust.app import StageRuntime
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
def stand(broker: str) -> Stand:
    stand = Stand(broker)
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(stand.topic("right"), stand.partitions, 1)])[stand.topic("right")].result(timeout=20)
    return stand


def fill(stand: Stand, start: int) -> None:
    producer = Producer({"bootstrap.servers": stand.bootstrap})
    for topic in INPUTS:
        for number in range(start, start + RECORDS):
            producer.produce(stand.topic(topic), f"{topic} {number}".encode(), partition=number % stand.partitions)
    assert producer.flush(20) == 0


def expected(stand: Stand, records: int) -> dict[int, list[bytes]]:
    return {
        partition: sorted(f"{topic} {n}".encode() for topic in INPUTS for n in range(partition, records, 4))
        for partition in range(stand.partitions)
    }


def wiring(stand: Stand, step: Merge, member: int = 0) -> StageRuntime:
    group = f"{stand.prefix}-copy"
    inputs = tuple(Input(group, stand.topic(topic), origin="internal", shape=None, partitions=4) for topic in INPUTS)
    return stand.wiring(step, member, inputs=inputs)


async def copied(stand: Stand, records: int) -> None:
    await until(lambda: stand.count() >= records * len(INPUTS))
    assert {partition: sorted(values) for partition, values in stand.read().items()} == expected(stand, records)


def committed(stand: Stand, topic: str) -> list[tuple[int, str]]:
    consumer = Consumer({"bootstrap.servers": stand.bootstrap, "group.id": f"{stand.prefix}-copy"})
    partitions = [KafkaPartition(stand.topic(topic), number) for number in range(stand.partitions)]
    found = consumer.committed(partitions, timeout=10)
    consumer.close()
    return [(at.offset, at.metadata) for at in found]


async def test_stage_with_two_inputs_commits_offset_and_checkpoint_of_each_and_continues(stand: Stand) -> None:
    fill(stand, 0)
    async with running(wiring(stand, Merge())):
        await copied(stand, RECORDS)
    assert [committed(stand, topic) for topic in INPUTS] == [[(100, "100")] * 4] * 2
    fill(stand, RECORDS)
    async with running(wiring(stand, Merge())):
        await copied(stand, 2 * RECORDS)
    assert [committed(stand, topic) for topic in INPUTS] == [[(200, "200")] * 4] * 2


async def test_stage_with_two_inputs_is_rebalanced_by_partition_number(stand: Stand) -> None:
    """A join relies on it: the range assignor gives a process the same partition numbers of both topics."""
    first, second = Merge(), Merge()
    fill(stand, 0)
    async with running(wiring(stand, first)):
        await until(lambda: stand.count() > 0)
        async with running(wiring(stand, second, member=1)):
            await until(lambda: len(first.owned) == len(second.owned) == 4)
            for step in (first, second):
                numbers = [{at.partition for at in step.owned if at.topic == stand.topic(topic)} for topic in INPUTS]
                assert numbers[0] == numbers[1]
            fill(stand, RECORDS)
            await copied(stand, 2 * RECORDS)
