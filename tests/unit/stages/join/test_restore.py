"""A join that starts again reads the records that wait for a partner from the user's topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from confluent_kafka import Message

from helpers.join_stage import PARTITIONS, TOPICS, step_rules
from skewless.algorithms.join.window_join import Side
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.errors import BrokerError
from skewless.kafka.consumer.topic_reader import ReadProgress
from skewless.parsing.join_records import side_rules
from skewless.stages.join import restore
from skewless.stages.join.restore import _batches, _records, restore_from
from skewless.wire.join_changelog import Block, block_record
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

SIDE = {"topic": "views", "format": "json", "id": {"field": "id"}, "time": {"field": "t"}}
JOIN = {"left": SIDE, "right": SIDE | {"topic": "clicks"}, "apart_s": 60}
SETTINGS = PipelineSettings.model_validate({"name": "ads", "join": JOIN})


def test_join_restore_held_record_that_cannot_be_read_any_more_is_named() -> None:
    rules = side_rules(SETTINGS.joined.left)
    outputs = [OutputRecord("views", value, b"a") for value in (b'{"id": "a", "t": 5}', b'{"id": "a", "t": "?"}')]
    read = MessageBatch.of_outputs(TopicPartition("views", 1), outputs[:1], 0)
    assert _records(read, rules, merged=False).ids.tolist() == ["a"]
    batch = MessageBatch.of_outputs(TopicPartition("views", 1), outputs, 0, first_offset=40)
    with pytest.raises(BrokerError, match=r"topic views partition 1 offset 41: time .*, and it waits for a partner"):
        _records(batch, rules, merged=False)


@pytest.mark.parametrize(("drain", "asked"), [(False, []), (True, ["ads.left"])])
def test_join_restore_asks_for_processed_partitions_in_a_bounded_run_only(
    monkeypatch: pytest.MonkeyPatch, *, drain: bool, asked: list[str]
) -> None:
    found: list[str] = []

    def processed(_kafka: object, group: str, _topic: str) -> list[int]:
        found.append(group)
        return []

    monkeypatch.setattr(restore, "read_compacted", lambda *_: ())
    monkeypatch.setattr(restore, "_processed", processed)
    writers = {side: (f"ads.{side.value}", TOPICS[side]) for side in Side}
    rules = step_rules(SETTINGS.joined.rules(), drain=drain)
    restored = restore_from(SETTINGS.kafka, "ads.join-changelog", rules, writers, ReadProgress())
    restored(PARTITIONS[Side.LEFT], "[1]")
    assert found == asked


def test_join_restore_returns_empty_blocks_so_that_they_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = block_record(0, Block("left", 3, 1, b"", b""))
    monkeypatch.setattr(restore, "read_compacted", lambda *_: [(empty.key, empty.value)])
    rules = step_rules(SETTINGS.joined.rules())
    restored = restore_from(SETTINGS.kafka, "ads.join-changelog", rules, None, ReadProgress())
    assert restored(PARTITIONS[Side.LEFT], "[1, null, 1]").empty_blocks == [3]


class Log:
    """A topic whose log starts at offset 5, and which lacks offset 8."""

    def __init__(self, _kafka: object) -> None:
        pass

    def log_range(self, _topic: str, _partition: int) -> tuple[int, int]:
        return 5, 10


def read_log(_kafka: object, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, list[Message]]]:
    for partition, (first, end) in ranges.items():
        yield partition, [Message(topic=topic, partition=partition, offset=at) for at in range(first, end) if at != 8]


@pytest.mark.parametrize(
    ("held", "problem"),
    [([5, 7], None), ([4, 7], "they begin at offset 4, log start offset is 5"), ([6, 8, 9], "lacks 1 .* offset 8")],
)
def test_join_restore_reads_the_held_offsets_or_names_those_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, held: list[int], problem: str | None
) -> None:
    monkeypatch.setattr(restore, "OffsetReader", Log)
    monkeypatch.setattr(restore, "read_ranges", read_log)

    def read() -> list[int]:
        batches = _batches(SETTINGS.kafka, TopicPartition("views", 1), np.array(held))
        return [offset for batch in batches for offset in batch.offsets]

    if problem is None:
        assert read() == held
    else:
        with pytest.raises(BrokerError, match=problem):
            read()
