"""Stages that only tests have: one with a topic of its own, one with two inputs and no topic, each with a condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pytest
from pydantic import SecretStr, create_model

from laws.model_broker import Broker, Clock
from laws.model_clients import Link
from laws.model_store import Store, StoreOutput
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings, replica_settings
from skewless.config.stage_start import StageStart
from skewless.engine.step import MultiInputStep, Step
from skewless.metric_definition import Metric
from skewless.settings_base import SettingsModel
from skewless.stages.built_stage import BuiltStage
from skewless.topology import Condition, Stage, Topic
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.topic_partition import TopicPartition

REVIEWED = Topic("reviewed", public=True, partitions="source", key="the tuple's key", record="late")
REVIEWER = Stage(
    name="reviewer",
    description="reviews late tuples",
    inputs=("late",),
    outputs=("reviewed", "dead-letters"),
    builder="helpers.extra_stages:build_reviewer",
    metrics="helpers.extra_stages",
    event_time=None,
    section="archive",
    needs=Condition("archive"),
)
ARCHIVER = Stage(
    name="archiver",
    description="stores results",
    inputs=("aggregates", "reviewed"),
    outputs=(),
    builder="helpers.extra_stages:build_archiver",
    metrics="helpers.extra_stages",
    event_time=None,
    section="archive",
    needs=Condition("archive.mode", ("all", "results")),
)
METRICS = (Metric("skewless_archive_rows_total", "Rows in the archive."),)


class ArchiveSettings(SettingsModel):
    """Settings of both stages."""

    mode: Literal["all", "results", "late"] = "all"
    table: str = "archive"
    password: SecretStr = SecretStr("")


class Reviewer(Step):
    """Copies records."""

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None: ...

    def revoke(self, partition: int) -> None: ...

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        columns = zip(batch.keys, batch.values, batch.timestamps.tolist(), batch.headers, strict=True)
        for key, value, timestamp, headers in columns:
            own = [(name, header) for name, header in headers if header is not None]
            yield OutputRecord("reviewed", value, key, batch.partition, timestamp, own)

    def flush(self, now: int) -> tuple[()]:
        return ()

    def checkpoint(self, partition: int) -> str:
        return ""

    def watermark(self, partition: int) -> int | None: ...

    def finished(self, partition: int) -> bool:
        return True


class Archiver(MultiInputStep):
    """Sends records to the output, whatever their topic."""

    def assign(
        self, partition: TopicPartition, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]
    ) -> None: ...

    def revoke(self, partition: TopicPartition) -> None: ...

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        return (OutputRecord(batch.topic, value) for value in batch.values)

    def flush(self, now: int) -> tuple[()]:
        return ()

    def checkpoint(self, partition: TopicPartition) -> str:
        return ""

    def watermark(self, partition: TopicPartition) -> int | None: ...

    def finished(self, partition: TopicPartition) -> bool:
        return True


def build_reviewer(start: StageStart) -> BuiltStage:
    """Build the stage with a topic."""
    return BuiltStage(Reviewer())


def build_archiver(start: StageStart) -> BuiltStage:
    """Build the stage without a topic."""
    return BuiltStage(Archiver(), output=lambda member: StoreOutput(Store(), Link(Broker(Clock(), 1), member)))


def add(monkeypatch: pytest.MonkeyPatch) -> type[PipelineSettings]:
    """Add the stages and their topic to the topology; returns the settings with their section."""
    stages = (*topology.STAGES, REVIEWER, ARCHIVER)
    monkeypatch.setattr(topology, "STAGES", stages)
    monkeypatch.setattr(topology, "TOPICS", (*topology.TOPICS, REVIEWED))
    replicas = replica_settings(stages)
    return create_model(
        "ExtendedSettings",
        __base__=PipelineSettings,
        archive=(ArchiveSettings | None, None),
        replicas=(replicas, replicas.model_validate({})),
    )
