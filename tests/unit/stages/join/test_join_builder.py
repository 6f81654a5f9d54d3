"""The settings of a pipeline as the step of its join has them."""

from __future__ import annotations

from typing import Any

from helpers.batches import written
from helpers.in_memory_batch import InMemoryBatch
from helpers.join_stage import NOW, record
from helpers.stage_start import REQUIRED, in_memory
from skewless.config.pipeline_settings import PipelineSettings
from skewless.stages.join.builder import build
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

LEFT, RIGHT = TopicPartition("p-left", 0), TopicPartition("p-right", 0)


class Join:
    """The step of a join with these settings, which reads one partition of both topics."""

    def __init__(self, **settings: Any) -> None:
        times = {side: REQUIRED["join"][side] | {"time": {"field": "time"}} for side in ("left", "right")}
        document = {"name": "p", "join": REQUIRED["join"] | times | settings}
        self.step = build(in_memory("join", PipelineSettings.model_validate(document), 1)).step
        for partition in (LEFT, RIGHT):
            self.step.assign(partition, None, ())

    def read(self, partition: TopicPartition, *seconds: float, padding: str = "") -> list[OutputRecord]:
        """Process records with these times after NOW, each with an id of its own."""
        records = [record(f"{at}", NOW + round(at * 1000), padding=padding) for at in seconds]
        return list(self.step.process(InMemoryBatch(0, records, topic=partition.topic), NOW + 10**6))


def test_join_builder_kind_decides_whether_unmatched_left_records_are_written() -> None:
    for kind, count in (("left", 1), ("inner", 0)):
        join = Join(kind=kind)
        join.read(LEFT, 0)
        assert len(written(join.read(RIGHT, 1.001), "unmatched-left")) == count


def test_join_builder_partition_that_is_ahead_by_more_than_the_drift_is_paused() -> None:
    join = Join(max_watermark_drift_s=2)
    join.read(RIGHT, 0)
    join.read(LEFT, 2)
    assert join.step.blocked == frozenset()
    join.read(LEFT, 2.001)
    assert join.step.blocked == {LEFT}


def test_join_builder_large_records_fill_the_buffer_before_small_ones() -> None:
    join = Join(buffer_bytes=2**20)
    join.read(RIGHT, 0)
    join.read(LEFT, *range(1, 5), padding="x" * 250_000)
    assert join.step.blocked == frozenset()
    join.read(LEFT, 5, padding="x" * 250_000)
    assert join.step.blocked == {LEFT}
