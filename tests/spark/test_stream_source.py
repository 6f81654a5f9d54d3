"""A task of a query reads its records from Kafka: always the same batches of a partition, or an error."""

from __future__ import annotations

from collections import defaultdict

import pytest

from integration.engine.harness import Harness
from skewless.errors import BrokerError
from skewless.kafka.consumer.topic_reader import ReadAhead
from skewless.spark import stream_source
from skewless.spark.stream_source import SourceRange, read
from skewless.wire.topic_partition import TopicPartition

pytestmark = pytest.mark.broker


def ranges_of(harness: Harness, ends: dict[int, int]) -> list[SourceRange]:
    topic = harness.topic("in")
    return [SourceRange(TopicPartition(topic, partition), 3, end) for partition, end in ends.items()]


def batches(harness: Harness, ends: dict[int, int]) -> dict[int, list[list[int]]]:
    found: defaultdict[int, list[list[int]]] = defaultdict(list)
    for batch in read(harness.kafka, ranges_of(harness, ends)):
        found[batch.partition].append(batch.offsets)
    return dict(found)


def test_read_ranges_with_other_polls_has_the_same_batches_of_each_partition(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(broker, partitions=2)
    harness.fill(200)
    monkeypatch.setattr(stream_source, "BATCH_RECORDS", 40)
    whole = batches(harness, {0: 90, 1: 50})
    assert whole == {0: [[*range(3, 43)], [*range(43, 83)], [*range(83, 90)]], 1: [[*range(3, 43)], [*range(43, 50)]]}
    monkeypatch.setattr(stream_source, "READ_AHEAD", ReadAhead(batch_records=7))
    assert batches(harness, {0: 90, 1: 50}) == whole


def test_read_ranges_of_deleted_records_is_refused(broker: str) -> None:
    harness = Harness(broker, partitions=1)
    harness.fill(100)
    harness.delete_records("in", before=60)
    with pytest.raises(BrokerError, match="reading topic"):
        list(read(harness.kafka, ranges_of(harness, {0: 90})))
