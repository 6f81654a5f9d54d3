"""A reader of a topic knows its progress."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from skewless.kafka.consumer import topic_reader
from skewless.kafka.consumer.topic_reader import TopicReader
from skewless.kafka.settings import KafkaSettings


class Positioned:
    """A consumer that has read partition 0 up to an offset, and nothing of partition 1."""

    def assign(self, _partitions: list[TopicPartition]) -> None: ...

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        offsets = {0: 8, 1: OFFSET_INVALID}
        return [TopicPartition(each.topic, each.partition, offsets[each.partition]) for each in partitions]


@pytest.mark.parametrize(
    ("ends", "expected"), [({0: 8, 1: 5}, True), ({0: 9, 1: 5}, False), ({0: 8, 1: 6}, False), ({0: 7, 2: 9}, True)]
)
def test_topic_reader_has_reached_the_ends_of_its_partitions_by_what_was_returned(
    monkeypatch: pytest.MonkeyPatch, ends: Mapping[int, int], *, expected: bool
) -> None:
    monkeypatch.setattr(topic_reader, "create_client", lambda *_arguments: Positioned())
    reader = TopicReader(KafkaSettings(), "users", {0: 5, 1: 5})
    assert reader.has_reached(ends) == expected
